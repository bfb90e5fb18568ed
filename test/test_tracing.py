"""Traces: the file is what Perfetto opens, holds what ran, and is valid whatever happens."""

from __future__ import annotations

import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import rlx
import rlx.roofline
from rlx import tracing
from rlx.errors import FaultError, TraceError
from rlx.runtime import _native, launches
from support.trace_format import read_trace

ROWS = 600


def two_layers(rows: int = ROWS) -> rlx.CompiledGraph:
    """Two launches in main and one in the prologue; the ranges are cut into chunks."""
    g = rlx.Graph("layers")
    w = g.param("w", [64, 96], value=np.ones((64, 96), np.float32))
    h = (g.input("x", [rows, 64]) @ w).gelu()
    g.set_outputs(h.softmax(axis=-1))
    return rlx.Session("cpu").compile(g)


def feed(rows: int = ROWS) -> np.ndarray:
    return np.ones((rows, 64), np.float32)


@pytest.fixture(autouse=True)
def two_threads():
    before = _native.num_threads()
    _native.set_threads(2)
    yield
    _native.set_threads(before)


# -- what is in it -------------------------------------------------------------------------


def test_a_trace_holds_the_compile_and_every_launch(tmp_path: Path) -> None:
    with rlx.trace(tmp_path / "t.json"):
        f = two_layers()
        for _ in range(3):
            f.run_slots(feed())
    found = read_trace(tmp_path / "t.json")
    assert found.dropped == 0

    compiles = {s.name for s in found.of("compile")}
    assert {"compile", "load", *f.reports[0].compilation.seconds} <= compiles
    assert all(s.parents == ("compile",) for s in found.named("fuse"))
    assert found.named("compile")[0].args == {"graph": "layers"}

    assert [s.parents for s in found.named("run")] == [()] * 3
    assert [s.parents for s in found.named("prologue")] == [("run",)]
    of_main = [s for s in found.of("launch") if s.parents == ("run",)]
    assert [s.args["kernel"] for s in of_main] == ["contraction_1", "rowwise_2"] * 3
    assert [s.name for s in of_main[:2]] == ["matmul+gelu", "softmax"]
    packs = [s for s in found.of("launch") if s.parents == ("run", "prologue")]
    assert [s.args["kernel"] for s in packs] == ["pack_0"]


def test_a_launch_says_the_line_and_the_work(tmp_path: Path) -> None:
    with rlx.trace(tmp_path / "t.json"):
        two_layers().run_slots(feed())
    code, first = inspect.getsourcelines(two_layers)
    line = first + next(i for i, text in enumerate(code) if "gelu" in text)
    product = next(s for s in read_trace(tmp_path / "t.json").of("launch") if s.parents == ("run",))
    assert product.args["at"] == f"{__file__}:{line}"
    assert product.args["flops"] == 2 * ROWS * 64 * 96 + ROWS * 96
    assert product.args["sizes"][:3] == [ROWS, 96, 64]
    assert product.args["range"] > 1


def test_chunks_cover_each_launch_once_and_lie_in_its_time(tmp_path: Path) -> None:
    f = two_layers()
    with rlx.trace(tmp_path / "t.json"):
        for _ in range(20):
            f.run_slots(feed())
    found = read_trace(tmp_path / "t.json")
    chunks = found.of("chunk")
    caller = threading.get_native_id()
    cut = 0
    for launch in found.of("launch"):
        own = [c for c in chunks if launch.begin <= c.begin and c.end <= launch.end]
        if not own:
            continue  # too little work for two
        cut += 1
        parts = sorted((c.args["first"], c.args["last"]) for c in own)
        assert parts[0][0] == 0
        assert parts[-1][1] == launch.args["range"]
        assert all(a[1] == b[0] for a, b in pairwise(parts))
        assert all(c.name == launch.name for c in own)
    assert cut >= 40
    assert all(("run" in c.parents) == (c.thread == caller) for c in chunks)
    names = {found.threads[c.thread] for c in chunks}
    assert names <= {"MainThread", "rlx worker 1"}


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_chunks_are_equal_and_as_many_for_each_thread(tmp_path: Path, threads: int) -> None:
    _native.set_threads(threads)
    several = 0
    for rows in (23, 61, 97, 131, 1000):
        f = two_layers(rows)
        with rlx.trace(tmp_path / "t.json"):
            f.run_slots(feed(rows))
        found = read_trace(tmp_path / "t.json")
        for launch in found.of("launch"):
            own = [c for c in found.of("chunk") if launch.begin <= c.begin and c.end <= launch.end]
            sizes = {c.args["last"] - c.args["first"] for c in own}
            assert max(sizes, default=0) - min(sizes, default=0) <= 1
            assert len(own) <= threads or len(own) % threads == 0
            several += len(own) > threads
    assert several


def test_callers_from_many_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    f = two_layers()
    with rlx.trace(tmp_path / "t.json"):
        callers = [
            threading.Thread(
                target=lambda: [f.run_slots(feed()) for _ in range(20)], name=f"caller {n}"
            )
            for n in range(4)
        ]
        for t in callers:
            t.start()
        rlx.trace.flush()  # while they run
        partial = read_trace(tmp_path / "t.json")
        for t in callers:
            t.join()
    found = read_trace(tmp_path / "t.json")
    runs = Counter(s.thread for s in found.named("run"))
    assert sorted(runs.values()) == [20] * 4
    assert len(partial.spans) <= len(found.spans)


def test_launches_of_what_is_gone_keep_their_names(tmp_path: Path) -> None:
    with rlx.trace(tmp_path / "t.json"):
        two_layers().run_slots(feed())
        gc.collect()
        numbers = len(launches._runtime.known)
    assert "softmax" in {s.name for s in read_trace(tmp_path / "t.json").of("launch")}
    with rlx.trace(tmp_path / "t.json"):
        assert len(launches._runtime.known) < numbers, "the names are kept for ever"


