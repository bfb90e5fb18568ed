"""Graphs of floats as programs for Cortex-M, against the reference interpreter on the boards that
QEMU emulates."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import cortexm
from rlx.errors import (
    NameError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from rlx.ir.interpreter import interpret
from rlx.targets.cortexm import kernels
from support.cortexm_boards import needs_board, needs_cc, param

Array = np.ndarray[Any, Any]


def mlp() -> rlx.Graph:
    g = rlx.Graph("mlp")
    h = (g.input("x", [1, 37]) @ param(g, "w0", 37, 21) + param(g, "b0", 21)).gelu()
    g.set_outputs([(h @ param(g, "w1", 21, 5)).softmax()])
    return g


def cnn() -> rlx.Graph:
    """A batch norm, whose numbers the prologue computes, and a class."""
    g = rlx.Graph("cnn")
    h = g.input("x", [1, 3, 9, 8]).conv2d(param(g, "c0", 6, 3, 3, 3), padding=1)
    var = g.param("var", value=np.full(6, 0.5, np.float32))
    h = h.batch_norm(param(g, "mean", 6), var, param(g, "gamma", 6), param(g, "beta", 6)).relu()
    h = h.max_pool2d(2).flatten(1)
    g.set_outputs([h.argmax(axis=-1), h @ param(g, "w", 96, 3)])
    return g


def block() -> rlx.Graph:
    """Attention with a norm, of two inputs, one of whole numbers."""
    g, wide = rlx.Graph("block"), 16
    x = g.input("x", [1, 6, wide]) + param(g, "table", 9, wide).gather(g.input("i", [1, 6], "i32"))
    h = x.layer_norm(param(g, "gamma", wide), param(g, "beta", wide))
    q, k, v = ((h @ param(g, n, wide, wide)).reshape([1, 6, 2, 8]) for n in "qkv")
    y = q.attention(k, v, layout="bshd").reshape([1, 6, wide])
    g.set_outputs([x + y @ param(g, "o", wide, wide)])
    return g


def control() -> rlx.Graph:
    """A branch, a loop that ends by what it computes, and a scan over rows from the last on."""
    g = rlx.Graph("control")
    x, w = g.input("x", [4, 8]), param(g, "w", 8, 8)
    x = rlx.cond(x.sum() > 0.0, lambda v: v @ w, lambda v: (v - 1.0) @ w, x)
    n, x = rlx.while_loop(
        lambda n, v: (v * v).sum() > 1.0, lambda n, v: (n + 1, (v @ w).tanh() * 0.5),
        (g.constant(np.int32(0)), x),
    )  # fmt: skip
    last, ys = rlx.scan(lambda c, row: ((c + row).tanh(), c * row), x[0], x, reverse=True)
    g.set_outputs([n, last, ys])
    return g


def _feeds(graph: rlx.Graph, runs: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    found: dict[str, Array] = {}
    for v in graph.inputs:
        shape = (runs, *v.type.static_shape)
        whole = rng.integers(0, 9, shape) if v.dtype is rlx.DType.I32 else None
        made = rng.standard_normal(shape) if whole is None else whole
        found[str(v.name)] = made.astype(v.dtype.numpy)
    return found


@needs_board
@pytest.mark.parametrize(("core", "make"), [
    ("m0", mlp), ("m3", block), ("m4", cnn), ("m33", control), ("m55", block), ("m55", cnn),
])  # fmt: skip
def test_a_board_gives_what_the_interpreter_gives(
    core: str, make: Callable[[], rlx.Graph], tmp_path: Path
) -> None:
    graph, runs = make(), 2
    feeds = _feeds(graph, runs)
    firmware: Any = cortexm.export_cortexm(graph, tmp_path, target=f"cortexm:{core}")
    assert isinstance(firmware, cortexm.FloatFirmware)
    ran = firmware.run(feeds)
    for i in range(runs):
        want = interpret(graph, {n: a[i] for n, a in feeds.items()}, graph.param_values)
        for found, expected in zip(ran.outputs, want, strict=True):
            np.testing.assert_allclose(found[i], expected, rtol=1e-5, atol=1e-5)
    built = firmware.build()
    assert firmware.arena_bytes <= built.ram < firmware.arena_bytes + 16
    assert firmware.program.weight_bytes < built.flash < built.image
    assert ran.instructions > 0
    text = (tmp_path / "model.c").read_text()
    assert (
        "malloc" not in text
        and f"#define MODEL_ARENA_BYTES {firmware.arena_bytes}\n"
        in (tmp_path / "model.h").read_text()
    )


@needs_board
def test_a_fault_ends_the_run(tmp_path: Path) -> None:
    graph = block()
    feeds = _feeds(graph, 1)
    feeds["i"][0, 0, 3] = 9
    firmware: Any = cortexm.export_cortexm(graph, tmp_path)
    with pytest.raises(ToolchainError, match="qemu-system-arm failed:\nstopped by 5"):
        firmware.run(feeds)


@needs_cc
def test_functions_that_no_instruction_has_are_those_of_numpy(tmp_path: Path) -> None:
    source = Path(kernels.__file__).with_name("floats.c")
    library = tmp_path / "floats.so"
    words = ["cc", "-O2", "-std=c11", "-ffreestanding", "-Wall", "-Werror", "-shared", "-fPIC"]
    command = [*words, "-Wl,-Bsymbolic", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    own = ctypes.CDLL(str(library))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 3000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 8388607.5, 0.5, 1.5, 2.5, -0.5]
    with np.errstate(all="ignore"):
        x = np.concatenate([bits, np.arange(-9, 9, 0.25), ends]).astype(np.float32)
    rounded = {"roundevenf": np.rint, "rintf": np.rint, "nearbyintf": np.rint}
    single = {"truncf": np.trunc, "floorf": np.floor, "ceilf": np.ceil, "sqrtf": np.sqrt}
    pairs = {"fmaximumf": np.maximum, "fminimumf": np.minimum}
    assert {*rounded, *single, *pairs} == kernels.PROVIDED
    y = x[::-1]
    with np.errstate(all="ignore"):
        for name, function in {**rounded, **single}.items():
            _same(_mapped(own[name], x), function(x))
        for name, function in pairs.items():
            _same(_mapped(own[name], x, y), function(x, y))
        signs = np.array([0.0, -0.0], np.float32)
        np.testing.assert_array_equal(
            np.signbit(_mapped(own["fmaximumf"], signs, signs[::-1])), [False, False]
        )


def _mapped(function: Any, *operands: Array) -> Array:
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * len(operands)
    return np.array([function(*row) for row in zip(*operands, strict=True)], np.float32)


def _same(found: Array, want: Array) -> None:
    alike = found.view(np.uint32) == want.view(np.uint32)
    assert (alike | (np.isnan(found) & np.isnan(want)) | ((found == 0) & (want == 0))).all()


def test_what_is_refused(tmp_path: Path) -> None:
    g = rlx.Graph("open")
    g.set_outputs([g.input("x", ["n", 4]) @ g.param("w", [4, 2])])
    _refused(g, tmp_path, ShapeError, r"has dims without sizes: n; bind them")
    _refused(g.bind({"n": 1}), tmp_path, UnsupportedError, "the params w have no values")
    g = rlx.Graph("ranks")
    g.set_outputs([g.input("x", [4]).all_reduce(rlx.Mesh(data=2)["data"])])
    _refused(g, tmp_path, UnsupportedError, "a collective, and a program of a microcontroller has")
    g = rlx.Graph("doubles")
    g.set_outputs([g.input("x", [4], "f64").floor()])
    _refused(g, tmp_path, ToolchainError, "LLVM made calls of floor for thumbv7em")


def _refused(graph: rlx.Graph, folder: Path, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match):
        cortexm.export_cortexm(graph, folder)


def test_runs_that_do_not_fit(tmp_path: Path) -> None:
    firmware: Any = cortexm.export_cortexm(block(), tmp_path)
    feeds = _feeds(block(), 2)
    with pytest.raises(NameError, match="run takes the inputs x, i, found x"):
        firmware.run({"x": feeds["x"]})
    with pytest.raises(ShapeError, match=r"x has runs of \[1, 6, 16\], found \[6, 16\]"):
        firmware.run({**feeds, "x": feeds["x"][0, 0]})
    with pytest.raises(ShapeError, match=r"inputs have \[1, 2\] runs"):
        firmware.run({**feeds, "x": feeds["x"][:1]})
