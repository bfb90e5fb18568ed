"""Running a random case in every way there is, comparing, and shrinking what fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx
from rlx import knobs
from rlx.errors import UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.ops.pointwise.base import INEXACT
from rlx.targets.cpu.features import PRESETS, detect
from rlx.tools.reduce import Subject, reduce_graph
from rlx.types import dtype
from support.random_calls import differing_call, donations
from support.random_graphs import Array, Case, case_again, parts, widened

__all__ = ["WAYS", "Mismatch", "difference", "failure", "report", "run_way", "shrunk"]

WAYS: dict[str, dict[str, Any]] = {
    "native": {"dispatch": "native"},
    "unfused": {"dispatch": "native", "fuse": False},
    "common": {"dispatch": "common"},
    "donated": {"dispatch": "native"},
}
"""Options by the name of a way; ``donated`` has pairs of the case besides, and a way that is a CPU
is "native" on that."""


def failure(case: Case, device: str = "cpu") -> Mismatch | None:
    """The first way whose results are wrong on a device; the interpreter is one of them."""
    found = _wrong("interpreter", interpret(case.graph, case.feeds, case.params), case)
    for way in _ways(case, device):
        if found is not None:
            break
        found = run_way(case, way, device)
    return found


def _ways(case: Case, device: str) -> list[str]:
    ways = ["native", "common", *(["unfused"] if case.seed % 4 == 0 else [])]
    if device == "cpu":
        other = [f.isa for f in PRESETS.values() if f.has < detect().has]
        ways += [["donated", *other][case.seed % (1 + len(other))]]
    return ways


def run_way(case: Case, way: str, device: str = "cpu") -> Mismatch | None:
    """Compile a case for a device and call it, by ``run``, by ``run_into``, and on the processor
    in all other ways."""
    try:
        with knobs.cpu.scoped(way) if way in PRESETS else nullcontext():
            options = dict(WAYS["native" if way in PRESETS else way])
            if way == "donated":
                options["donate"] = donations(case.graph, case.seed)
            compiled = rlx.Session(device).compile(case.graph, **options)
        for name, a in case.params.items():
            compiled.set_param(name, a)
        first = compiled.run(case.feeds)
        again = [np.full(a.shape, 1, a.dtype) for a in first]
        compiled.run_into(case.feeds, again)
        unlike = differing_call(compiled, case, first) if device == "cpu" else None
    except Exception as e:  # whatever it is, it is the finding
        return Mismatch(way, 0, f"{type(e).__name__}: {e}")
    if unlike is not None:
        return Mismatch(way, 0, unlike)
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


def report(case: Case, found: Mismatch, device: str = "cpu") -> str:
    """The failure on a shrunk graph."""
    if found.way == "interpreter":
        small, again = case, found
    else:
        kind = found.message.split(":")[0] if "Error" in found.message else ""

        def fails(trial: Case) -> bool:
            now = run_way(trial, found.way, device)
            return now is not None and now.message.startswith(kind)

        small = shrunk(case, fails)
        again = run_way(small, found.way, device) or found
    arrays = {**small.feeds, **small.params}
    shown = [f"  {n} = {np.array2string(a, threshold=40)}" for n, a in arrays.items()]
    head = f"seed {case.seed}, {device} {found.way}: output {again.index}: {again.message}"
    return "\n".join([head, str(small.graph.to_mlir()), *shown, ""])


# -- comparison ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mismatch:
    """Output ``index`` of a case is wrong when run by ``way``."""

    way: str
    index: int
    message: str

    @property
    def refused(self) -> bool:
        """Whether it is only that the device does not run the graph, and said so."""
        return self.message.startswith(UnsupportedError.__name__)


def difference(found: Array, expected: Array, allowed: Array) -> str | None:
    """What is wrong with an array, or None. nan equals nan; an infinity equals itself."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        kinds = [f"{a.dtype}{list(a.shape)}" for a in (found, expected)]
        return f"found {kinds[0]}, expected {kinds[1]}"
    if dtype(found.dtype) not in INEXACT:
        wrong = found != expected
    else:
        a, e = widened(found), widened(expected)
        wrong = ~(_near(a, e, allowed) | (np.isnan(a) & np.isnan(e)) | np.isinf(allowed))
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))[: found.ndim]
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; at {list(at)} found {found[at]},"
        f" expected {expected[at]} within {allowed[at]:.3g}"
    )


def _near(a: Array, e: Array, allowed: Array) -> Array:
    """Where numbers are equal or close, complex ones in both of their parts."""
    if np.iscomplexobj(a):
        return _near(parts(a), parts(e), allowed[..., None]).all(axis=-1)
    with np.errstate(invalid="ignore"):
        return (a == e) | (np.abs(a - e) <= allowed)


# -- shrinking -------------------------------------------------------------------------------------


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 500) -> Case:
    """A smaller case that still fails."""

    def again(subject: Subject) -> Case | None:
        return case_again(case.seed, subject.graph, subject.arrays or {})

    def still(subject: Subject) -> bool:
        trial = again(subject)
        return trial is not None and fails(trial)

    start = Subject(case.graph, {**case.feeds, **case.params})
    return again(reduce_graph(start, still, tries=tries, seconds=300)) or case
