"""Products of operands that are stored in fewer bits: what is below a widening cast is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.kernels.matmul.dot import group_of
from rlx.kernels.matmul.pack import packed_bytes
from rlx.runtime.session import CompiledGraph
from rlx.targets.cpu.target import kernel_target
from rlx.types import bf16, f16, f32, i8, u8
from support import products
from support.jit import host

Array = np.ndarray[Any, Any]

TARGET = kernel_target(host())


def values(seed: int, shape: tuple[int, ...], dt: rlx.DType = f32) -> Array:
    return products.values(np.random.default_rng(seed), shape, dt)


def native(f: CompiledGraph) -> set[str]:
    return set(f.reports[0].compilation.dispatch.native)


def packed(f: CompiledGraph) -> int:
    executable = f._bound.get(())
    assert executable is not None
    return executable.artifact.variants[0].packed_bytes


def same(f: CompiledGraph, feeds: dict[str, Array], bound: float = 0.0) -> None:
    want = rlx.Session("interpret").compile(f.graph)
    for name, a in f._params.items():
        want.set_param(name, a)
    for found, reference in zip(f.run(feeds), want.run(feeds), strict=True):
        assert found.dtype == reference.dtype
        error = np.abs(found.astype(np.float64) - reference.astype(np.float64))
        assert error.max() <= bound, error.max()


@pytest.mark.parametrize("dt", [bf16, f16, i8, u8], ids=str)
@pytest.mark.parametrize("m", [1, 5, 40])
def test_small_weights_stay_small(m: int, dt: rlx.DType) -> None:
    """f32 rows times weights of fewer bits, one scale a column: one kernel, no copy in f32."""
    g = rlx.Graph("weights")
    x = g.input("x", [m, 96])
    w = g.param("w", [96, 64], dt, value=values(0, (96, 64), dt))
    scale = g.param("s", [64], value=values(1, (64,)))
    g.set_outputs([(x @ w.cast("f32")) * scale])
    f = rlx.Session().compile(g)
    assert native(f) == {"contraction: cast+matmul+expand+mul"}
    assert packed(f) == packed_bytes(TARGET, dt, 96, 64)
    same(f, {"x": values(2, (m, 96))}, 1e-5 * (255 if dt.is_int else 1))


@pytest.mark.parametrize("left", [i8, u8], ids=str)
@pytest.mark.parametrize("right", [i8, u8], ids=str)
@pytest.mark.parametrize("k, scaled", [(64, False), (30, False), (64, True)])
def test_integers_sum_in_32_bits(left: rlx.DType, right: rlx.DType, k: int, scaled: bool) -> None:
    """Exact, also where a K of 30 makes no groups; a scale and a rounding are the epilogue."""
    g = rlx.Graph("integers")
    x = g.input("x", [9, k], left)
    w = g.param("w", [k, 50], right, value=values(0, (k, 50), right))
    sums = x.cast("i32") @ w.cast("i32")
    if scaled:
        sums = (sums.cast("f32") * g.param("s", [50], value=values(1, (50,)))).round().cast("i8")
    g.set_outputs([sums])
    f = rlx.Session().compile(g)
    epilogue = "+cast+expand+mul+round+cast" if scaled else ""
    assert native(f) == {f"contraction: cast+cast+matmul{epilogue}"}
    same(f, {"x": values(2, (9, k), left)})


@pytest.mark.parametrize("left", [i8, u8], ids=str)
@pytest.mark.parametrize("right", [i8, u8], ids=str)
@pytest.mark.parametrize("m, k", [(1, 64), (9, 30), (20, 64)])
def test_integers_sum_in_floats(left: rlx.DType, right: rlx.DType, m: int, k: int) -> None:
    """Where the product is one of f32; these sums are exact."""
    g = rlx.Graph("floats")
    x = g.input("x", [m, k], left)
    w = g.param("w", [k, 50], right, value=values(0, (k, 50), right))
    g.set_outputs([(x.cast("f32") @ w.cast("f32")) * 0.5])
    f = rlx.Session().compile(g)
    assert native(f) == {"contraction: cast+cast+matmul+constant+mul"}
    same(f, {"x": values(2, (m, k), left)})


def test_other_integer_products_read_what_is_cast() -> None:
    g = rlx.Graph("integers")
    x = g.input("x", [4, 8], "i32")
    w = g.param("w", [8, 4], "i8", value=values(0, (8, 4), i8))
    g.set_outputs([x @ w.cast("i32")])
    f = rlx.Session().compile(g)
    assert "integer_contraction: matmul" in native(f)
    same(f, {"x": values(1, (4, 8), i8).astype(np.int32)})


def test_rounded_weights_have_one_copy() -> None:
    """An f32 param under precision bf16 is rounded as it is packed."""
    g = rlx.Graph("rounded")
    x = g.input("x", [4, 96])
    w = g.param("w", [64, 96], value=values(0, (64, 96)))
    g.set_outputs([x @ w.T])
    f = rlx.Session(precision="bf16").compile(g)
    assert packed(f) == packed_bytes(TARGET, bf16, 96, 64)
    assert native(f) == {"contraction: cast+cast+matmul", "elementwise: cast"}
    same(f, {"x": values(1, (4, 96))}, 1e-5)
    f.set_param("w", values(5, (64, 96)))
    same(f, {"x": values(1, (4, 96))}, 1e-5)


def test_products_of_one_input_share_their_stored_weights() -> None:
    g = rlx.Graph("shared")
    x = g.input("x", [4, 96])
    parts = [
        x @ g.param(f"w{i}", [96, 64], value=values(i, (96, 64)))
        + g.param(f"b{i}", [64], value=values(9, (64,)))
        for i in range(3)
    ]
    q, k, v = (p.reshape([1, 4, 64]) for p in parts)
    g.set_outputs(
        [
            q.attention(k, v, num_heads=2).reshape([4, 64])
            @ g.param("o", [64, 8], value=values(4, (64, 8)))
        ]
    )
    f = rlx.Session(precision="bf16").compile(g)
    assert f.reports[0].compilation.fusion.fused["shared-input matmuls"] == 1
    weights = sum(packed_bytes(TARGET, bf16, *s) for s in ((96, 192), (64, 8)))
    assert weights <= packed(f) <= weights + 2 * 192 * 4  # and the biases
    same(f, {"x": values(5, (4, 96))}, 0.02)


def test_a_cast_that_others_read_too() -> None:
    """The product reads what is below; the others have the cast for themselves."""
    g = rlx.Graph("both")
    x = g.input("x", [4, 8], "bf16")
    wide = x.cast("f32")
    y = wide @ g.param("w", [8, 8], value=values(0, (8, 8)))
    g.set_outputs([y + wide, wide.sum(-1), y @ wide.T])
    f = rlx.Session().compile(g)
    same(f, {"x": values(1, (4, 8), bf16)}, 3e-6)
    g.set_outputs([y + wide])
    assert native(rlx.Session().compile(g)) == {"contraction: cast+matmul+add"}


@pytest.mark.parametrize("types", [(i8, u8), (u8, u8)], ids=str)
@pytest.mark.parametrize("zeros", ["none", "one", "rows", "both"])
def test_zero_points(types: tuple[rlx.DType, rlx.DType], zeros: str) -> None:
    """The product is of bytes, whatever is taken off; what is so of weights is found once."""
    a_type, b_type = types
    g = rlx.Graph("zeros")
    x, w = g.input("x", [3, 9, 64], a_type), g.param("w", [64, 50], b_type)
    shape = {"rows": (9,), "both": (9, 1)}.get(zeros, ())
    a_zero, b_zero = values(3, shape, a_type), values(4, (50,), b_type)
    y = x.matmul_integer(
        w,
        None if zeros == "none" else g.constant(a_zero, a_type),
        g.constant(b_zero, b_type) if zeros == "both" else None,
    )
    g.set_outputs([y])
    f = rlx.Session().compile(g)
    f.set_param("w", b := values(1, (64, 50), b_type))
    assert any("cast+cast+matmul" in n for n in native(f)), native(f)
    feeds = {"x": (a := values(2, (3, 9, 64), a_type))}
    left, right = a.astype(np.int32), b.astype(np.int32)
    if zeros != "none":
        left = left - (a_zero.reshape(9, 1) if shape else a_zero).astype(np.int32)
    if zeros == "both":
        right = right - b_zero.astype(np.int32)
    assert (f.run(feeds)[0] == left @ right).all()
    same(f, feeds)


def test_one_cast_below_two_products() -> None:
    g = rlx.Graph("two")
    x = g.input("x", [4, 8], "bf16").cast("f32")
    a, b = (g.input(n, [8, 8], "bf16").cast("f32") for n in "ab")
    g.set_outputs([(x @ a).tanh(), x @ b, x @ a])
    f = rlx.Session().compile(g)
    assert not any(n.startswith("elementwise: cast") for n in native(f))
    same(
        f,
        {
            n: values(i, s, bf16)
            for i, (n, s) in enumerate([("x", (4, 8)), ("a", (8, 8)), ("b", (8, 8))])
        },
        1e-6,
    )


@pytest.mark.parametrize("k", [6, 7])
@pytest.mark.parametrize("shape", [(3,), (1,), ()])
def test_batches(k: int, shape: tuple[int, ...]) -> None:
    """The declared bf16 product takes groups too; it rounds once."""
    g = rlx.Graph("batch")
    x, y = g.input("x", [3, 5, k], "bf16"), g.input("y", [*shape, k, 70], "bf16")
    g.set_outputs([x @ y, x.cast("f32") @ y.cast("f32")])
    f = rlx.Session().compile(g)
    same(f, {"x": values(0, (3, 5, k), bf16), "y": values(1, (*shape, k, 70), bf16)}, 2**-7)


@pytest.mark.parametrize("options", [{"dispatch": "common"}, {"fuse": False}], ids=str)
def test_without_regions(options: dict[str, Any]) -> None:
    g = rlx.Graph("plain")
    w = g.param("w", [8, 8], "i8", value=values(0, (8, 8), i8))
    g.set_outputs([g.input("x", [4, 8]) @ w.cast("f32")])
    same(rlx.Session().compile(g, **options), {"x": values(1, (4, 8))}, 1e-4)


def test_this_machine_takes_groups_where_it_can() -> None:
    """A product of bf16 is launched with the group that the CPU has."""
    g = rlx.Graph("group")
    g.set_outputs([g.input("x", [4, 8], "bf16") @ g.input("y", [8, 8], "bf16")])
    lir = rlx.GraphModule.of(g).to("lir").located
    assert lir.count(f"group = {group_of(TARGET, bf16, bf16)} : i64") == 2


AMX = "cpu:x86-64-v4+amx-bf16+amx-int8+amx-tile"


@pytest.mark.parametrize("k, by_amx", [(64, True), (48, False)])
@pytest.mark.parametrize("dt", ["bf16", "i8"])
def test_amx_where_the_target_has_it(k: int, by_amx: bool, dt: str) -> None:
    g = rlx.Graph("amx")
    x, y = g.input("x", [4, k], dt), g.input("y", [k, 8], dt)
    wide = "f32" if dt == "bf16" else "i32"
    g.set_outputs([x.cast(wide) @ y.cast(wide)])
    lir = rlx.GraphModule.of(g).to("lir", AMX).located
    assert ("amx = true" in lir) is by_amx and ("amx = false" in lir) is not by_amx


def test_an_artifact_has_a_variant_with_amx_and_one_without() -> None:
    g = rlx.Graph("variants")
    g.set_outputs([g.input("x", [4, 64]) @ g.param("w", value=values(0, (64, 8)))])
    artifact = rlx.compile_artifact(g, [AMX, "cpu"], precision="bf16")
    assert "amx-bf16" in artifact.variants[0].features
    feeds = {"x": values(1, (4, 64))}
    found = rlx.Session().load(artifact).run(feeds)[0]
    exact = feeds["x"].astype(np.float64) @ g.param_values["w"]
    assert 1e-5 < np.abs(found - exact).max() < 0.05
