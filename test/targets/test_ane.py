"""Core ML packages: written by coremltools, read back by Apple's reader, and run by Apple's own
rules for NumPy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler import core_ml
from rlx.errors import (
    DeviceError,
    FaultError,
    NameError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from rlx.runtime.devices.whole_executable import WholeBackend
from rlx.targets.ane import launch
from rlx.targets.ane.emit import EXTRA, input_names, output_names
from rlx.targets.ane.features import best, preset
from rlx.targets.ane.launch import AneDriver
from rlx.targets.ane.package import packed
from rlx.tools.opt import main
from support.tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore")

needs_coremltools = pytest.mark.skipif(
    find_spec("coremltools") is None, reason="the package coremltools is not installed"
)


def _model() -> rlx.Graph:
    g = rlx.Graph("model")
    x = g.param("table", [5, 8]).gather(g.input("ids", [4], "i32"))
    q = x.reshape([1, 2, 4, 4])
    y = q.attention(q, q, mask_kind="causal", layout="bhsd").reshape([4, 8])
    y = y.layer_norm(g.param("scale.w", [8]), g.param("shift", [8]))
    image = y.reshape([1, 2, 4, 4]).conv(g.param("k", [2, 2, 3, 3]), padding=1).relu()
    g.set_outputs([y, image, y.gt(0.0), y.sum()])
    return g


def _params() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"table": (5, 8), "scale.w": (8,), "shift": (8,), "k": (2, 2, 3, 3)}
    return {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}


IDS = {"ids": np.array([0, 4, -1, 2], "i4")}


class Wide(AneDriver):
    """The rules for NumPy as Core ML, with packages in f32."""

    features = frozenset(["iOS17-f32"])


@needs_coremltools
def test_a_package_means_what_the_graph_does() -> None:
    from support.core_ml import predictor

    made = WholeBackend("ane", Wide(predictor)).load(_model(), {}, ())
    for name, value in _params().items():
        made.set_param(name, value)
    expected = rlx.interpret(_model(), {**IDS, **_params()})
    for a, b in zip(made.run_slots(*IDS.values()), expected, strict=True):
        assert_close(a, b)
    with pytest.raises(FaultError, match="out of range for axis 0 of 5"):
        made.run_slots(np.array([0, 5, 0, 0], "i4"))


@needs_coremltools
def test_an_artifact_says_which_ops_would_leave_the_engine(tmp_path: Path) -> None:
    artifact = rlx.compile_artifact(_model(), "ane", params=_params())
    artifact.save(tmp_path / "model.rlx")
    said = rlx.Artifact.load(tmp_path / "model.rlx").extras["iOS17/residency"].decode()
    assert "by Apple's guidance, unverified" in said
    assert "gather x 1: it reads or writes by index" in said and "it gives no f16" in said
    assert artifact.variants[0].features == "iOS17"
    plain = rlx.Graph("plain")
    plain.set_outputs([plain.input("x", [2, 8, 5, 20000], "f16").reshape([2, 2, 4, 5, 20000])])
    said = rlx.compile_artifact(plain, "ane:iOS18").extras["iOS18/residency"].decode()
    assert "it gives 5 axes" in said


@needs_coremltools
def test_what_core_ml_lacks_is_refused() -> None:
    g = rlx.Graph("refused")
    x, n = g.input("x", [2, 3]), g.input("n", [2, 3], "i32")
    gaps = g.input("image", [1, 1, 5]).conv(g.input("w", [1, 1, 2]), dilation=2)
    six = x.reshape([1, 1, 1, 1, 2, 3]).exp()
    g.set_outputs([n.bitwise_xor(n), x.copysign(x), gaps, six, rlx.fori(2, lambda i, v: v + v, x)])
    with pytest.raises(UnsupportedError) as e:
        rlx.compile_artifact(g, "ane")
    for said in (
        "Core ML has no xor of i32", "no way to the bits", "whose weights are no literal",
        "6 axes, of which Core ML has 5", "there is no control flow",
    ):  # fmt: skip
        assert said in e.value.message
    wide = rlx.Graph("wide")
    wide.set_outputs([wide.input("x", [2], "f64").exp().sort(0)])
    with pytest.raises(UnsupportedError, match="f64: Core ML's programs compute with f16, f32"):
        rlx.compile_artifact(wide, "ane")


@needs_coremltools
def test_what_is_spread_is_full_where_an_op_needs_it() -> None:
    """Pointwise ops and products repeat elements themselves, but the condition of a select alone
    gives its result no shape; sums, joins and boxes take what is there."""
    from support.core_ml import predictor

    g = rlx.Graph("spread")
    x, y = g.input("x", [2, 3, 4]), g.input("y", [1, 1, 4])
    wide, line = y.expand([2, 3, 4]), g.input("line", [3, 1])
    g.set_outputs([
        x.gt(0.0).where(y, 1.0), x.gt(0.0).where(2.0, 1.0), wide, wide.sum(axes=[0, 1]),
        g.concat([wide, x], axis=1), wide.narrow(2, 1, 2), wide.flip([1]), wide.reshape([6, 4]),
        wide.transpose([2, 0, 1]), (wide * 2.0).gt(0.0), x @ g.input("w", [4, 5]),
        line.expand([3, 4]) @ g.input("v", [4, 1]), wide.softmax(axis=1), wide.cast("i32") // 3,
    ])  # fmt: skip
    rng = np.random.default_rng(1)
    feeds = {str(v.name): rng.standard_normal(v.shape).astype("f4") * 3 for v in g.inputs}
    made = WholeBackend("ane", Wide(predictor)).load(g, {}, ())
    for a, b in zip(made.run_slots(*feeds.values()), rlx.interpret(g, feeds), strict=True):
        assert_close(a, b)


@needs_coremltools
def test_what_is_empty_is_neither_taken_nor_given() -> None:
    """Core ML has no empty tensors: a program leaves them out, and what they are folded to is
    known."""
    from support.core_ml import predictor

    g = rlx.Graph("parts")
    x, none = g.input("x", [3, 2]), g.input("none", [0, 2])
    flags = x.gt(0.0)
    g.set_outputs([
        none.exp(), g.concat([none, x], axis=0), none.sum(axes=0), x.narrow(0, 1, 0).transpose(),
        none.softmax(axis=1), flags.gt(x.lt(0.5)), none.pad((1, 0), (1, 0)),
    ])  # fmt: skip
    feeds = {"x": np.arange(-2, 4, dtype="f4").reshape(3, 2), "none": np.zeros((0, 2), "f4")}
    made = WholeBackend("ane", Wide(predictor)).load(g, {}, ())
    for a, b in zip(made.run_slots(*feeds.values()), rlx.interpret(g, feeds), strict=True):
        assert a.shape == b.shape
        assert_close(a, b)
    all_empty = rlx.Graph("empty")
    all_empty.set_outputs([all_empty.input("x", [0, 2]).exp()])
    made = WholeBackend("ane", Wide(predictor)).load(all_empty, {}, ())
    assert made.run_slots(np.zeros((0, 2), "f4"))[0].shape == (0, 2)


@needs_coremltools
def test_rlx_opt_shows_the_program(tmp_path: Path) -> None:
    source, out = tmp_path / "in.mlir", tmp_path / "out.mil"
    source.write_text(str(rlx.GraphModule.of(_model())), encoding="utf-8")
    assert main([str(source), "--emit=mil", "--target=ane:iOS16", "-o", str(out)]) == 0
    assert "matmul" in out.read_text(encoding="utf-8")


# -- packages with their weights -----------------------------------------------------------


def _dense(held: bool = False) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A dense layer, whose weight is in few bits, as is neither a term that is as large nor a
    convolution of fewer elements; ``held``:
    the graph has the values."""
    rng = np.random.default_rng(3)
    shapes = {"w": (64, 96), "b": (32, 96), "c": (8, 6, 3, 3)}
    params = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    g = rlx.Graph("dense")
    x, (w, b, c) = (
        g.input("x", [32, 64]),
        (g.param(n, s, value=params[n] if held else None) for n, s in shapes.items()),
    )
    g.set_outputs([(x @ w + b).reshape([32, 6, 4, 4]).conv(c, padding=1), x.sum()])
    return g, params


