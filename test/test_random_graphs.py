"""Random graphs, run in every way; ``tools/soak.py`` runs thousands of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import rlx
from rlx.runtime import _native
from rlx.runtime.session import CompiledGraph
from support.conformance import STANDS, gpu_targets, need
from support.device import device_of
from support.random_calls import differing_call, donations
from support.random_device import case_on
from support.random_graphs import Array, Case, random_case
from support.random_runs import Mismatch, difference, failure, report, run_way, shrunk
from support.samples import op_classes
from support.sweeps import WHOLE, seeds

SEEDS, SIZE = range(1, 4), 4
"""The graphs for devices, and how many ops each of them has: their compilers take long."""


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_random_graphs_agree_with_the_interpreter(seed: int) -> None:
    case = random_case(seed)
    found = failure(case)
    assert found is None, report(case, found)


@pytest.mark.parametrize("api", [t for t in gpu_targets() if t not in STANDS])
def test_random_graphs_agree_with_the_interpreter_on_devices(api: str) -> None:
    need(api)
    ran = 0
    for seed in SEEDS:
        case = case_on(api, seed, SIZE)
        found = failure(case, device_of(api))
        if found is None or not found.refused:
            assert found is None, report(case, found, device_of(api))
            ran += 1
            if not WHOLE:
                return  # one that a device takes
    assert ran > len(SEEDS) / 2


def test_a_seed_gives_one_graph() -> None:
    a, b = random_case(7), random_case(7)
    assert repr(a.graph.nodes()) == repr(b.graph.nodes())
    assert all(x.tobytes() == y.tobytes() for x, y in zip(a.expected, b.expected, strict=True))


def test_every_op_comes_up() -> None:
    unseen = {op.name for op in op_classes()}
    for seed in range(1000):
        unseen -= {op.name for op in random_case(seed).graph.nodes()}
        if not unseen:
            return
    assert not unseen


def test_regions_with_several_results_come_up() -> None:
    """Of rows and of elements: values that a norm reads, and something behind it too."""
    seen = Counter[str]()
    for seed in range(240):
        for line in rlx.inspect_pipeline(random_case(seed).graph).fusion.splitlines():
            if line.startswith("fused") and "results)" in line:
                seen[line.split(" x ")[1].split(":")[0]] += 1
        if seen["rowwise"] >= 2 and seen["elementwise"] >= 2:
            return
    raise AssertionError(seen)


def test_a_difference_is_seen() -> None:
    e = np.array([1.0, np.nan, np.inf], np.float32)
    allowed = np.full(3, 1e-5)
    assert difference(e, e, allowed) is None
    for at, wrong in ((0, 1.001), (0, np.nan), (1, 0.0), (2, -np.inf), (2, 1.0)):
        a = e.copy()
        a[at] = wrong
        assert f"at [{at}]" in str(difference(a, e, allowed))
    assert "expected float32[3]" in str(difference(e[:2], e, allowed))
    assert difference(np.array([1, 2]), np.array([1, 3]), np.zeros(2)) is not None


def test_a_way_of_calling_that_changes_bits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls_of(wrong: Callable[[dict[str, Array]], bool]) -> str:
        f = rlx.Session("cpu").compile(case.graph, donate=donations(case.graph, 0))
        first = run(f, case.feeds)
        monkeypatch.setattr(
            CompiledGraph, "run", lambda f, feeds: [run(f, feeds)[0] + np.float32(wrong(feeds))]
        )
        return str(differing_call(f, case, first))

    g, run = rlx.Graph(), CompiledGraph.run
    g.set_outputs(g.input("x", [4, 3]) + g.input("y", [4, 3]))
    feeds = {n: np.arange(12, dtype=np.float32).reshape(4, 3) + k for k, n in enumerate("xy")}
    case = Case(2, g, feeds, {}, [], [])
    said = {
        "2 threads: output 0 has other bits": lambda _: _native.num_threads() == 2,
        "inputs that are views": lambda a: not all(b.flags.c_contiguous for b in a.values()),
        "one array for": lambda a: np.may_share_memory(a["x"], a["y"]),
        "None": lambda _: False,
    }
    for message, wrong in said.items():
        assert message in calls_of(wrong)


def test_tolerances_are_tight() -> None:
    """A relative error of a thousandth is seen in nearly every f32 and f64 output."""
    seen, missed = 0, []
    for seed in range(60):
        case = random_case(seed)
        for e, allowed in zip(case.expected, case.allowed, strict=True):
            if e.dtype.kind == "f" and e.itemsize > 2 and e.size and np.abs(e).max() > 1e-2:
                found = difference((e * 1.001).astype(e.dtype), e, allowed)
                seen += 1
                missed += [seed] if found is None else []
    assert len(missed) < 0.03 * seen


def test_a_failure_is_shrunk_to_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(
        c
        for c in map(random_case, range(500))
        if any(op.name == "mir.cumsum" for op in c.graph.nodes()) and len(c.graph) > 12
    )

    def fails(trial: Case) -> bool:
        return any(op.name == "mir.cumsum" for op in trial.graph.nodes())

    small = shrunk(case, fails)
    assert len(small.graph) <= 2 and len(small.graph.outputs) == 1 and fails(small)
    assert run_way(small, "native") is None  # it is a case like any other
    monkeypatch.setattr("support.random_runs.run_way", lambda *_: Mismatch("native", 0, "wrong"))
    text = report(small, Mismatch("native", 0, "wrong"))
    assert f"seed {case.seed}" in text and "func.func @main" in text
    assert rlx.Graph is type(small.graph)
