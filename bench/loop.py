"""Loops over scalars: RLX against the same loops in C, compiled by ``gcc -O2``.

Each loop runs about a million rounds, as many as its data says. The results are compared first:
integers and f64 alike are equal bit by bit. The last line says what a million rounds add to the
peak of resident memory.
"""

from __future__ import annotations

import ctypes
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx

ROUNDS = 1_000_000

C = """
#include <stdint.h>
int64_t collatz(int64_t limit) {
  int64_t steps = 0;
  for (int64_t n = 1; n < limit; ++n) {
    for (int64_t c = n; c != 1; ++steps) c = c - c / 2 * 2 == 0 ? c / 2 : c * 3 + 1;
  }
  return steps;
}
int64_t congruent(int64_t rounds) {
  int64_t x = 1, hits = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    x = (int64_t)((uint64_t)x * 6364136223846793005u + 1442695040888963407u);
    hits += x > 0;
  }
  return hits;
}
double logistic(double r, int64_t *steps) {
  double x = 0.5;
  int64_t n = 0;
  while (n < 1000000 && x > 1e-300) { x = r * x * (1.0 - x); ++n; }
  *steps = n;
  return x;
}
void rotation(const double *x, const double *m, int64_t rounds, double *out) {
  double a = x[0], b = x[1];
  for (int64_t i = 0; i < rounds; ++i) {
    double p = m[0] * a + m[1] * b, q = m[2] * a + m[3] * b;
    a = p; b = q;
  }
  out[0] = a; out[1] = b;
}
"""


@dataclass
class Case:
    """A loop as a graph with feeds, and as a call of C; both give arrays."""

    name: str
    graph: rlx.Graph
    feeds: dict[str, Any]
    c: Callable[[], list[Any]]


def library(folder: Path) -> ctypes.CDLL:
    """The loops in C."""
    source, out = folder / "loops.c", folder / "loops.so"
    source.write_text(C)
    # Without contraction, so that the results are those of the operations as they are written.
    flags = ["-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", out, source], check=True)
    return ctypes.CDLL(str(out))


def collatz(c: ctypes.CDLL) -> Case:
    """The steps of all numbers below a limit: a loop in a loop, and a branch."""
    g = rlx.Graph("collatz")
    limit = g.input("limit", [], "i64")

    def step(n: rlx.Value, steps: rlx.Value) -> Any:
        half = n / 2
        return rlx.cond((n - half * 2).eq(0), lambda: half, lambda: n * 3 + 1), steps + 1

    def number(n: rlx.Value, steps: rlx.Value) -> Any:
        return n + 1, rlx.while_loop(lambda v, s: v.ne(1), step, (n, steps))[1]

    start = g.constant(1), g.constant(0)
    g.set_outputs(rlx.while_loop(lambda n, s: n < limit, number, start)[1])
    c.collatz.restype = ctypes.c_int64
    bound = 10_900
    return Case("collatz", g, {"limit": np.int64(bound)},
                lambda: [c.collatz(ctypes.c_int64(bound))])  # fmt: skip


def congruent(c: ctypes.CDLL) -> Case:
    """A linear congruential generator, and how often it is positive."""
    g = rlx.Graph("congruent")
    n = g.input("n", [], "i64")

    def body(i: rlx.Value, state: tuple[rlx.Value, rlx.Value]) -> Any:
        x = state[0] * 6364136223846793005 + 1442695040888963407
        return x, state[1] + (x > 0).cast("i64")

    g.set_outputs(rlx.fori(n, body, (g.constant(1), g.constant(0)))[1])
    c.congruent.restype = ctypes.c_int64
    return Case("congruent", g, {"n": np.int64(ROUNDS)},
                lambda: [c.congruent(ctypes.c_int64(ROUNDS))])  # fmt: skip


def logistic(c: ctypes.CDLL) -> Case:
    """x = r x (1 - x) until it dies out, in f64: each round waits for the one before."""
    g = rlx.Graph("logistic")
    r = g.input("r", [], "f64")
    start = g.constant(0), g.constant(0.5, "f64")
    g.set_outputs(
        rlx.while_loop(
            lambda n, x: (n < ROUNDS).logical_and(x > 1e-300),
            lambda n, x: (n + 1, r * x * (1.0 - x)), start,
        )
    )  # fmt: skip
    c.logistic.restype = ctypes.c_double
    steps = ctypes.c_int64()

    def call() -> list[Any]:
        x = c.logistic(ctypes.c_double(3.7), ctypes.byref(steps))
        return [steps.value, x]

    return Case("logistic", g, {"r": np.float64(3.7)}, call)


def rotation(c: ctypes.CDLL) -> Case:
    """A vector of two turned again and again by a matrix: small tensors."""
    g = rlx.Graph("rotation")
    x, m = g.input("x", [2], "f64"), g.input("m", [2, 2], "f64")
    n = g.input("n", [], "i64")
    g.set_outputs(rlx.fori(n, lambda i, v: (m * v).sum(1), x))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    start, out = np.array([1.0, 0.0]), np.empty(2)

    def call() -> list[Any]:
        c.rotation(start.ctypes, turn.ctypes, ctypes.c_int64(ROUNDS), out.ctypes)
        return [out.copy()]

    return Case("rotation", g, {"x": start, "m": turn, "n": np.int64(ROUNDS)}, call)


def seconds(call: Callable[[], Any]) -> float:
    """What a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(case: Case, repeat: int) -> str:
    """A row of the table, once the results are found equal."""
    f = rlx.Session("cpu").compile(case.graph)
    for a, b in zip(f.run(case.feeds), case.c(), strict=True):
        np.testing.assert_array_equal(a, b)
    times = [(seconds(lambda: f.run(case.feeds)), seconds(case.c)) for _ in range(repeat)]
    ours, theirs = (statistics.median(t) * 1e3 for t in zip(*times, strict=True))
    low, least = (min(t) * 1e3 for t in zip(*times, strict=True))
    taken = f"{ours:.2f} ({low:.2f}) | {theirs:.2f} ({least:.2f})"
    return f"| {case.name} | {taken} | {ours / theirs:.2f} ({low / least:.2f}) |"


def growth(few: int, many: int) -> int:
    """By how many KiB the peak of resident memory is higher after a ``while_loop`` of ``many``
    rounds than after one of ``few``."""
    g = rlx.Graph("smooth")
    x, rounds = g.input("x", [256], "f32"), g.input("rounds", [], "i64")
    step = lambda i, v: (i + 1, (v * 1.5).tanh())  # noqa: E731 -- as one writes it
    g.set_outputs(rlx.while_loop(lambda i, v: i < rounds, step, (g.constant(0), x))[1])
    f, start = rlx.Session("cpu").compile(g), np.full(256, 0.5, np.float32)
    peaks: list[int] = []
    for n in (few, many):
        f.run({"x": start, "rounds": np.int64(n)})
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peaks[1] - peaks[0]


def main(argv: list[str]) -> int:
    """Print milliseconds of each loop here and in C, in turn: medians and minima, and ratios."""
    repeat = int(argv[0]) if argv else 25
    print("| loop | RLX ms (min) | C ms (min) | ratio (of minima) |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        c = library(Path(folder))
        for make in (collatz, congruent, logistic, rotation):
            print(row(make(c), repeat), flush=True)
    few, many = 1_000, ROUNDS
    grown = growth(few, many)
    print(f"\na carry of 256 floats, {many} rounds after {few}: {grown} KiB more at the peak")
    return 0