X = np.random.default_rng(4).standard_normal((32, 64)).astype("f4")


def _check_package(package: rlx.ane.Package, decoded: np.ndarray, least: float) -> None:
    """It computes what the graph does with the weight that Apple's rule decodes."""
    from support.core_ml import predictor

    graph, params = _dense()
    found = list(predictor(package.path)({"x": X}).values())
    want = rlx.interpret(graph, {"x": X}, {**params, "w": decoded.astype("f4")})
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=least, atol=least * 50)


@needs_coremltools
def test_weights_of_8_bits_have_a_scale_for_each_output(tmp_path: Path) -> None:
    from support.core_ml import weights_of

    graph, params = _dense()
    plain = rlx.ane.export_ane(graph, tmp_path / "f32.mlpackage", params, target="ane:iOS17-f32")
    made = rlx.ane.export_ane(
        graph, tmp_path / "m.mlpackage", params, target="ane:iOS17-f32", weights="int8"
    )
    assert (plain.few, plain.whole, made.few, made.whole) == (0, 1, 1, 0)
    assert plain.bytes - made.bytes > 64 * 96 * 2.5
    assert made.bytes == sum(f.stat().st_size for f in made.path.rglob("*") if f.is_file())
    ((kind, decoded),) = weights_of(made.path)
    assert kind == "constexpr_affine_dequantize"
    step = np.abs(params["w"]).max(0) / 127
    off = np.abs(decoded - params["w"])
    assert (off <= step * 0.502).all() and off.max() > step.min() * 0.4
    _check_package(plain, params["w"], 1e-5)
    _check_package(made, decoded, 1e-5)
    assert "constexpr" not in made.residency


