"""Literals as arguments: which kernels share code, what stays in it, and that no bit differs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.codegen.program import Program, Step
from rlx.compiler.aot import compile_artifact
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.kernels.elementwise.emit import launch
from rlx.kernels.registry import emit_kernel
from rlx.lowering.select.literals import lifted, words_of
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from rlx.targets import find_target
from rlx.types import DTYPES, DType, bf16, bool_, c64, f16, f32, f64, i8, i32, i64, u8, u32, u64

Array = np.ndarray[Any, Any]


def objects(g: Graph) -> set[str]:
    """The objects of the kernels that a graph is compiled to."""
    return set(compile_artifact(g).variant.objects)


def graph(
    build: Callable[[Value], Any], shape: tuple[int, ...] = (32, 32), dt: str = "f32"
) -> Graph:
    g = Graph("g")
    g.set_outputs(build(g.input("x", shape, dt)))
    return g


# -- which kernels are made -------------------------------------------------------------------


def test_layers_that_differ_in_a_number_are_one_kernel() -> None:
    def layers(x: Value, numbers: list[float]) -> Value:
        y = x
        for n in numbers:
            y = (y @ x).softmax(-1) + n
        return y

    one = objects(graph(lambda x: layers(x, [3.0] * 20)))
    each = objects(graph(lambda x: layers(x, [n + 3.0 for n in range(20)])))
    assert each <= one


def test_outputs_that_differ_in_a_number_are_one_kernel() -> None:
    assert len(objects(graph(lambda x: [x * (n + 3.0) for n in range(50)]))) == 1


@pytest.mark.parametrize("dt", ["f16", "bf16", "f64", "i8", "u16", "i32", "i64", "u64"])
def test_every_type_of_numbers(dt: str) -> None:
    def build(number: int) -> Graph:
        return graph(lambda x: [x + number, x.gt(number).where(x, number)], (37,), dt)

    assert objects(build(11)) == objects(build(103))


EPILOGUES: dict[str, Callable[[Value, float], Value]] = {
    "short": lambda y, n: y * n + (n + 1.0),
    "long": lambda y, n: (y * n).gelu() / (n + 0.25) + 1.0,
    "rows": lambda y, n: (y * n).softmax(-1) * (n + 4.0),
    "norm": lambda y, n: y / ((y * y).mean(-1, keepdims=True) + n * 1e-6).sqrt(),
}


@pytest.mark.parametrize("build", EPILOGUES.values(), ids=EPILOGUES)
def test_families_take_numbers(build: Callable[[Value, float], Value]) -> None:
    def made(n: float) -> Graph:
        return graph(lambda x: build(x @ x, n))

    assert objects(made(3.0)) == objects(made(5.5))
    x = np.random.default_rng(0).random((32, 32), np.float32)
    for n in (3.0, 5.5):
        (found,) = rlx.Session("cpu").compile(made(n)).run({"x": x})
        np.testing.assert_allclose(found, interpret(made(n), {"x": x})[0], rtol=1e-3)


# -- what stays in the code -------------------------------------------------------------------

KEPT: list[tuple[str, float, DType, int]] = [
    *(("add", n, f32, 1) for n in (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("nan"))),
    ("div", 8.0, f32, 1), ("div", 0.125, f64, 1), ("mul", 16, i32, 1), ("pow", 3.0, f32, 1),
    ("maximum", 3.0, f32, 1), ("minimum", 3, i32, 0), ("left_shift", 3, u32, 1), ("div", 7, i32, 1),
    ("mul", 3.0, c64, 1), ("eq", True, bool_, 1),
]  # fmt: skip
TAKEN: list[tuple[str, float, DType, int]] = [
    ("add", 3.0, f32, 1), ("sub", -7, i8, 0), ("mul", 3, i64, 1), ("mul", 8.0, f16, 0),
    ("div", 3.0, bf16, 1), ("div", 8.0, f32, 0), ("gt", 200, u8, 1), ("eq", 3, u64, 1),
]  # fmt: skip


def binary(op: str, number: Any, dt: DType, place: int) -> Any:
    """The config of an op on x and a literal, in a place."""
    args = (0, 1) if place else (1, 0)
    out = bool_ if op in ("gt", "eq") else dt
    steps = Step.literal(number, dt), Step(f"mir.{op}", args, (dt, dt), out)
    return launch(Program((dt,), steps, (2,)), (64,), [(1,)], [(1,)])[0]


@pytest.mark.parametrize(("op", "number", "dt", "place"), KEPT)
def test_numbers_that_make_better_code_stay(op: str, number: Any, dt: DType, place: int) -> None:
    config = binary(op, number, dt, place)
    assert lifted(config, 64) == (config, ())


@pytest.mark.parametrize(("op", "number", "dt", "place"), TAKEN)
def test_other_numbers_come_with_the_launch(op: str, number: Any, dt: DType, place: int) -> None:
    config, words = lifted(binary(op, number, dt, place), 64)
    assert config.program.steps[0] == Step.argument(0, 1, dt)
    assert words == tuple(words_of(number, dt, 64))


def test_a_number_with_a_reader_of_another_kind_stays() -> None:
    steps = (
        Step.literal(3.0, f32), Step("mir.add", (0, 1), (f32, f32), f32),
        Step("mir.pow", (2, 1), (f32, f32), f32),
    )  # fmt: skip
    config = launch(Program((f32,), steps, (3,)), (64,), [(1,)], [(1,)])[0]
    assert lifted(config, 64) == (config, ())


def test_words() -> None:
    bits = struct.unpack("<i", struct.pack("<f", -0.1))[0]
    assert words_of(-0.1, f32, 64) == words_of(-0.1, f32, 32) == [bits]
    assert words_of((1 << 64) - 5, u64, 64) == [-5]
    assert words_of((1 << 64) - 5, u64, 32) == [-5, -1]
    assert words_of((7 << 32) + (1 << 31), i64, 32) == [-(1 << 31), 7]


def test_a_gpu_kernel_reads_words_between_sizes_and_starts() -> None:
    config, words = lifted(binary("add", (7 << 32) + 5, i64, 1), 32)
    text = emit_kernel("elementwise", "k", config, find_target("cuda").kernels)
    assert words == (5, 7)
    assert text.sizes[-2:] == ("literal0", "literal1")
    assert text.text.index("%literal1_i32 ") < text.text.index("%in0_start_i32 ")


# -- results ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dt", [d for d in DTYPES.values() if d.is_float or d.is_int], ids=str)
def test_no_bit_differs(dt: DType) -> None:
    most = 0 if dt.is_float else int(np.iinfo(dt.numpy).max)
    numbers = [3.1, -1e-3, 1e4] if dt.is_float else [3, most, most // 3]
    x = np.arange(-18, 19).astype(dt.numpy)

    def build(x: Value) -> list[Value]:
        out: list[Value] = []
        for n in numbers:
            out += [x + n, n - x, x * n, x * n + n, x.lt(n).where(x, n)]
            out += [x / n, n / x, x / n * n] if dt.is_float else []
        return out

    g = graph(build, x.shape, dt.name)
    expected = rlx.Session("interpret").compile(g).run({"x": x})
    for found, e in zip(rlx.Session("cpu").compile(g).run({"x": x}), expected, strict=True):
        assert np.array_equal(found.view("u1"), e.view("u1"))


def test_packed_weights_of_other_numbers_are_others() -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x = np.ones((8, 64), np.float32)

    def run(n: float) -> Array:
        g = Graph("g")
        g.set_outputs(g.input("x", [8, 64]) @ (g.param("w", [64, 64]) * n))
        f = rlx.Session("cpu").compile(g)
        f.set_param("w", w)
        found.append(f)
        return f.run({"x": x})[0]

    found: list[Any] = []  # both are alive at once
    for n in (3.0, 5.0):
        np.testing.assert_allclose(run(n), x @ (w * np.float32(n)), rtol=1e-4, atol=1e-4)


def test_an_artifact_keeps_its_numbers(tmp_path: Path) -> None:
    g = graph(lambda x: [x * -3.5, x + 1e-30, x + x * 7.25])
    x = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    compile_artifact(g).save(tmp_path / "a.rlx")
    loaded = Executable(Artifact.load(tmp_path / "a.rlx")).run_slots(x)
    expected = x * np.float32(-3.5), x + np.float32(1e-30), x + x * np.float32(7.25)
    for found, e in zip(loaded, expected, strict=True):
        assert np.array_equal(found, e)
