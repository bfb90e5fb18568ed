"""Timing small graphs on a device: patterns, and what their runs took.

    from rlx import bench

    found = bench.run_benchmark(bench.MatmulPattern(8, 64, 64), "cpu", n_warmup=3, n_runs=20)
    print(found.median_ns)

A pattern of one's own has the four methods of ``BenchmarkPattern``. ``rlx bench`` times graphs of
files.
"""

from __future__ import annotations

from rlx.bench.patterns import (
    BenchmarkPattern,
    FftPattern,
    LayerNormPattern,
    MatmulBiasReluPattern,
    MatmulPattern,
    Tier,
)
from rlx.bench.timing import BenchResult, run_benchmark, run_benchmark_dispatch_only

__all__ = [
    "BenchResult", "BenchmarkPattern", "FftPattern", "LayerNormPattern", "MatmulBiasReluPattern",
    "MatmulPattern", "Tier", "run_benchmark", "run_benchmark_dispatch_only",
]  # fmt: skip