@needs_coremltools
def test_palettes_are_better_than_grids(tmp_path: Path) -> None:
    from support.core_ml import weights_of

    graph, params = _dense()
    for bits in (2, 4):
        path = tmp_path / "m.mlpackage"  # written over
        made = rlx.ane.export_ane(
            graph, path, params, target="ane:iOS17-f32", weights=f"palette{bits}"
        )
        ((kind, decoded),) = weights_of(path)
        assert kind == "constexpr_lut_to_dense" and len(np.unique(decoded)) == 2**bits
        w = params["w"]
        step = (w.max() - w.min()) / (2**bits - 1)
        grid = np.rint((w - w.min()) / step) * step + w.min()
        assert np.square(decoded - w).mean() < np.square(grid - w).mean()
        _check_package(made, decoded, 1e-5)


@needs_coremltools
def test_weights_of_4_bits_have_a_scale_for_32_elements(tmp_path: Path) -> None:
    from support.core_ml import weights_of

    graph, params = _dense()
    made = rlx.ane.export_ane(
        graph, tmp_path / "m.mlpackage", params, target="ane:iOS18", weights="int4"
    )
    ((kind, decoded),) = weights_of(made.path)
    assert kind == "constexpr_blockwise_shift_scale"
    blocks = params["w"].reshape(2, 32, 96)
    step = np.abs(blocks).max(1, keepdims=True) / 7
    off = np.abs(decoded.astype("f4").reshape(blocks.shape) - blocks)
    assert (off <= step * 0.51).all()
    _check_package(made, decoded, 4e-3)


@needs_coremltools
def test_the_command_writes_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rlx.tools.cli import main as rlx_command

    graph, _ = _dense(held=True)
    rlx.save(graph, tmp_path / "m.mlir")
    words = ["compile", str(tmp_path / "m.mlir"), "-o", str(tmp_path / "m.mlpackage")]
    assert rlx_command([*words, "--weights", "palette4"]) == 0
    assert "1 weights in few bits, 0 as they are" in capsys.readouterr().err


def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rlx.tools.cli import main as rlx_command

    graph, _ = _dense(held=True)
    rlx.save(graph, tmp_path / "m.mlir")
    package, artifact = tmp_path / "m.mlpackage", tmp_path / "m.rlx"
    package.mkdir()
    for output, more, said in (
        (package, [], "is there already"),
        (package, ["--force", "--precision", "f16"], "takes no further precision"),
        (package, ["--force", "--target", "ane", "--target", "ane:iOS16"], "no further target"),
        (artifact, ["--target", "ane", "--weights", "int8"], "--weights is of packages"),
        (artifact, ["--target", "ane", "--dim", "n=1,2"], "a list of sizes, as n has, is of"),
    ):
        words = ["compile", str(tmp_path / "m.mlir"), "-o", str(output)]
        assert rlx_command([*words, *more]) == 1
        assert said in capsys.readouterr().err


# -- packages of several sizes --------------------------------------------------------------


