"""Fuzzing: many wrong inputs, each of which must be refused with an error of ours or taken.

Inputs are tried in forked processes, a batch each, so that one that ends the process (a crash, an
abort inside MLIR or LLVM, a hang) is a finding like any other, and the rest goes on. An input
follows from the seed and its number alone.
"""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlx.errors import RlxError

__all__ = ["Finding", "Outcome", "Target", "fuzz"]

SECONDS = 60
"""After which an input counts as one that hangs."""

ENDINGS = (
    signal.SIGALRM, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT,
)  # fmt: skip
"""The signals that end a process in which something went wrong."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed. ``prepare`` makes what all inputs start from, ``make`` one input of it,
    ``attempt`` gives it to RLX, and ``show`` writes it down."""

    prepare: Callable[[], Any]
    make: Callable[[Any, random.Random], Any]
    attempt: Callable[[Any], None]
    show: Callable[[Any], str] = repr
    allowed: tuple[type[Exception], ...] = (RlxError,)


@dataclass(frozen=True)
class Finding:
    """An input that was neither taken nor refused, and what it did."""

    number: int
    what: str
    shown: str


@dataclass
class Outcome:
    """How many inputs were taken and refused, and the findings."""

    taken: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)


def fuzz(
    target: Target,
    count: int,
    seed: int = 0,
    first: int = 0,
    batch: int = 500,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Try the inputs from number ``first`` on."""
    prepared, outcome = target.prepare(), Outcome()
    at, end = first, first + count
    while at < end:
        at = _forked(target, prepared, seed, at, min(end, at + batch), outcome)
        progress(outcome)
    return outcome


def _input(target: Target, prepared: Any, seed: int, number: int) -> Any:
    return target.make(prepared, random.Random(f"{seed}:{number}"))


def _forked(target: Target, prepared: Any, seed: int, at: int, end: int, outcome: Outcome) -> int:
    """Try the inputs from ``at`` on in a process of their own; returns the number to go on with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(target, prepared, seed, range(at, end), write)
    os.close(write)
    with os.fdopen(read) as lines:
        for line in lines:
            at, what = int(line.split()[0]), line.split(maxsplit=1)[1].strip()
            if what == "taken":
                outcome.taken += 1
            elif what == "refused":
                outcome.refused += 1
            else:
                shown = target.show(_input(target, prepared, seed, at))
                outcome.findings.append(Finding(at, what.replace("\\n", "\n"), shown))
            at += 1
    _, status = os.waitpid(child, 0)
    if status != 0:  # it ended in the middle of number ``at``
        end_of = signal.Signals(status & 127).name if status & 127 else f"exit {status >> 8}"
        what = f"hang ({SECONDS} s)" if end_of == "SIGALRM" else f"the process ended: {end_of}"
        shown = target.show(_input(target, prepared, seed, at))
        outcome.findings.append(Finding(at, what, shown))
        at += 1
    return at


def _child(target: Target, prepared: Any, seed: int, numbers: range, write: int) -> None:
    """Never returns: what stood on the stack of the parent must not run twice."""
    for number in ENDINGS:  # drivers of devices catch some, and would let the process live
        signal.signal(number, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # MLIR and LLVM write there as they abort
    for number in numbers:
        signal.alarm(SECONDS)
        try:
            value = _input(target, prepared, seed, number)
            target.attempt(value)
            what = "taken"
        except target.allowed:
            what = "refused"
        except BaseException:
            what = traceback.format_exc(limit=-4).replace("\n", "\\n")
        os.write(write, f"{number} {what}\n".encode(errors="backslashreplace"))
    os._exit(0)
