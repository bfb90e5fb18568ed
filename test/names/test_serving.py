"""Streams of runs, recorded runs, metrics, schedules of stages, and what experts were used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compat.telemetry import Histogram, HistogramSnapshot
from rlx.errors import FaultError, GraphError, NameError, ShapeError

X = np.arange(4, dtype=np.float32)


def scaled(factor: float = 2.0, dtype: str = "f32") -> rlx.CompiledGraph:
    g = rlx.Graph("scaled")
    g.set_outputs({"y": g.input("x", [4], dtype) * factor})
    return rlx.Session("cpu").compile(g)


# -- streams -------------------------------------------------------------------------------


def test_a_stream_runs_what_it_was_given_in_order() -> None:
    stream, f = rlx.CommandStream("cpu"), scaled()
    first, second = stream.run(f, {"x": X}), stream.run(f, {"x": X + 1})
    with pytest.raises(GraphError, match=r"the run is queued; submit\(\) its stream"):
        first.result()
    stream.submit()
    with pytest.raises(GraphError, match="the run is submitted"):
        first.result()
    stream.wait()
    assert first.result()[0].tolist() == [0, 2, 4, 6]
    assert second.result()[0].tolist() == [2, 4, 6, 8]
    third = stream.run(f, {"x": X})
    stream.submit_and_wait()
    assert third.result()[0].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("device", [d for d in ("opengl", "vulkan") if rlx.is_available(d)])
def test_a_stream_of_a_gpu_leaves_results_there(device: str) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [4]) * 2.0)
    stream = rlx.CommandStream(device)
    queued = stream.run(rlx.Session(device).compile(g), {"x": X})
    stream.submit_and_wait()
    assert queued.result()[0].numpy().tolist() == [0, 2, 4, 6]


def test_a_run_that_fails_fails_alone() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [4]).gather(g.input("i", [1], "i64")))
    f, stream = rlx.Session("cpu").compile(g), rlx.CommandStream("cpu")
    bad = stream.run(f, {"x": X, "i": np.array([9])})
    good = stream.run(f, {"x": X, "i": np.array([3])})
    stream.submit_and_wait()
    with pytest.raises(FaultError, match="out of range"):
        bad.result()
    assert good.result()[0].tolist() == [3]


def test_a_synchronous_stream_has_nothing_to_wait_for() -> None:
    assert rlx.SyncStream("cpu").run(scaled(), {"x": X}).result()[0].tolist() == [0, 2, 4, 6]
    with pytest.raises(GraphError, match="is of device 'interpret', and the graph is compiled for"):
        rlx.SyncStream("interpret").run(scaled(), {"x": X})
    with pytest.raises(rlx.RlxError, match="not available"):
        rlx.CommandStream("tpu")


# -- recorded runs -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "bf16", "c64"])
def test_recorded_runs_are_made_again(dtype: str, tmp_path: Path) -> None:
    path, x = tmp_path / "runs.jsonl", X.astype(rlx.types.dtype(dtype).numpy)
    with rlx.RunRecorder(scaled(2.0, dtype), path) as recorded:
        y = recorded.run({"x": x})[0]
        recorded.run({"x": x + x})
    assert y.tolist() == (x * 2).tolist()
    with rlx.RunRecorder(scaled(2.0, dtype), path) as more:
        more.run({"x": x})
    found = rlx.replay(path, scaled(2.0, dtype))
    assert [r.number for r in found] == [0, 1, 2] and all(r.same for r in found)
    other = rlx.replay(path, scaled(3.0, dtype))
    assert [r.differences for r in other] == [(3.0,), (6.0,), (3.0,)]
    assert not other[0].same


def test_nan_is_the_same_as_nan(tmp_path: Path) -> None:
    with rlx.RunRecorder(scaled(), tmp_path / "r") as recorded:
        recorded.run({"x": np.array([np.nan, np.inf, 1, 2], np.float32)})
    assert rlx.replay(tmp_path / "r", scaled())[0].same
    assert rlx.replay(tmp_path / "r", scaled(-2.0))[0].differences == (np.inf,)


def test_files_that_are_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for line in ("{", "[]", '{"inputs": {}}', '{"inputs": {"x": "f32:!"}, "outputs": []}'):
        path.write_text(line)
        with pytest.raises(GraphError, match="line 1 is no recorded run"):
            rlx.replay(path, scaled())
    path.unlink()
    with rlx.RunRecorder(scaled(), path) as recorded:
        recorded.run({"x": X})
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "outputs": []}))
    with pytest.raises(ShapeError, match=r"run 0 gives float32\[4\], and gave  as it was"):
        rlx.replay(path, scaled())


# -- metrics -------------------------------------------------------------------------------


def test_metrics_by_name() -> None:
    metrics = rlx.MetricsRegistry()
    metrics.counter("requests").add()
    metrics.counter("requests").add(4)
    h = metrics.histogram("latency")
    for value in (0, 1, 1.9, 2, 3.5, 1024, 1e9):
        h.observe(value)
    found = metrics.snapshot()
    latency = found["latency"]
    assert found["requests"] == 5 and isinstance(latency, HistogramSnapshot)
    assert latency.buckets == (3, 2, *[0] * 8, 1, *[0] * 4, 1)
    assert latency.count == 7 and latency.sum == pytest.approx(1e9 + 1032.4)
    assert latency.mean == pytest.approx(latency.sum / 7)
    assert [latency.quantile(q) for q in (0.0, 0.4, 0.5, 0.8, 1.0)] == [2, 2, 4, 2048, 65536]
    assert HistogramSnapshot((0,) * 16, 0, 0.0).mean == 0
    assert HistogramSnapshot((0,) * 16, 0, 0.0).quantile(0.5) == 0
    with h.timed():
        pass
    assert h.snapshot().count == 8


def test_metrics_that_have_no_meaning() -> None:
    metrics = rlx.MetricsRegistry()
    metrics.counter("a")
    wrong: list[tuple[Any, str]] = [
        (lambda: metrics.histogram("a"), "'a' is a counter, and not a histogram"),
        (lambda: metrics.counter(""), "a metric's name is text, found ''"),
        (lambda: metrics.counter("a").add(-1), "a counter rises, found -1"),
        (lambda: Histogram().observe(-1.0), "from 0 on, found -1"),
        (lambda: Histogram().observe(float("nan")), "from 0 on, found nan"),
        (lambda: Histogram().snapshot().quantile(2), "from 0 to 1, found 2"),
    ]
    for call, why in wrong:
        with pytest.raises(GraphError, match=why):
            call()


# -- schedules of stages -------------------------------------------------------------------


def test_stages_come_after_what_they_need() -> None:
    s = rlx.pipeline_schedule("p", {"d": ["b", "c"], "b": ["a"], "a": [], "c": ["a", "a"]})
    assert s.order == ("a", "b", "c", "d") and s.deps["c"] == ("a",)
    found = s.run({"a": lambda: 1, "b": lambda a: a + 1, "c": lambda a: a * 10,
                   "d": lambda b, c: b + c})  # fmt: skip
    assert found == {"a": 1, "b": 2, "c": 10, "d": 12}


def test_schedules_that_there_are_not() -> None:
    with pytest.raises(
        GraphError, match=r"schedule 'p': a circle: (a needs b needs a|b needs a needs b)"
    ):
        rlx.pipeline_schedule("p", {"a": ["b"], "b": ["a"]})
    with pytest.raises(NameError, match="'b' needs 'aa', which is no stage; did you mean 'a'"):
        rlx.pipeline_schedule("p", {"a": [], "b": ["aa"]})
    with pytest.raises(NameError, match="no function for stage 'a'"):
        rlx.pipeline_schedule("p", {"a": []}).run({"b": int})


# -- experts -------------------------------------------------------------------------------


def mixture() -> rlx.Graph:
    g = rlx.Graph("moe")
    x, w = g.input("x", [5, 3]), g.param("w", value=np.ones((4, 3, 3), np.float32))
    first, second = g.input("first", [5], "i64"), g.input("second", [5], "i64")
    y = g.grouped_matmul(g.grouped_matmul(x, w, first), w, first)
    g.set_outputs({"y": g.grouped_matmul(y, w, second)})
    return g


def test_the_experts_of_rows_are_outputs_and_are_counted() -> None:
    g = mixture()
    f = rlx.Session("cpu").compile(rlx.with_expert_outputs(g))
    feeds = {"x": np.ones((5, 3), np.float32), "first": np.array([0, 1, 1, 3, 1]),
             "second": np.array([2, 2, 0, 0, 0])}  # fmt: skip
    outputs = f.run(feeds)
    np.testing.assert_array_equal(outputs["y"], rlx.interpret(g, feeds)[0])  # type: ignore[call-overload]
    assert outputs["experts.0"].tolist() == [0, 1, 1, 3, 1]  # type: ignore[call-overload]
    assert [v.name for v in g.inputs] == ["x", "first", "second"] and len(g.outputs) == 1
    usage = rlx.ExpertUsage(4)
    usage.add(outputs)
    usage.add(outputs)
    assert usage.rows["experts.0"].tolist() == [2, 6, 0, 2]
    assert usage.most_used(2) == {"experts.0": [1, 0], "experts.1": [0, 2]}
    assert usage.resident_share({"experts.0": [1], "experts.1": [0, 2]}) == (6 + 10) / 20
    assert rlx.ExpertUsage(4).resident_share({}) == 0


def test_what_has_no_experts() -> None:
    with pytest.raises(GraphError, match="has no product by experts"):
        g = rlx.Graph("plain")
        g.set_outputs(g.input("x", [2]).exp())
        rlx.with_expert_outputs(g)
    with pytest.raises(GraphError, match="1 expert or more, found 0"):
        rlx.ExpertUsage(0)
    with pytest.raises(GraphError, match="no outputs of a graph with_expert_outputs"):
        rlx.ExpertUsage(2).add([X])
    outputs = (
        rlx.Session("cpu")
        .compile(rlx.with_expert_outputs(mixture()))
        .run(
            {
                "x": np.ones((5, 3), np.float32),
                "first": np.full(5, 3),
                "second": np.zeros(5, np.int64),
            }
        )
    )
    with pytest.raises(ShapeError, match=r"experts\.0 has an expert out of range for 2 experts"):
        rlx.ExpertUsage(2).add(outputs)