def _sized() -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A layer on rows of a named batch and length, whose mask and mean are numbers of the size."""
    rng = np.random.default_rng(5)
    params = {n: rng.standard_normal(s).astype("f4") for n, s in (("w", (64, 96)), ("b", (96,)))}
    g = rlx.Graph("sized")
    x = g.input("x", ["batch", "tokens", 64])
    h = x @ g.param("w", [64, 96]) + g.param("b", [96])
    g.set_outputs([h.attention(h, h, num_heads=4, mask_kind="causal"), h.mean(axes=1)])
    return g, params


SIZES = [{"batch": 1, "tokens": 4}, {"tokens": 7, "batch": 2}, {"batch": 1, "tokens": 9}]


@needs_coremltools
def test_a_package_of_several_sizes_has_their_weights_once(tmp_path: Path) -> None:
    """Apple's reader gives a function for each size, which computes what the graph does there."""
    from support.core_ml import predictor, weights_of

    graph, params = _sized()
    words: dict[str, Any] = {"params": params, "target": "ane:iOS18-f32", "weights": "int8"}
    one = rlx.ane.export_ane(graph, tmp_path / "one.mlpackage", sizes=SIZES[:1], **words)
    made = rlx.ane.export_ane(graph, tmp_path / "m.mlpackage", sizes=SIZES, **words)
    assert one.functions == {"main": SIZES[0]}
    names = ["batch_1_tokens_4", "batch_2_tokens_7", "batch_1_tokens_9"]
    assert list(made.functions) == names and list(made.functions.values()) == SIZES
    assert (made.few, made.whole) == (one.few, one.whole) == (1, 0)
    weights = "Data/com.apple.CoreML/weights/weight.bin"
    assert (made.path / weights).stat().st_size < (one.path / weights).stat().st_size + 1024
    assert [f"  {name}:" in made.residency for name in names] == [True] * 3
    assert names[0] not in one.residency
    (kind,) = weights_of(one.path)
    for name, sizes in made.functions.items():
        ((_, decoded),) = weights_of(made.path, name)
        np.testing.assert_array_equal(decoded, kind[1])
        x = np.random.default_rng(6).standard_normal((*sizes.values(), 64)).astype("f4")
        x = x.reshape(sizes["batch"], sizes["tokens"], 64)
        found = predictor(made.path, name)({"x": x}).values()
        held = {**params, "w": decoded.reshape(64, 96).astype("f4")}
        for a, b in zip(found, rlx.interpret(graph.bind(sizes), {"x": x}, held), strict=True):
            np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-5, atol=1e-5)


@needs_coremltools
def test_core_ml_names_the_function_of_a_size(tmp_path: Path) -> None:
    """The file says which functions there are, and which runs where none is named."""
    from rlx.targets.ane.words import coremltools

    g = rlx.Graph("plain")
    g.set_outputs([g.input("x", ["n", 3]).exp()])
    path = tmp_path / "m.mlpackage"
    rlx.ane.export_ane(g, path, target="ane:iOS18", sizes=[{"n": 5}, {"n": 2}])
    told = coremltools().utils.load_spec(str(path)).description
    assert told.defaultFunctionName == "n_5"
    shapes = {f.name: list(f.input[0].type.multiArrayType.shape) for f in told.functions}
    assert shapes == {"n_5": [5, 3], "n_2": [2, 3]}


@needs_coremltools
def test_the_command_writes_every_combination_of_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlx.tools.cli import main as rlx_command

    g = rlx.Graph("plain")
    g.set_outputs([g.input("x", ["n", "m"]).exp()])
    rlx.save(g, tmp_path / "m.mlir")
    words = ["compile", str(tmp_path / "m.mlir"), "-o", f"{tmp_path}/m.mlpackage/"]
    more = ["--dim", "n=1,2", "--dim", "m=3,4", "--target", "ane:iOS18"]
    assert rlx_command([*words, *more]) == 0
    assert "functions: m_3_n_1, m_4_n_1, m_3_n_2, m_4_n_2" in capsys.readouterr().err
    assert (tmp_path / "m.mlpackage" / "Manifest.json").is_file()


