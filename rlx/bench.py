"""Timing small graphs on a device: patterns, and what their runs took.

    from rlx import bench

    found = bench.run_benchmark(bench.MatmulPattern(8, 64, 64), "cpu", n_warmup=3, n_runs=20)
    print(found.median_ns)

A pattern of one's own has the four methods of ``BenchmarkPattern``. ``rlx bench`` times graphs of
files.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rlx.base.clock import time_ns
from rlx.base.frozen import frozen
from rlx.errors import GraphError, UnsupportedError, shown
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.runtime.devices.available import drain_device
from rlx.runtime.session import CompiledGraph, Session

__all__ = [
    "BenchResult", "BenchmarkPattern", "FftPattern", "LayerNormPattern", "MatmulBiasReluPattern",
    "MatmulPattern", "Tier", "run_benchmark", "run_benchmark_dispatch_only",
]  # fmt: skip

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Tier(StrEnum):
    """How large a pattern is: L1 one op, L2 a few that may fuse."""

    L1 = "l1"
    L2 = "l2"


@runtime_checkable
class BenchmarkPattern(Protocol):
    """A graph to time, and what it runs on."""

    @property
    def tier(self) -> Tier:
        """How large it is."""
        ...

    def name(self) -> str:
        """What it is called, sizes included."""
        ...

    def build(self) -> Graph:
        """The graph, with the values of its params."""
        ...

    def inputs(self) -> Arrays:
        """The arrays of a run, by name."""
        ...


@frozen
class BenchResult:
    """What the runs of a pattern took, in nanoseconds."""

    pattern: str
    tier: Tier
    device: str
    n_runs: int
    samples_ns: tuple[int, ...]

    @property
    def min_ns(self) -> int:
        """The fastest run."""
        return min(self.samples_ns)

    @property
    def max_ns(self) -> int:
        """The slowest run."""
        return max(self.samples_ns)

    @property
    def mean_ns(self) -> float:
        """The mean of the runs."""
        return statistics.fmean(self.samples_ns)

    @property
    def median_ns(self) -> float:
        """The median of the runs."""
        return statistics.median(self.samples_ns)

    def __str__(self) -> str:
        low, middle, high = (n / 1e3 for n in (self.min_ns, self.median_ns, self.max_ns))
        return (
            f"{self.pattern} on {self.device}: median {middle:.1f} us,"
            f" {low:.1f} to {high:.1f} in {self.n_runs} runs"
        )


def _numbers(*shape: int) -> np.ndarray[Any, Any]:
    """The same numbers every time, about normal."""
    return np.random.default_rng(7).standard_normal(shape, np.float32)


@frozen
class MatmulPattern:
    """A product of [m, k] and a param of [k, n]."""

    m: int
    k: int
    n: int
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes."""
        return f"matmul_{self.m}x{self.k}x{self.n}"

    def build(self) -> Graph:
        """``x @ w``."""
        g = Graph(self.name())
        g.set_outputs(g.input("x", [self.m, self.k]) @ g.param("w", value=_numbers(self.k, self.n)))
        return g

    def inputs(self) -> Arrays:
        """The left operand."""
        return {"x": _numbers(self.m, self.k)}


@frozen
class LayerNormPattern:
    """A layer norm over the last of [rows, hidden]."""

    rows: int
    hidden: int
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes."""
        return f"layer_norm_{self.rows}x{self.hidden}"

    def build(self) -> Graph:
        """The norm with its scale and shift as params."""
        g = Graph(self.name())
        x = g.input("x", [self.rows, self.hidden])
        scale = g.param("scale", value=np.ones(self.hidden, np.float32))
        g.set_outputs(g.layer_norm(x, scale, g.param("shift", value=_numbers(self.hidden))))
        return g

    def inputs(self) -> Arrays:
        """What is normalised."""
        return {"x": _numbers(self.rows, self.hidden)}


@frozen
class MatmulBiasReluPattern:
    """A product, a bias and a relu, which fuse."""

    m: int
    k: int
    n: int
    tier = Tier.L2

    def name(self) -> str:
        """Its sizes."""
        return f"matmul_bias_relu_{self.m}x{self.k}x{self.n}"

    def build(self) -> Graph:
        """``relu(x @ w + b)``."""
        g = Graph(self.name())
        y = g.input("x", [self.m, self.k]) @ g.param("w", value=_numbers(self.k, self.n))
        g.set_outputs((y + g.param("b", value=_numbers(self.n))).relu())
        return g

    def inputs(self) -> Arrays:
        """The left operand."""
        return {"x": _numbers(self.m, self.k)}


@frozen
class FftPattern:
    """Complex Fourier transforms of ``batch`` rows of ``n``."""

    batch: int
    n: int
    inverse: bool = False
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes and direction."""
        return f"{'ifft' if self.inverse else 'fft'}_{self.batch}x{self.n}"

    def build(self) -> Graph:
        """The transform of the last axis."""
        g = Graph(self.name())
        x = g.input("x", [self.batch, self.n], "c64")
        g.set_outputs(x.ifft() if self.inverse else x.fft())
        return g

    def inputs(self) -> Arrays:
        """What is transformed."""
        parts = _numbers(2, self.batch, self.n)
        return {"x": (parts[0] + 1j * parts[1]).astype(np.complex64)}


@located
def run_benchmark(
    pattern: BenchmarkPattern, device: str = "cpu", n_warmup: int = 3, n_runs: int = 20
) -> BenchResult:
    """Compile a pattern for a device, run it ``n_warmup`` times, and time ``n_runs`` runs, with
    what crosses to the device and back. Raises what a compile and a run raise."""
    inputs = pattern.inputs()
    return _timed(pattern, device, n_warmup, n_runs, lambda f: lambda: f.run(inputs))


@located
def run_benchmark_dispatch_only(
    pattern: BenchmarkPattern, device: str = "cpu", n_warmup: int = 3, n_runs: int = 20
) -> BenchResult:
    """As ``run_benchmark`` of what a device does alone: inputs are in its memory before, and
    results stay there; a run ends when the device has done it. Where the device is the host nothing
    crosses, and it is ``run_benchmark`` by ``run_slots``."""
    arrays = list(pattern.inputs().values())

    def call(f: CompiledGraph) -> Callable[[], Any]:
        session = Session(device)
        try:
            there = dict(zip(pattern.inputs(), map(session.to_device, arrays), strict=True))
        except UnsupportedError:  # the host's memory is the device's
            return lambda: f.run_slots(*arrays)

        def run() -> None:
            f.run_on_device(there)
            drain_device(session.device)

        return run

    return _timed(pattern, device, n_warmup, n_runs, call)


def _timed(
    pattern: BenchmarkPattern, device: str, n_warmup: int, n_runs: int,
    make: Callable[[CompiledGraph], Callable[[], Any]],
) -> BenchResult:  # fmt: skip
    if not isinstance(pattern, BenchmarkPattern):
        raise GraphError(f"a pattern has tier, name, build and inputs; found {shown(pattern)}")
    for what, n, least in (("n_warmup", n_warmup, 0), ("n_runs", n_runs, 1)):
        if n < least:
            raise GraphError(f"{what} is a number from {least} on, found {n}")
    session = Session(device)
    run = make(session.compile(pattern.build()))
    for _ in range(n_warmup):
        run()
    samples = tuple(time_ns(run)[1] for _ in range(n_runs))
    return BenchResult(pattern.name(), pattern.tier, session.device, n_runs, samples)
