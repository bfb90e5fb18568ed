"""8-bit floats: conversions against ml_dtypes, and what may be done with them from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, UnsupportedError
from rlx.models.safetensors import SafeTensors, write_safetensors
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from support.float8 import KINDS, judged, patterns

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_conversions_are_those_of_ml_dtypes(device: str) -> None:
    """All numbers of 16 bits, and random ones of f32 (``tools/float8_cases.py`` has more)."""
    assert judged(device, patterns(1 << 17, seed=0)) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_one_from_wider_types(kind: str) -> None:
    dt = rlx.types.DTYPES[kind]
    g = rlx.Graph()
    x, n = g.input("x", [6], "f64"), g.input("n", [4], "i64")
    g.set_outputs([x.cast(kind), n.cast(kind), n.cast(kind, saturate=False)])
    # Ties of f32 that an f64 lies beside: two roundings would go to the even neighbour.
    step = float(ml_dtypes.finfo(dt.numpy).eps)
    tie = 1 + step / 2
    values = np.array([tie, np.nextafter(tie, 2), np.nextafter(tie, 0), -tie, 1e300, -np.inf])
    whole = np.array([3, -17, 10**6, -(2**62)])
    found = rlx.Session("cpu").compile(g).run({"x": values, "n": whole})
    most = float(ml_dtypes.finfo(dt.numpy).max)
    expected = [1.0, 1 + step, 1.0, -1.0, most, -most]
    np.testing.assert_array_equal(found[0].astype(np.float32), expected)
    numbers = [a.astype(np.float32) for a in found[1:]]
    for a, b in zip(numbers, (np.clip(whole, -most, most), whole), strict=True):
        np.testing.assert_array_equal(a, b.astype(dt.numpy).astype(np.float32))
    for a, b in zip(found, rlx.interpret(g, {"x": values, "n": whole}), strict=True):
        np.testing.assert_array_equal(a.view("u1"), b.view("u1"))


@pytest.mark.parametrize("kind", KINDS)
def test_products_read_weights_as_they_are_stored(kind: str, tmp_path: Path) -> None:
    g = rlx.Graph()
    x, w = g.input("x", ["rows", 40]), g.param("w", [40, 24], kind)
    picked = g.gather(w, g.input("i", [3], "i64"), axis=0)
    chosen = g.where(picked.gt(g.full([], 0.5, kind)), picked, g.full([], -2.0, kind))
    g.set_outputs({"y": x @ w.cast("f32"), "kept": chosen, "same": picked.eq(picked)})
    path = tmp_path / "graph.mlir"
    rlx.save(g, path)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((40, 24)).astype(rlx.types.DTYPES[kind].numpy)
    weights[2, :3] = np.nan, -0.0, 2.0
    write_safetensors(tmp_path / "w.safetensors", {"w": weights})
    stored = SafeTensors(tmp_path / "w.safetensors")["w"]
    np.testing.assert_array_equal(stored.view(np.uint8), weights.view(np.uint8))
    compiled = rlx.Session("cpu").compile(rlx.load(path))
    compiled.set_param("w", stored)
    for rows in (1, 7):
        feeds = {"x": rng.standard_normal((rows, 40), np.float32), "i": np.array([2, 0, 39])}
        found = compiled.run(feeds)
        expected = feeds["x"].astype(np.float64) @ weights.astype(np.float64)
        np.testing.assert_allclose(found["y"], expected, rtol=2e-5, atol=2e-5)
        wide = weights[feeds["i"]].astype(np.float32)
        np.testing.assert_array_equal(
            found["kept"].astype(np.float32), np.where(wide > 0.5, wide, -2)
        )
        np.testing.assert_array_equal(found["same"], ~np.isnan(wide))
    assert "cast+matmul" in str(compiled.reports[0]), "the product reads bytes"


def test_elements_go_through_text_and_artifacts(tmp_path: Path) -> None:
    every = np.arange(256, dtype=np.uint8)
    g = rlx.Graph()
    tables = [every.view(rlx.types.DTYPES[k].numpy) for k in KINDS]
    once = [np.full(3, n, np.uint8).view(t.dtype) for t in tables for n in (0x7F, 0x83)]
    x = g.input("x", [256], KINDS[0])
    g.set_outputs([g.constant(a).bitcast("u8") for a in (*tables, *once)] + [x])
    text = tmp_path / "graph.mlir"
    rlx.save(g, text)
    artifact = rlx.compile_artifact(rlx.load(text), "cpu")
    found = Executable(Artifact.from_bytes(bytes(artifact))).run_slots(tables[0])
    for a, b in zip(found, (*tables, *once, tables[0]), strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    assert found[len(found) - 1].dtype == ml_dtypes.float8_e4m3fn


def test_onnx_models_hold_them(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    g = rlx.Graph()
    x = g.input("x", [4, 3])
    small = [x.cast(k, saturate=s) for k in KINDS for s in (True, False)]
    moved = [g.concat([s, s.flip([0])], axis=0)[1:6].transpose([1, 0]) for s in small]
    g.set_outputs(
        [*moved, *(m.cast("i8") for m in moved), moved[0].gt(moved[1]), x.gt(0.0).cast(KINDS[0])]
    )
    model = rlx.to_onnx(g, tmp_path / "m.onnx")
    rows = np.array([[1e9, -1e9, np.inf], [np.nan, 0.3, -0.0], [449, 464, 465], [61440, 7, 300]])
    feeds = {"x": rows.astype(np.float32)}
    for a, b in zip(
        rlx.interpret(rlx.from_onnx(model), feeds), rlx.interpret(g, feeds), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.astype(np.float32), b.astype(np.float32))


def test_stablehlo_converts_as_xla_does() -> None:
    pytest.importorskip("torch_mlir")
    g = rlx.from_stablehlo("""module { func.func @main(%a: tensor<3x4xf8E4M3FN>,
      %w: tensor<4x2xf8E5M2>, %x: tensor<3xf32>)
      -> (tensor<3x2xf32>, tensor<3xf8E5M2>, tensor<2xf8E4M3FN>) {
    %c = stablehlo.constant dense<[1.5, 0x7F]> : tensor<2xf8E4M3FN>
    %r = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<3x4xf8E4M3FN>, tensor<4x2xf8E5M2>) -> tensor<3x2xf32>
    %y = stablehlo.convert %x : (tensor<3xf32>) -> tensor<3xf8E5M2>
    return %r, %y, %c : tensor<3x2xf32>, tensor<3xf8E5M2>, tensor<2xf8E4M3FN> } }""")
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 4)).astype(ml_dtypes.float8_e4m3fn)
    w = rng.standard_normal((4, 2)).astype(ml_dtypes.float8_e5m2)
    given = (a, w, np.array([1e6, -0.3, np.inf], np.float32))
    found = rlx.interpret(g, {str(v.name): x for v, x in zip(g.inputs, given, strict=True)})
    np.testing.assert_allclose(found[0], a.astype(np.float64) @ w.astype(np.float64), rtol=1e-6)
    np.testing.assert_array_equal(found[1].astype(np.float32), [np.inf, -0.3125, np.inf])
    np.testing.assert_array_equal(found[2].astype(np.float32), [1.5, np.nan])


def test_torch_converts_as_itself() -> None:
    torch = pytest.importorskip("torch")

    class Small(torch.nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.kind, self.w = kind, torch.nn.Buffer(torch.arange(6.0).reshape(3, 2).to(kind))

        def forward(self, x: Any) -> Any:
            return x.to(self.kind), x @ self.w.float(), torch.cat([self.w, self.w]).transpose(0, 1)

    x = torch.tensor([[1e6, -449.0, 61440.0], [-torch.inf, 0.3, 465.0]])
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        model = Small(kind)
        found = rlx.interpret(rlx.from_torch(model, x), {"x": x.numpy()})
        for a, b in zip(found, model(x), strict=True):
            np.testing.assert_array_equal(a.astype(np.float32), b.float().numpy())


def test_what_is_refused() -> None:
    g = rlx.Graph()
    a, b = g.input("a", [2], "f8e4m3fn"), g.input("b", [2], "f8e5m2")
    with pytest.raises(DTypeError, match="f8e4m3fn and f8e5m2 have no common type; cast"):
        a.eq(b)
    with pytest.raises(DTypeError, match=r"found f8e4m3fn\. Cast the operand first"):
        a + a
    with pytest.raises(DTypeError, match=r"takes no 8-bit floats; found f8e5m2\. Cast"):
        b.sort(axis=0)
    with pytest.raises(UnsupportedError, match="no derivative of a cast from f8e5m2 to f32"):
        loss = rlx.Graph()
        loss.set_outputs([loss.input("x", [2]).cast("f8e5m2").cast("f32").sum()])
        rlx.autodiff.grad(loss, "x")
    g = rlx.Graph()
    a, n = g.input("a", [2], "f8e4m3fn"), g.input("n", [2], "u8")
    g.set_outputs([a.flip([0]), n.flip([0])])
    f = rlx.Session("cpu").compile(g)
    small, bits = np.ones(2, ml_dtypes.float8_e4m3fn), np.ones(2, np.uint8)
    with pytest.raises(DTypeError, match="'a' is f8e4m3fn, found uint8"):
        f.run({"a": bits, "n": bits})
    with pytest.raises(DTypeError, match="'n' is u8, found float8_e4m3fn"):
        f.run({"a": small, "n": small})
    np.testing.assert_array_equal(f.run({"a": small, "n": bits})[0], small)


def test_weights_in_8_bits_are_constants_of_derivatives() -> None:
    g = rlx.Graph()
    x, w = g.input("x", [3]), g.input("w", [3], "f8e4m3fn")
    g.set_outputs([(x * w.cast("f32")).sum()])
    values = np.array([1, -2, 0.5], ml_dtypes.float8_e4m3fn)
    found = rlx.interpret(rlx.autodiff.grad(g, "x"), {"x": np.ones(3, np.float32), "w": values})
    np.testing.assert_array_equal(found[0], values.astype(np.float32))


@pytest.mark.parametrize("saturate", [(True, True), (False, False), (True, False)])
def test_products_that_share_an_input_keep_their_casts(saturate: tuple[bool, bool]) -> None:
    g = rlx.Graph()
    x = g.input("x", [4, 8])
    weights = [g.param(name, [8, 16]) for name in ("v", "w")]
    made = [(x @ w).cast("f8e5m2", saturate=s) for s, w in zip(saturate, weights, strict=True)]
    g.set_outputs([y.cast("f32") * 1.0 for y in made])
    f = rlx.Session("cpu").compile(g)
    values = {"v": np.full((8, 16), 3e4, np.float32), "w": np.full((8, 16), -3e4, np.float32)}
    for name, value in values.items():
        f.set_param(name, value)
    feeds = {"x": np.ones((4, 8), np.float32)}
    wanted = rlx.interpret(g, {**feeds, **values})
    for a, b in zip(f.run(feeds), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_f32_that_is_made_of_a_param_is_said() -> None:
    for turned, made in ((False, {}), (True, {"f8e4m3fn": 64 * 32 * 4})):
        g = rlx.Graph("said")
        w = g.param("w", [32, 64] if turned else [64, 32], "f8e4m3fn").cast("f32")
        g.set_outputs(g.input("x", [4, 64]) @ (w.transpose() if turned else w))
        found = rlx.Session("cpu").compile(g).reports[0].compilation.dispatch
        assert found.decoded == made