def test_sizes_that_no_package_has(tmp_path: Path) -> None:
    graph, params = _sized()
    bounded = rlx.Graph("bounded")
    bounded.set_outputs([bounded.input("x", [rlx.Dim("n", 1, 8)]).exp()])
    table = rlx.Graph("table")
    table.set_outputs([table.input("x", ["n"]) + table.param("t", ["n"])])
    path = tmp_path / "m.mlpackage"

    def export(sizes: Any, g: rlx.Graph = graph, target: str = "ane:iOS18", **given: Any) -> None:
        rlx.ane.export_ane(g, path, given or params, target=target, sizes=sizes)

    for sizes, said in (
        ([], "dims without sizes: batch, tokens; bind them"),
        ({"batch": 1, "tokens": 4}, "a list with a mapping of dims to sizes each, found {'batch'"),
        (5, "a list with a mapping of dims to sizes each, found 5"),
        ([{"batch": 1, "tokens": 4}, 5], r"sizes\[1\] is a mapping of dims to sizes, found 5"),
        ([*SIZES, {"tokens": 4}], r"sizes\[3\] has no size of batch; give one of each dim"),
        ([*SIZES, SIZES[1]], r"sizes\[3\] is sizes\[1\] again; leave it out"),
        ([{"batch": 1, "tokens": -4}], "the size of dim 'tokens' is an int >= 0, found -4"),
        ([{"batch": n, "tokens": 4} for n in range(129)], "128 sizes at most, found 129"),
    ):
        with pytest.raises(ShapeError, match=said):
            export(sizes)
    with pytest.raises(NameError, match="no dim is called 'token'; did you mean 'tokens'"):
        export([{"batch": 1, "token": 4}])
    with pytest.raises(ShapeError, match="'n' is from 1 to 8, found 9"):
        export([{"n": 1}, {"n": 9}], bounded)
    with pytest.raises(ShapeError, match="param 't'"):
        export([{"n": 1}, {"n": 2}], table, t=np.zeros(1, "f4"))
    with pytest.raises(UnsupportedError, match=r"a package of 3 sizes .* need iOS18, found iOS17"):
        export(SIZES, target="ane")
    assert not path.exists()


def test_what_no_package_can_be(tmp_path: Path) -> None:
    graph, params = _dense()
    path = tmp_path / "m.mlpackage"
    with pytest.raises(DeviceError, match="a package is for 'ane' or a system"):
        rlx.ane.export_ane(graph, path, params, target="cpu")
    with pytest.raises(UnsupportedError, match="no weights 'int5'; there are int8, int4, palette1"):
        rlx.ane.export_ane(graph, path, params, weights="int5")
    with pytest.raises(UnsupportedError, match="'palette3' need iOS18, found iOS17"):
        rlx.ane.export_ane(graph, path, params, weights="palette3")
    with pytest.raises(UnsupportedError, match="ane: the params b, c, w have no values"):
        rlx.ane.export_ane(graph, path)
    sized = rlx.Graph("sized")
    sized.set_outputs([sized.input("x", ["n"]).exp()])
    with pytest.raises(ShapeError, match=r"dims without sizes: n; bind them"):
        rlx.ane.export_ane(sized, path)
    assert not path.exists()
    for place in (tmp_path / "folder", tmp_path / "file"):
        kept = place / "kept" if place.name == "folder" else place
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("mine")
        with pytest.raises(RlxError, match="is there already, and is no package of Core ML"):
            rlx.ane.export_ane(graph, place, params)
        assert kept.read_text() == "mine"


def test_a_package_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, params = _dense()
    (tmp_path / "file").write_text("mine")
    made = SimpleNamespace(kernels=[SimpleNamespace(code=packed(tmp_path))])
    monkeypatch.setattr(core_ml, "compile_program", lambda *_: (made, None))
    with pytest.raises(RlxError, match=r"cannot write .*Not a directory"):
        rlx.ane.export_ane(graph, tmp_path / "file" / "m.mlpackage", params)


def test_names_are_identifiers_and_each_its_own() -> None:
    assert input_names(["a.b", "a_b", "1"]) == ["a_b", "a_b_1", "in_1"]
    assert output_names(["y", "0"]) == ["out_y", "out_in_0"]


def test_a_device_gets_its_system() -> None:
    assert best(["iOS16"]) == preset("iOS16") and best([]) == preset("iOS17")


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    if launch.sys.platform == "darwin":
        pytest.skip("it is a Mac")
    with pytest.raises(DeviceError, match="it needs a Mac, whose Core ML runs programs"):
        rlx.Session("ane")
    monkeypatch.setattr(launch.sys, "platform", "darwin")
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    assert launch.missing() == f"it needs coremltools: {EXTRA}"
    with pytest.raises(ToolchainError, match=r"needs coremltools; pip install 'rlx\[ane\]'"):
        rlx.compile_artifact(_model(), "ane")
