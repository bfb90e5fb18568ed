"""Compiling a pattern for a device, and timing its runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from rlx.base.clock import time_ns
from rlx.base.frozen import frozen
from rlx.bench.patterns import BenchmarkPattern, Tier
from rlx.errors import GraphError, UnsupportedError, shown
from rlx.ir.builders import located
from rlx.runtime.devices.available import drain_device
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["BenchResult", "run_benchmark", "run_benchmark_dispatch_only"]


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
