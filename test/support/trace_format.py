"""A strict reader of Chrome's trace event format, of the part that RLX writes.

What it accepts, Perfetto opens without a warning: https://perfetto.dev/docs/getting-started/other-formats
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Span", "TraceFile", "read_trace"]

METADATA = {"process_name", "thread_name"}


@dataclass(frozen=True)
class Span:
    """An event that took time, in nanoseconds; ``parents`` are the names around it."""

    name: str
    category: str
    thread: int
    begin: int
    end: int
    args: dict[str, Any]
    parents: tuple[str, ...]


@dataclass
class TraceFile:
    """A checked trace: its spans in order, the names of its threads, and how many were dropped."""

    spans: list[Span] = field(default_factory=list[Span])
    threads: dict[int, str] = field(default_factory=dict[int, str])
    dropped: int = 0

    def named(self, name: str) -> list[Span]:
        return [s for s in self.spans if s.name == name]

    def of(self, category: str) -> list[Span]:
        return [s for s in self.spans if s.category == category]


def read_trace(path: Path) -> TraceFile:
    """Read and check a file; AssertionError says what Perfetto would not take."""
    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    assert set(data) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert data["displayTimeUnit"] in ("ms", "ns")
    found = TraceFile(dropped=data["otherData"]["dropped_events"])
    events = data["traceEvents"]
    pids = {e["pid"] for e in events}
    assert len(pids) == 1, f"one process, found {pids}"
    spans: list[dict[str, Any]] = []
    for e in events:
        assert isinstance(e["name"], str) and e["name"], e
        assert isinstance(e["args"], dict), e
        assert all(isinstance(e[k], int) and e[k] > 0 for k in ("pid", "tid")), e
        assert e["ph"] in ("M", "X"), e
        if e["ph"] == "X":
            spans.append(e)
            continue
        assert set(e) == {"ph", "name", "pid", "tid", "args"}, e
        assert e["name"] in METADATA and isinstance(e["args"]["name"], str), e
        if e["name"] == "thread_name":
            assert e["tid"] not in found.threads, f"two names of {e['tid']}"
            found.threads[e["tid"]] = e["args"]["name"]
    assert events[0]["name"] == "process_name"
    _check_spans(spans, found)
    return found


def _no_number(text: str) -> float:
    raise AssertionError(f"{text} is no JSON")


def _check_spans(spans: list[dict[str, Any]], found: TraceFile) -> None:
    """Times rise through the file, and the spans of a thread lie inside one another or apart."""
    open_spans: dict[int, list[Span]] = defaultdict(list)
    last = -1
    for e in spans:
        assert set(e) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}, e
        assert isinstance(e["cat"], str) and e["cat"], e
        assert all(isinstance(e[k], int | float) and math.isfinite(e[k]) for k in ("ts", "dur")), e
        begin, took = round(e["ts"] * 1000), round(e["dur"] * 1000)
        assert begin >= 0 and took >= 0, e
        assert begin >= last, f"{e} begins before the one in front of it"
        assert e["tid"] in found.threads, f"{e} is on a thread without a name"
        last, end, stack = begin, begin + took, open_spans[e["tid"]]
        while stack and stack[-1].end <= begin and not (took == 0 and stack[-1].end == begin):
            stack.pop()
        assert not stack or end <= stack[-1].end, f"{e} ends after {stack[-1]}, inside which it is"
        parents = tuple(s.name for s in stack)
        span = Span(e["name"], e["cat"], e["tid"], begin, end, e["args"], parents)
        stack.append(span)
        found.spans.append(span)
