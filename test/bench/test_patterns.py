"""The patterns of ``rlx.bench`` compute what they say, and their runs are counted and timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import bench
from rlx.bench import timing
from rlx.bench.patterns import _numbers
from rlx.errors import DeviceError, GraphError
from rlx.runtime.devices.available import available_devices

PATTERNS: list[Any] = [
    bench.MatmulPattern(8, 64, 64), bench.LayerNormPattern(32, 128),
    bench.MatmulBiasReluPattern(8, 64, 64), bench.FftPattern(4, 64), bench.FftPattern(3, 20, True),
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name())
def test_a_pattern_runs_and_is_timed(pattern: Any) -> None:
    found = bench.run_benchmark(pattern, "cpu", n_warmup=1, n_runs=4)
    assert (found.pattern, found.device, found.n_runs) == (pattern.name(), "cpu", 4)
    assert found.tier is pattern.tier and len(found.samples_ns) == 4
    assert 0 < found.min_ns <= found.median_ns <= found.max_ns
    assert found.min_ns <= found.mean_ns <= found.max_ns
    assert found.pattern in str(found) and "4 runs" in str(found)


def test_what_patterns_compute() -> None:
    x, w, b, s = (_numbers(*n) for n in ((8, 4), (4, 3), (3,), (4,)))
    expected = [
        (bench.MatmulPattern(8, 4, 3), x @ w),
        (bench.MatmulBiasReluPattern(8, 4, 3), np.maximum(x @ w + b, 0)),
        (bench.LayerNormPattern(8, 4),
         (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) + s),
    ]  # fmt: skip
    for pattern, value in expected:
        found = rlx.Session("cpu").compile(pattern.build()).run(pattern.inputs())[0]
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
    for inverse, transform in ((False, np.fft.fft), (True, np.fft.ifft)):
        p = bench.FftPattern(2, 12, inverse)
        found = rlx.Session("cpu").compile(p.build()).run(p.inputs())[0]
        np.testing.assert_allclose(found, transform(p.inputs()["x"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", [d for d in available_devices() if d != "interpret"])
def test_the_device_alone_is_timed(device: str) -> None:
    found = bench.run_benchmark_dispatch_only(PATTERNS[0], device, 1, 3)
    assert found.device == device and len(found.samples_ns) == 3


def test_runs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = rlx.CompiledGraph.run
    monkeypatch.setattr(rlx.CompiledGraph, "run", lambda f, x: runs.append(1) or run(f, x))
    took = iter([5, 1, 3])
    monkeypatch.setattr(timing, "time_ns", lambda call: (call(), next(took)))
    found = bench.run_benchmark(PATTERNS[0], "interpret", 2, 3)
    assert len(runs) == 5 and found.samples_ns == (5, 1, 3)
    assert (found.min_ns, found.median_ns, found.max_ns, found.mean_ns) == (1, 3, 5, 3)


def test_what_is_refused() -> None:
    p = PATTERNS[0]
    with pytest.raises(GraphError, match="n_runs is a number from 1 on, found 0"):
        bench.run_benchmark(p, "cpu", 1, 0)
    with pytest.raises(GraphError, match="n_warmup is a number from 0 on, found -1"):
        bench.run_benchmark(p, "cpu", -1)
    with pytest.raises(DeviceError, match="did you mean 'cpu'"):
        bench.run_benchmark(p, "cpuu")

    class Half:
        def inputs(self) -> dict[str, Any]:
            return {}

    with pytest.raises(GraphError, match="a pattern has tier, name, build and inputs"):
        bench.run_benchmark(Half(), "cpu")  # type: ignore[arg-type]
    assert rlx.bench is bench
