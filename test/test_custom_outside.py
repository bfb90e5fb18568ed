"""Ops from outside: the arrays that they are given outlive a run, their code may read what changes,
and one that is declared again in the same place takes the place of the first."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import FaultError, GraphError
from rlx.ir.foreign_kernel import PythonKernel
from rlx.runtime.session import CompiledGraph

Array = np.ndarray[Any, Any]

N = 1 << 20
kept: list[Array] = []
state = {"k": 2.0}


@rlx.custom_op("outside.keep", infer=lambda x: x)
def keep(x: Array) -> Array:
    kept.append(x)
    return x + 1


@rlx.custom_op("outside.broken", infer=lambda x: x)
def broken(x: Array) -> Array:
    raise ValueError(f"{x.size} elements")


class Filled(rlx.Op, name="outside.filled"):
    x: rlx.Value = rlx.operand("what is filled")

    def infer(self) -> Any:
        return self.x.type

    def reference(self, x: Array) -> Array:
        return x + 1

    def kernel(self) -> PythonKernel:
        def fill(x: Array, out: Array) -> None:
            kept.extend((x, out))
            out[...] = x + 1

        return PythonKernel(fill)


def compiled(op: Callable[..., Any], n: int = N) -> CompiledGraph:
    g = rlx.Graph()
    g.set_outputs(op(g.input("x", [n]) * 2.0) * 1.0)
    return rlx.Session().compile(g)


def full(value: float, n: int = N) -> dict[str, Array]:
    return {"x": np.full(n, value, np.float32)}


@pytest.mark.parametrize("op", [keep, Filled.build], ids=["custom_op", "PythonKernel"])
def test_arrays_that_an_op_keeps_stay_as_they_were(op: Callable[..., Any]) -> None:
    kept.clear()
    f = compiled(op)
    assert f.run(full(1))[0][0] == 3
    f.run(full(50))
    first = [a[:2].tolist() for a in kept[: len(kept) // 2]]
    del f
    gc.collect()
    assert [a[:2].tolist() for a in kept[: len(kept) // 2]] == first
    assert first[0] == [2, 2] and kept[len(kept) // 2][0] == 100
    assert first[1:] in ([], [[3, 3]])


def test_the_arrays_of_a_failed_op_can_be_looked_at_later() -> None:
    with pytest.raises(FaultError, match="1048576 elements") as failed:
        compiled(broken).run(full(1))
    gc.collect()
    assert failed.value.__cause__ is not None
    tb, found = failed.value.__cause__.__traceback__, list[Array]()
    while tb is not None:
        found += [v for v in tb.tb_frame.f_locals.values() if isinstance(v, np.ndarray)]
        tb = tb.tb_next
    assert found
    assert all(a.flags.owndata or a.base is not None for a in found)
    assert all(a.reshape(-1)[:2].tolist() == [2, 2] for a in found if not a.flags.writeable)


class Scaled(rlx.Op, name="outside.scaled"):
    x: rlx.Value = rlx.operand("what is scaled")

    pointwise = True

    def infer(self) -> Any:
        return self.x.type

    def reference(self, x: Array) -> Array:
        return x * np.float32(state["k"])

    def scalar(self, k: Any, x: Any) -> Any:
        return x * state["k"]


class Looped(Scaled, name="outside.looped"):
    pointwise = False
    scalar: Any = None

    def loops(self, b: Any) -> None:
        def point(i: Any) -> None:
            b.store(0, [i], b.load(0, [i]) * state["k"])

        b.parallel(self.x.type.static_shape, point)


class Expanded(Scaled, name="outside.expanded"):
    pointwise = False

    def expand(self) -> rlx.Value:
        return self.x * state["k"]


@pytest.mark.parametrize("op", [Scaled, Looped, Expanded], ids=lambda op: op.name)
@pytest.mark.parametrize("options", [{}, {"dispatch": "common"}], ids=["native", "common"])
def test_what_the_code_of_an_op_reads_may_change(op: Any, options: dict[str, Any]) -> None:
    for k in (2.0, 3.0, 2.0):
        state["k"] = k
        g = rlx.Graph()
        g.set_outputs(op.build(g.input("x", [3])) + 1.0)
        found = rlx.Session().compile(g, **options).run(full(1, 3))[0]
        assert found.tolist() == [k + 1] * 3


def test_kernels_of_rlx_are_still_shared() -> None:
    def report() -> Any:
        g = rlx.Graph()
        x = g.input("x", [3])
        g.set_outputs([keep(x.exp()), x.cumsum(0)])
        return rlx.Session().compile(g).reports[0]

    report()
    again = report()
    assert again.kernels_made == 0 and again.kernels_reused


# -- declared again ------------------------------------------------------------------------


def declared(k: float) -> Any:
    """What running a cell of a notebook does."""

    @rlx.custom_op("outside.cell", infer=lambda x, by: x)
    def cell(x: Array, *, by: float = 1.0) -> Array:
        return x * np.float32(k * by)

    class Cell(rlx.Op, name="outside.cell_class"):
        x: rlx.Value = rlx.operand("what is scaled")

        pointwise = True

        def infer(self) -> Any:
            return self.x.type

        def reference(self, x: Array) -> Array:
            return x * np.float32(k)

        def scalar(self, kk: Any, x: Any) -> Any:
            return x * k

    return cell, Cell


def of_cells(cell: Any, other: Any) -> rlx.Graph:
    g = rlx.Graph()
    x = g.input("x", ["n"])
    g.set_outputs([cell(x), other.build(x)])
    return g


def test_an_op_is_declared_again_where_it_was_declared() -> None:
    graphs = [of_cells(*declared(k)) for k in (2.0, 3.0)]
    early = rlx.Session().compile(graphs[0])
    assert [a[0] for a in early.run(full(1, 1))] == [2, 2]
    graphs.append(of_cells(*declared(4.0)))
    for g, k in zip(graphs, (2, 3, 4), strict=True):
        for session in (rlx.Session(), rlx.Session("interpret")):
            assert [a[0] for a in session.compile(g).run(full(1, 1))] == [k, k]
    assert [a[0] for a in early.run(full(1, 2))] == [2, 2], "a size that it had not seen"


def test_one_name_in_two_places_is_refused() -> None:
    declared(2.0)
    with pytest.raises(GraphError, match=r"declared twice: as \S*outside\S*cell and as"):

        @rlx.custom_op("outside.cell", infer=lambda x: x)
        def cell(x: Array) -> Array:
            return x

    with pytest.raises(GraphError, match=r"give one of them another name"):

        class Cell(rlx.Op, name="outside.cell_class"):
            pass


def test_a_cell_of_main_runs_twice() -> None:
    source = textwrap.dedent("""
        @rlx.custom_op("mine.cell", infer=lambda x: x)
        def cell(x):
            return x * np.float32(K)
    """)
    code = f"import numpy as np, rlx\nsource = {source!r}\n" + textwrap.dedent("""
        for K in (2, 3):
            exec(source)
            g = rlx.Graph()
            g.set_outputs(globals()["cell"](g.input("x", [1])))
            print(rlx.Session().compile(g).run({"x": np.ones(1, np.float32)})[0])
    """)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["[2.]", "[3.]"]
