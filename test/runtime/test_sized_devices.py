"""One compile for many sizes on GPUs: programs, devices and artifacts, against the compile for each
size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError, ShapeError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.runtime.background import waited
from rlx.runtime.devices.gpu_executable import DeviceExecutable
from support.conformance import FAMILIES, SLOW
from support.device import session
from support.samples import cases_of, op_classes
from support.sweeps import covering
from support.symbolic import is_bound, with_symbols
from support.symbolic_programs import judge

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
W = RNG.standard_normal((24, 40)).astype(np.float32)
DEVICES = ("opencl", "vulkan")


def block() -> Graph:
    """A product with an epilogue, rows, a reduction over a size, and a reshape."""
    g = Graph("block")
    x = g.input("x", ["rows", "cols", 24])
    y = g.softmax((x @ g.param("w", [24, 40])).gelu())
    g.set_outputs({"y": y, "sums": y.sum(1), "flat": (x + 1).transpose([1, 0, 2]).reshape([-1])})
    return g


def given(rows: int, cols: int) -> dict[str, Array]:
    return {"x": RNG.standard_normal((rows, cols, 24)).astype(np.float32)}


def bound(device: str, rows: int, cols: int) -> rlx.CompiledGraph:
    f = rlx.Session(device).compile(block(), dims={"rows": rows, "cols": cols})
    f.set_param("w", W)
    return f


def same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


SIZES = ((1, 1), (3, 5), (4, 6), (2, 70), (40, 2), (9, 33))


@pytest.mark.parametrize("device", DEVICES)
def test_results_have_the_bits_of_a_bound_compile(device: str) -> None:
    f = session(device).compile(block())
    f.set_param("w", W)
    for rows, cols in SIZES:
        x = given(rows, cols)
        same(f.run(x), bound(device, rows, cols).run(x))
    waited()  # for a general variant, which serves others
    compiled = len(f.variants)
    for rows, cols in ((3, 6), (5, 5), (39, 2)):
        x = given(rows, cols)
        same(f.run(x), bound(device, rows, cols).run(x))
    assert len(f.variants) == compiled < len(SIZES) + 2


@pytest.mark.parametrize("device", DEVICES)
def test_all_sizes_have_the_same_params(device: str) -> None:
    f = session(device).compile(block())
    f.set_param("w", W)
    first, second = given(3, 5), given(4, 6)
    before = f.run(first), f.run(second)
    executables = [e for e in f._bound.values() if isinstance(e, DeviceExecutable)]
    assert len(executables) == 2
    assert executables[0].weights is executables[1].weights
    assert executables[0]._buffers[0] is not executables[1]._buffers[0]
    f.set_param("w", 2 * W)
    twice = f.run(first), f.run(second)
    f.set_param("w", W)
    again = f.run(first), f.run(second)
    for was, now, other in zip(before, again, twice, strict=True):
        same(now, was)
        assert not np.array_equal(other[0], was[0])


@pytest.mark.parametrize("device", DEVICES)
def test_an_artifact_holds_all_sizes(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlx.tools.cli import main

    session(device)  # which may skip
    dims = {"rows": 3, "cols": (2, 9)}
    made = rlx.compile_artifact(block(), device, dims=dims, params={"w": W})
    made.save(path := tmp_path / "block.rlx")
    f = rlx.Session(device).load(path)
    for cols in (2, 5, 9):
        x = given(3, cols)
        same(f.run(x), bound(device, 3, cols).run(x))
    with pytest.raises(ShapeError, match="cols"):
        f.run(given(3, 10))
    assert main(["inspect", str(path)]) == 0
    assert "dim cols: 2 to 9" in (said := capsys.readouterr().out)
    assert "kernels" in said


def test_a_variant_comes_from_the_cache() -> None:
    f = session("opencl").compile(block())
    f.set_param("w", W)
    f.run(given(3, 5))
    waited()
    again = rlx.Session("opencl").compile(block())
    again.set_param("w", W)
    x = given(4, 7)
    same(again.run(x), f.run(x))
    assert [r.cache.split()[0] for r in again.reports] == ["hit"]


def test_rounds_that_a_device_may_cut_are_told() -> None:
    """llvmpipe ends loops after so many rounds; a size that a call brings may make more."""
    g = Graph("long")
    g.set_outputs(g.input("x", ["n"]).cumsum(0))
    f = session("vulkan").compile(g)
    if "llvmpipe" not in str(f.backend.driver).lower():  # pyright: ignore
        pytest.skip("this device ends no loops before their time")
    np.testing.assert_array_equal(f.run({"x": np.ones(50, np.float32)})[0], np.arange(1, 51))
    long = np.ones(300_000, np.float32)
    try:
        found = f.run({"x": long})[0]
    except (FaultError, UnsupportedError) as e:
        assert "rounds" in str(e)
    else:
        np.testing.assert_array_equal(found, np.arange(1, 300_001))


# -- every op ------------------------------------------------------------------------------

OPS = [op for op in op_classes() if op.samples and op.name not in SLOW["vulkan"]]
MORE = (1, 2, 5, 16, 33)


def facts(op: type[Op]) -> list[str]:
    return [op.__module__, *(name for name in FAMILIES if name == op.name)]


@pytest.mark.parametrize("op", covering(OPS, facts), ids=lambda op: op.name)
def test_samples_of_ops(op: type[Op]) -> None:
    """An op of each file of ops, whose kernels are alike, but for those that devices compile for
    seconds, and what needs a family of kernels; ``lowering/test_symbolic`` has all ops on this
    machine's processor."""
    number = OPS.index(op)
    device = DEVICES[number % 2]
    case = next(cases_of(op))
    found = with_symbols(case.graph())
    if not found:
        pytest.skip("no size of its sample can be a symbol")
    graph, size = found[number % len(found)]
    sizes = [{"n": s} for s in MORE if s != size and is_bound(graph, {"n": s})]
    general = number % 4 < 2
    try:
        wrong = judge(graph, {"n": size}, sizes[:2], device, session(device), general)[1]
    except UnsupportedError as e:
        pytest.skip(f"as on the device at one size: {e}")
    assert not wrong
