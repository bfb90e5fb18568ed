"""Collectives that are apart: they run beside launches, on memory that these leave alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.distributed import run_threads
from rlx.errors import FaultError
from rlx.lowering.compilation import Compilation
from rlx.lowering.pipeline import planned
from rlx.schedule.steps import Await, Collective, Launch, Place, Step, bytes_at
from rlx.targets import find_target
from rlx.training.graphs import Plan, gradient_half
from rlx.training.ranks import Ranks

MESH = rlx.Mesh(data=2)
ARRAYS = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)


def chain() -> rlx.Graph:
    """Sums of what three products give, of which each is needed at the end alone."""
    g = rlx.Graph("chain")
    x, sums = g.input("x", [64, 64]), list[Any]()
    for _ in range(3):
        x = (x @ x).tanh()
        sums.append((x + 1.0).all_reduce(MESH["data"]))
    g.set_outputs([x, sums[0] * 2.0 + sums[1] * sums[2]])
    return g


def layers() -> rlx.Graph:
    """The gradients of some layers, too large to be exchanged together."""
    g, rng = rlx.Graph("layers"), np.random.default_rng(1)
    h, y = g.input("x", [8, 256]), g.input("y", [8], "i64")
    for n in range(4):
        h = (h @ g.param(f"w{n}", value=rng.standard_normal((256, 256)).astype(np.float32))).tanh()
    g.set_outputs([h.softmax_cross_entropy(y).mean()])
    names = tuple(f"w{n}" for n in range(4))
    return gradient_half(Plan(g, rlx.optim.SGD(lr=0.1), names, ranks=Ranks(MESH["data"]))).graph


def steps_of(graph: rlx.Graph) -> tuple[Step[Place], ...]:
    with make_context() as context:
        compilation = Compilation(find_target("cpu"))
        return planned(to_mlir(graph, context), compilation, for_text=True).main


def span(place: Place, size: int | None = None) -> tuple[int, int, int]:
    """The memory, the first byte of a place, and the byte behind its last."""
    begin = int(place.offset)
    if size is None:
        layout = place.layout
        assert layout is not None
        reach = sum((d - 1) * s for d, s in zip(layout.shape, layout.strides, strict=True))
        size = (int(reach) + 1) * rlx.types.dtype(layout.dtype).bytes
    return place.base, begin, begin + size


def meets(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def beside(steps: tuple[Step[Place], ...]) -> Iterator[tuple[Collective[Place], Launch[Place]]]:
    """The pairs of which the second may run at the time of the first. What both are on is apart."""
    flying: list[tuple[Collective[Place], list[tuple[int, int, int]]]] = []
    for step in steps:
        if isinstance(step, Collective):
            if not step.apart:
                flying = []
                continue
            assert step.source is not None
            own = [span(p, bytes_at(step, n)) for n, p in
                   (("source", step.source), ("target", step.target))]  # fmt: skip
            flying.append((step, own))
        elif isinstance(step, Launch):
            for other, own in flying:
                assert not any(meets(span(p), one) for p in step.places for one in own)
                yield other, step
        else:
            assert isinstance(step, Await) or not flying
            flying = []


@pytest.mark.parametrize("graph", [chain(), layers()], ids=lambda g: g.name)
def test_launches_beside_a_collective_touch_none_of_its_memory(graph: rlx.Graph) -> None:
    assert list(beside(steps_of(graph)))


def test_one_that_is_needed_at_once_is_not_apart() -> None:
    g = rlx.Graph("at_once")
    x = g.input("x", [64, 64])
    g.set_outputs((x @ x).all_reduce(MESH["data"]).tanh())
    found = [s for s in steps_of(g) if not isinstance(s, Launch)]
    assert [(type(s), s.apart) for s in found if isinstance(s, Collective)] == [(Collective, False)]
    assert len(found) == 1


def test_inside_a_loop_they_are_not_apart_and_before_it_they_end() -> None:
    g = rlx.Graph("loop")
    x = g.input("x", [8, 8])
    before = (x @ x).all_reduce(MESH["data"])
    carried, _ = rlx.scan(lambda c, _: ((c @ c).all_reduce(MESH["data"]).tanh(), None), x, length=3)
    g.set_outputs([before, carried])
    main = steps_of(g)
    kinds = [type(s).__name__ for s in main]
    assert kinds.index("Await") < kinds.index("For")
    (loop,) = (s for s in main if type(s).__name__ == "For")
    assert not any(s.apart for s in loop.children() if isinstance(s, Collective))


def outputs(on_a_thread: bool) -> list[list[Any]]:
    with knobs.comm_beside.scoped(on_a_thread):
        f = rlx.Session("cpu").compile(chain())
        return run_threads(MESH, lambda rank: [f.run({"x": ARRAYS[rank]}) for _ in range(5)])


def test_beside_and_at_the_end_give_the_same_bits() -> None:
    for other, found in zip(outputs(False), outputs(True), strict=True):
        for a, b in zip(other, found, strict=True):
            for x, y in zip(a, b, strict=True):
                assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("on_a_thread", [False, True])
def test_a_late_rank_is_named_and_the_call_ends(
    monkeypatch: pytest.MonkeyPatch, on_a_thread: bool
) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.3")
    done = threading.Event()

    def rank(number: int) -> str:
        f.run({"x": ARRAYS[number]})
        if number == 1:
            done.wait(20)
            return ""
        try:
            with pytest.raises(FaultError) as error:
                f.run({"x": ARRAYS[number]})
            return str(error.value)
        finally:
            done.set()

    with knobs.comm_beside.scoped(on_a_thread):
        f = rlx.Session("cpu").compile(chain())
        told = run_threads(MESH, rank)[0]
    assert "test_apart.py" in told and "all_reduce" in told
    assert "rank 1 of 2 had not come after 300 ms" in told
