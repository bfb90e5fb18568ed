"""Cost model of devices: the expected time of a graph, by figures measured on this machine.

A run costs what a run of nothing costs, and for every op the longer of its arithmetic and its
traffic to memory. The figures are measured once a device, through the same ``Session`` that runs
graphs, and kept in the compile cache.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache

import numpy as np

from rlx.base.clock import time_ns
from rlx.base.frozen import frozen
from rlx.ir.graph import Graph
from rlx.runtime import _native
from rlx.runtime.cache import shared
from rlx.runtime.cache.entry import Entry
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.devices.available import full_name
from rlx.runtime.session import Session

__all__ = ["DeviceCost", "calibrated", "estimate_ns", "measure"]

_MATMUL, _STREAM = 256, 1 << 20
"""Rows of the squares that are multiplied, and elements that are added to."""

_RUNS = 5


@frozen
class DeviceCost:
    """What a device reaches: nanoseconds that a run takes at least, floating-point operations and
    bytes a nanosecond."""

    overhead_ns: float
    flops: float
    bytes: float

    def of(self, graph: Graph) -> float:
        """Nanoseconds that one run of a graph is expected to take; dims that are not bound count
        nothing."""
        costs = [node.cost() for node in graph.nodes()]
        return self.overhead_ns + sum(
            max(c.flops / self.flops, c.bytes / self.bytes) for c in costs
        )


def estimate_ns(device: str, graph: Graph) -> float:
    """Nanoseconds that one run of a graph is expected to take on an available device."""
    return calibrated(device).of(graph)


def calibrated(device: str) -> DeviceCost:
    """The figures of a device, measured if they are not known yet."""
    return _calibrated(device, full_name(device), _native.num_threads())


@lru_cache(maxsize=32)
def _calibrated(device: str, name: str, threads: int) -> DeviceCost:
    store = shared.store()
    tools = None if store is None else shared.tools(store)
    if store is None or tools is None:
        return measure(device)
    parts = (Part("device", device), Part("name", name), Part("threads", str(threads)))
    key = Key("device-cost", (*parts, *tools))
    entry = store.read(key)
    if entry is not None:
        return DeviceCost(**json.loads(entry.payload))
    found = measure(device)
    store.write((key, Entry.of(key, json.dumps(asdict(found)).encode())))
    return found


def measure(device: str) -> DeviceCost:
    """Measure a device: some tenths of a second."""
    overhead = _run_ns(device, _added(1))
    square = Graph("matmul")
    x, w = (square.input(n, [_MATMUL, _MATMUL]) for n in ("x", "w"))
    square.set_outputs(x @ w)
    arithmetic = max(1.0, _run_ns(device, square) - overhead)
    traffic = max(1.0, _run_ns(device, _added(_STREAM)) - overhead)
    return DeviceCost(overhead, 2 * _MATMUL**3 / arithmetic, 8 * _STREAM / traffic)


def _added(n: int) -> Graph:
    graph = Graph("add")
    graph.set_outputs(graph.input("x", [n]) + 1.0)
    return graph


def _run_ns(device: str, graph: Graph) -> float:
    """Nanoseconds of the fastest of a few runs."""
    compiled = Session(device).compile(graph)
    feeds = {str(v.name): np.ones(v.type.static_shape, np.float32) for v in graph.inputs}
    compiled.run(feeds)
    return float(min(time_ns(lambda: compiled.run(feeds))[1] for _ in range(_RUNS)))
