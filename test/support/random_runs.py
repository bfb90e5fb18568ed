"""Running a random case in every way there is, comparing, and shrinking what fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx
from rlx.graph import Graph, topological
from rlx.interpreter import interpret
from rlx.ops.value import Value
from rlx.types import dtype
from support.random_graphs import Array, Case

__all__ = ["WAYS", "Mismatch", "difference", "failure", "report", "run_way", "shrunk"]

WAYS: dict[str, dict[str, Any]] = {
    "native": {"dispatch": "native"},
    "unfused": {"dispatch": "native", "fuse": False},
    "common": {"dispatch": "common"},
}


def failure(case: Case) -> Mismatch | None:
    """The first way whose results are wrong; the interpreter is one of them."""
    found = _wrong("interpreter", interpret(case.graph, case.feeds, case.params), case)
    ways = list(WAYS) if case.seed % 4 == 0 else ["native", "common"]
    for way in ways:
        if found is not None:
            break
        found = run_way(case, way)
    return found


def run_way(case: Case, way: str) -> Mismatch | None:
    """Compile and run a case twice, by ``run`` and by ``run_into``."""
    try:
        compiled = rlx.Session("cpu").compile(case.graph, **WAYS[way])
        for name, a in case.params.items():
            compiled.set_param(name, a)
        first = compiled.run(case.feeds)
        again = [np.full(a.shape, 1, a.dtype) for a in first]
        compiled.run_into(case.feeds, again)
    except Exception as e:  # whatever it is, it is the finding
        return Mismatch(way, 0, f"{type(e).__name__}: {e}")
    for i, (a, b) in enumerate(zip(first, again, strict=True)):
        if a.tobytes() != b.tobytes():
            return Mismatch(way, i, "two runs differ")
    return _wrong(way, first, case)


def _wrong(way: str, found: list[Array], case: Case) -> Mismatch | None:
    for i, (a, e, allowed) in enumerate(zip(found, case.expected, case.allowed, strict=True)):
        message = difference(a, e, allowed)
        if message is not None:
            return Mismatch(way, i, message)
    return None


def report(case: Case, found: Mismatch) -> str:
    """The failure on a shrunk graph."""
    if found.way == "interpreter":
        small, again = case, found
    else:
        kind = found.message.split(":")[0] if "Error" in found.message else ""

        def fails(trial: Case) -> bool:
            now = run_way(trial, found.way)
            return now is not None and now.message.startswith(kind)

        small = shrunk(case, fails)
        again = run_way(small, found.way) or found
    arrays = {**small.feeds, **small.params}
    shown = [f"  {n} = {np.array2string(a, threshold=40)}" for n, a in arrays.items()]
    head = f"seed {case.seed}, {found.way}: output {again.index}: {again.message}"
    return "\n".join([head, str(small.graph.to_mlir()), *shown, ""])


# -- comparison ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mismatch:
    """Output ``index`` of a case is wrong when run by ``way``."""

    way: str
    index: int
    message: str


def difference(found: Array, expected: Array, allowed: Array) -> str | None:
    """What is wrong with an array, or None. nan equals nan; an infinity equals itself."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        kinds = [f"{a.dtype}{list(a.shape)}" for a in (found, expected)]
        return f"found {kinds[0]}, expected {kinds[1]}"
    if not dtype(found.dtype).is_float:
        wrong = found != expected
    else:
        a, e = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - e) <= allowed
        wrong = ~(near | (a == e) | (np.isnan(a) & np.isnan(e)) | np.isinf(allowed))
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))[: found.ndim]
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; at {list(at)} found {found[at]},"
        f" expected {expected[at]} within {allowed[at]:.3g}"
    )


# -- shrinking -------------------------------------------------------------------------------------


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 200) -> Case:
    """A smaller case that still fails: fewer outputs, and nodes cut off and given as inputs."""
    best, left = case, tries

    def attempt(outputs: list[Value], cut: set[Value]) -> bool:
        nonlocal best, left
        left -= 1
        trial = _part(best, outputs, cut)
        if left > 0 and fails(trial):
            best = trial
            return True
        return False

    for i in reversed(range(len(case.graph.outputs))):
        rest = [v for n, v in enumerate(best.graph.outputs) if n != i]
        if rest:
            attempt(rest, set())
    changed = True
    while changed and left > 0:
        changed = False
        for op in topological(best.graph.outputs):
            inside = [v for v in op.results if v not in best.graph.outputs]
            if inside and attempt(best.graph.outputs, set(inside)):
                changed = True
                break
    return best


def _part(case: Case, outputs: list[Value], cut: set[Value]) -> Case:
    """The case's graph as far as ``outputs`` need it, with the values of ``cut`` as inputs."""
    g = Graph(case.graph.name)
    feeds: dict[str, Array] = {}
    params: dict[str, Array] = {}
    env: dict[Value, Value] = {}

    def leaf(v: Value) -> Value:
        if v not in env:
            into, declare, letter = (
                (params, g.param, "p") if v in case.graph.params else (feeds, g.input, "x")
            )
            name = f"{letter}{len(into)}"
            into[name] = case.values[v]
            env[v] = declare(name, v.shape, v.dtype)
        return env[v]

    for op in topological(outputs):
        if all(v in cut for v in op.results):
            continue
        operands = [None if v is None else env[v] if v in env else leaf(v) for v in op.operands]
        made = op.with_operands(operands)
        env.update((v, m) for v, m in zip(op.results, made.results, strict=True) if v not in cut)
    kept = [env[v] if v in env else leaf(v) for v in outputs]
    # Only what the outputs still reach stays declared.
    reached = {v for op in topological(kept) for v in op.present} | set(kept)
    g.inputs = [v for v in g.inputs if v in reached]
    g.params = [v for v in g.params if v in reached]
    g.set_outputs(kept)
    values = {n: case.values[o] for o, n in env.items()}
    slack = {n: case.slack[o] for o, n in env.items()}
    return Case(
        case.seed, g, {str(v.name): feeds[str(v.name)] for v in g.inputs},
        {str(v.name): params[str(v.name)] for v in g.params},
        [case.values[v] for v in outputs], [case.slack[v] for v in outputs], values, slack,
    )  # fmt: skip
