"""Loops over scalars against the same loops in C, compiled by ``gcc -O2``.

Each loop runs about a million rounds, as many as its data says. Integers and f64 alike are compared
bit by bit.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array, Case, Run, Tensor

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


@functools.cache
def library() -> ctypes.CDLL:
    """The loops in C."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "loops.c", Path(folder) / "loops.so"
        source.write_text(C)
        # Without contraction, so that the results are those of the operations as they are written.
        flags = ["-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", out, source], check=True)
        return ctypes.CDLL(str(out))


class Loop(Case):
    """A case on one given value an input, in place of drawn ones."""

    def feeds(self) -> dict[str, Array]:
        """The values."""
        return self.own["feeds"]()


def collatz(limit: Any) -> Any:
    """The steps of all numbers below a limit: a loop in a loop, and a branch."""
    import rlx

    def step(n: rlx.Value, steps: rlx.Value) -> Any:
        half = n / 2
        return rlx.cond((n - half * 2).eq(0), lambda: half, lambda: n * 3 + 1), steps + 1

    def number(n: rlx.Value, steps: rlx.Value) -> Any:
        return n + 1, rlx.while_loop(lambda v, s: v.ne(1), step, (n, steps))[1]

    start = limit.graph.constant(1), limit.graph.constant(0)
    return rlx.while_loop(lambda n, s: n < limit, number, start)[1]


def congruent(n: Any) -> Any:
    """A linear congruential generator, and how often it is positive."""
    import rlx

    def body(i: rlx.Value, state: tuple[rlx.Value, rlx.Value]) -> Any:
        x = state[0] * 6364136223846793005 + 1442695040888963407
        return x, state[1] + (x > 0).cast("i64")

    return rlx.fori(n, body, (n.graph.constant(1), n.graph.constant(0)))[1]


def logistic(r: Any) -> Any:
    """x = r x (1 - x) until it dies out, in f64: each round waits for the one before."""
    import rlx

    return rlx.while_loop(
        lambda n, x: (n < ROUNDS).logical_and(x > 1e-300),
        lambda n, x: (n + 1, r * x * (1.0 - x)),
        (r.graph.constant(0), r.graph.constant(0.5, "f64")),
    )[1]


def rotation(n: Any, x: Any, m: Any) -> Any:
    """A vector of two turned again and again by a matrix: small tensors."""
    import rlx

    return rlx.fori(n, lambda i, v: (m * v).sum(1), x)


def c_collatz(limit: Array) -> Any:
    """The C function's result."""
    return _integer(library().collatz)(ctypes.c_int64(int(limit)))


def c_congruent(n: Array) -> Any:
    """The C function's result."""
    return _integer(library().congruent)(ctypes.c_int64(int(n)))


def c_logistic(r: Array) -> Any:
    """The C function's result."""
    f = library().logistic
    f.restype = ctypes.c_double
    return f(ctypes.c_double(float(r)), ctypes.byref(ctypes.c_int64()))


def c_rotation(n: Array, x: Array, m: Array) -> Any:
    """The C function's result."""
    out = np.empty(2)
    library().rotation(x.ctypes, m.ctypes, ctypes.c_int64(int(n)), out.ctypes)
    return out


def _integer(f: Any) -> Any:
    f.restype = ctypes.c_int64
    return f


TURN = np.array([[0.6, -0.8], [0.8, 0.6]])
LOOPS: tuple[tuple[Callable[..., Any], Callable[..., Any], dict[str, Array]], ...] = (
    (collatz, c_collatz, {"limit": np.array(10_900)}),
    (congruent, c_congruent, {"n": np.array(ROUNDS)}),
    (logistic, c_logistic, {"r": np.array(3.7)}),
    (rotation, c_rotation, {"n": np.array(ROUNDS), "x": np.array([1.0, 0.0]), "m": TURN}),
)


def case(build: Callable[..., Any], c: Callable[..., Any], feeds: dict[str, Array]) -> Case:
    """A loop, and its program in C."""

    def call(case: Case, threads: int) -> Run:
        return lambda: c(**feeds)

    inputs = {
        name: Tensor(a.shape, "ids" if a.dtype.kind == "i" else "normal", dtype="float64")
        for name, a in feeds.items()
    }
    return Loop(
        build.__name__, lambda f, **t: build(**t), inputs, tolerance=0,
        own={"feeds": lambda: feeds, "c": call, "reference": lambda case: c(**feeds)},
        runtimes=("rlx", "c"), quick=build is collatz,
    )  # fmt: skip


def cases() -> list[Case]:
    """Integers, branches, floats that wait for each other, and small tensors."""
    return [case(*loop) for loop in LOOPS]
