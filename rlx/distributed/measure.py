"""What all-reduces between ranks take here: run as a script by ``rlx bench --comm``, or by
``mpiexec -n 4 python -m rlx.distributed.measure 4 20`` on ranks of MPI."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from rlx.base.clock import Tick
from rlx.base.mesh import Mesh
from rlx.base.units import bytes_text
from rlx.distributed.connections import connect
from rlx.distributed.cost import Network, fitted
from rlx.distributed.launcher import Launch
from rlx.distributed.partition.choose import sent
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.runtime.session import Session

__all__ = ["Measured", "measured"]

SIZES = tuple(4**i << 10 for i in range(1, 8))
"""Bytes of the tensors from whose times the network is fitted: 4 KiB to 16 MiB."""

BETWEEN = tuple(2 * n for n in SIZES[:-1])
"""Others, on which it is tried."""

SMALL, MORE, LARGER = 1 << 20, 50, 5
"""Bytes below which one is repeated so many times as often, and how many times larger ones are."""

ROUNDS = 20
"""Through all sizes; the repetitions are spread over them."""


class Measured(NamedTuple):
    """The medians of all-reduces of so many ranks, in seconds by the bytes of the tensor, and the
    network that fits them; ``between`` are times that it is not fitted to."""

    ranks: int
    seconds: dict[int, float]
    between: dict[int, float]

    @property
    def network(self) -> Network:
        """Latency and rate."""
        points = [(sent("all_reduce", n, self.ranks), t) for n, t in self.seconds.items()]
        return fitted(points, self.ranks)

    def predicted(self, size: int) -> float:
        """The seconds that the network gives."""
        return self.network.seconds("all_reduce", sent("all_reduce", size, self.ranks), self.ranks)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        fit = self.network
        seconds, between = (
            {str(n): t for n, t in times.items()} for times in (self.seconds, self.between)
        )
        return {
            "ranks": self.ranks, "seconds": seconds, "between": between, "latency": fit.latency,
            "bytes": fit.bytes, "beyond": fit.beyond,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.ranks} ranks: {self.network}", "all_reduce    measured   predicted"]
        for n, t in sorted([*self.seconds.items(), *self.between.items()]):
            said = f"{1e6 * t:9.1f} us {1e6 * self.predicted(n):8.1f} us"
            off = f"{100 * (self.predicted(n) / t - 1):+6.0f} %"
            lines.append(f"{bytes_text(n):>10} {said}{off if n in self.between else ''}")
        return "\n".join(lines)


def measured(ranks: int, repeat: int = 20) -> Measured:
    """The median of 5 ``repeat`` all-reduces or more of each size, between processes of this
    machine; RlxError if they fail. The fastest would be one that found the tensor in a cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seconds.json"
        command = (str(Path(__file__).resolve()), str(ranks), str(repeat), str(path))
        status = Launch(command, ranks, 1).run()
        if status:
            raise RlxError(f"bench: the ranks ended with status {status}")
        found = json.loads(path.read_text(encoding="utf-8"))
    return _of({int(n): t for n, t in found.items()}, ranks)


def _of(found: dict[int, float], ranks: int) -> Measured:
    fit, between = ({n: found[n] for n in sizes} for sizes in (SIZES, BETWEEN))
    return Measured(ranks, fit, between)


def _typical(mesh: Mesh, repeat: int) -> dict[int, float]:
    """The medians over some rounds, each of all sizes: where the system runs the ranks, and so what
    lies between them, may change in the middle."""
    calls = {size: _call(mesh, size) for size in sorted((*SIZES, *BETWEEN))}
    times: dict[int, list[float]] = {size: [] for size in calls}
    for _ in range(ROUNDS):
        for size, call in calls.items():
            for _ in range(ceil((MORE if size < SMALL else LARGER) * repeat / ROUNDS)):
                began = Tick.now()
                call()
                times[size].append(Tick.now().seconds_since(began))
    return {size: median(found) for size, found in times.items()}


def _call(mesh: Mesh, size: int) -> Callable[[], object]:
    g = Graph("all_reduce")
    g.set_outputs(g.input("x", [size // 4]).all_reduce(mesh["data"]))
    compiled, x = Session("cpu").compile(g), np.ones(size // 4, np.float32)
    out = [np.empty_like(x)]
    return lambda: compiled.run_into({"x": x}, out)


def main(ranks: int, repeat: int, path: str | None) -> None:
    """A rank of so many: the first of them writes what it measured, or prints it."""
    mesh = Mesh(data=ranks)
    rank = connect(mesh)
    found = _typical(mesh, repeat)
    if rank == 0 and path is None:
        print(_of(found, ranks))
    elif rank == 0 and path is not None:
        Path(path).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