def test_launches_of_nobody_have_a_number(tmp_path: Path) -> None:
    """Such as those of kernels that the roof is measured with."""
    with rlx.trace(tmp_path / "t.json"):
        f = two_layers(4)
        rlx.roofline.measure()
        f.run_slots(feed(4))
    names = {s.name for s in read_trace(tmp_path / "t.json").of("launch")}
    unnamed = {n for n in names if n.startswith("launch ")}
    assert names - unnamed == {"pack for matmul+gelu", "matmul+gelu", "softmax"}
    assert len(unnamed) == 3


# -- off, full, refused --------------------------------------------------------------------


def test_without_a_trace_nothing_is_recorded(tmp_path: Path, monkeypatch) -> None:
    with rlx.trace(tmp_path / "t.json"):
        pass
    monkeypatch.chdir(tmp_path)
    before = _native.trace_events()
    two_layers().run_slots(feed())
    assert _native.trace_events() == before == ([], 0)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_what_has_no_room_is_counted_and_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launches, "CAPACITY", 1)
    monkeypatch.setattr(tracing, "MAX_SPANS", 3)
    f = two_layers()
    with pytest.warns(RuntimeWarning, match="no room"), rlx.trace(tmp_path / "t.json"):
        two_layers(ROWS + 1)  # another graph, which no cache has
        for _ in range(200):
            f.run_slots(feed())
    found = read_trace(tmp_path / "t.json")
    assert len(found.of("compile")) == 3
    assert found.dropped > 3000


def test_one_trace_at_a_time(tmp_path: Path) -> None:
    with (
        rlx.trace(tmp_path / "t.json"),
        pytest.raises(TraceError, match=r"written to .*t\.json"),
        rlx.trace(tmp_path / "u.json"),
    ):
        pass
    read_trace(tmp_path / "t.json")
    with pytest.raises(TraceError, match="RLX_TRACE=FILE"):
        rlx.trace.flush()


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with (
        pytest.raises(TraceError, match="No such file or directory"),
        rlx.trace(tmp_path / "none" / "t.json"),
    ):
        pass
    with rlx.trace(tmp_path / "t.json"):
        pass  # the refused one is not on


# -- whatever happens ----------------------------------------------------------------------


def test_a_fault_leaves_a_valid_file(tmp_path: Path) -> None:
    g = rlx.Graph()
    g.set_outputs(g.gather(g.input("x", [3, 4]), g.input("i", [1], "i64"), axis=0))
    f = rlx.Session("cpu").compile(g)
    with pytest.raises(FaultError), rlx.trace(tmp_path / "t.json"):
        f.run({"x": np.zeros((3, 4), np.float32), "i": [7]})
    found = read_trace(tmp_path / "t.json")
    assert [s.name for s in found.spans] == ["run", "prologue", "gather"]


def script(tmp_path: Path, code: str, **env: str) -> subprocess.Popen[str]:
    """A process that runs ``code`` after the compile of a graph as ``f`` on ``x``."""
    start = (
        "import numpy as np, os, sys, rlx\n"
        "g = rlx.Graph()\n"
        "g.set_outputs(g.input('x', [64, 64]).softmax(axis=-1))\n"
        "f = rlx.Session('cpu', threads=2).compile(g)\n"
        "x = np.ones((64, 64), np.float32)\n"
    )
    root = str(Path(__file__).resolve().parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", start + code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, **env},
    )  # fmt: skip


def test_rlx_trace_traces_a_process(tmp_path: Path) -> None:
    process = script(tmp_path, "f.run_slots(x); print(os.getpid())", RLX_TRACE="run-%p.json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    found = read_trace(tmp_path / f"run-{int(out)}.json")
    assert len(found.named("compile")) == len(found.named("run")) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_a_valid_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    code = "f.run_slots(x); print('ready', flush=True)\nwhile True: f.run_slots(x)"
    process = script(tmp_path, code, RLX_TRACE="t.json")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate()
    assert process.returncode != 0
    found = read_trace(tmp_path / "t.json")
    # A handler of Python's runs at the end; the others end the process at once.
    assert bool(found.named("run")) == (number == signal.SIGINT)
    if number == signal.SIGINT:
        assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    code = (
        "f.run_slots(x)\n"
        "if (child := os.fork()) == 0:\n"
        "    f.run_slots(x)\n"
        "    with rlx.trace('child.json'): f.run_slots(x)\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert len(open('t.json').readlines()) < 9, 'the child wrote it'\n"
    )
    process = script(tmp_path, code, RLX_TRACE="t.json")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert len(read_trace(tmp_path / "t.json").named("run")) == 1
    assert len(read_trace(tmp_path / "child.json").named("run")) == 1


# -- the clock -----------------------------------------------------------------------------


def test_ticks_measure_a_call() -> None:
    early = rlx.Tick.now()
    result, took = rlx.time_ns(lambda: sum(range(1000)))
    late = rlx.Tick.now()
    assert result == 499500
    assert 0 < took <= late.elapsed_ns(early)
    assert early.elapsed_ns(late) < 0
    assert early < late


def test_the_runtime_and_python_measure_by_one_clock(tmp_path: Path) -> None:
    f = two_layers()
    with rlx.trace(tmp_path / "t.json"), tracing.span("around", graph="x"):
        f.run_slots(feed())
    found = read_trace(tmp_path / "t.json")
    assert found.named("run")[0].parents == ("around",)
    assert json.loads(json.dumps(found.named("around")[0].args)) == {"graph": "x"}
