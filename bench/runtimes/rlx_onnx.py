"""RLX on the ONNX file that torch exported."""

from __future__ import annotations

from pathlib import Path

import rlx
from bench.case import Case, Run
from bench.runtimes import EXPORTED


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The graph of the file, compiled; inputs are given by position."""
    graph = rlx.from_onnx(folder / EXPORTED["rlx_onnx"])
    f = rlx.Session("cpu", case.precision, threads=threads).compile(graph)
    feeds = case.feeds()
    given = tuple(feeds[v.name] for v in graph.inputs)
    return lambda: f.run_slots(*given)[0]
