"""What a step of a sharded graph takes: compute by the roofline, collectives by latency and rate.

A collective of n ranks sends messages of a latency each, and the bytes of the report at a rate: the
model of Hockney, "The communication challenge for MPP" (1994). What is larger than a cache is sent
at another rate. Reductions and gathers take log2 n
rounds of messages, as by halving and doubling (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005); an exchange takes one for each other rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite, log2
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlx.base.mesh import Mesh
from rlx.base.units import bytes_text
from rlx.distributed.sharding import Sharded
from rlx.errors import GraphError, shown
from rlx.ir.builders import located, public
from rlx.ir.factors import Factors
from rlx.ir.op import Op
from rlx.ir.value import Value, bytes_of

if TYPE_CHECKING:
    from rlx.roofline import Roofline

__all__ = ["Cost", "Network", "cost", "fitted"]


@public
class Network:
    """What connects ranks: a message takes ``latency`` seconds, and a rank sends so many ``bytes``
    a second; of a collective what is beyond so many bytes it sends at another rate, where
    ``beyond`` says both. GraphError unless all are above 0."""

    def __init__(
        self, latency: float, bytes: float, beyond: tuple[float, float] | None = None
    ) -> None:
        given = {"latency": latency, "bytes": bytes}
        if beyond is not None:
            if not isinstance(beyond, tuple) or len(beyond) != 2:
                raise GraphError(f"Network: beyond is {shown(beyond)}, expected two numbers")
            given |= zip(("beyond[0]", "beyond[1]"), beyond, strict=True)
        for what, number in given.items():
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise GraphError(f"Network: {what} is {shown(number)}, expected a number")
            if not number > 0 or not isfinite(number):
                raise GraphError(f"Network: {what} is {number}, expected a number above 0")
        self.latency, self.bytes, self.beyond = float(latency), float(bytes), beyond

    def seconds(self, op: str, sent: float, ranks: int) -> float:
        """What a collective takes in which each of the ranks sends so many bytes."""
        start = messages(op, ranks) * self.latency
        if self.beyond is None or sent <= self.beyond[0]:
            return start + sent / self.bytes
        least, rate = self.beyond
        return start + least / self.bytes + (sent - least) / rate

    def __repr__(self) -> str:
        said = f"{1e6 * self.latency:.3g} us, {self.bytes / 1e9:.3g} GB/s"
        if self.beyond is not None:
            least, rate = self.beyond
            said += f", beyond {bytes_text(round(least))} {rate / 1e9:.3g} GB/s"
        return f"Network({said})"


def messages(op: str, ranks: int) -> int:
    """How many messages a rank waits for, one after another."""
    if op == "all_to_all":
        return ranks - 1
    return ceil(log2(ranks)) * (2 if op == "all_reduce" else 1)


def fitted(points: Sequence[tuple[float, float]], ranks: int) -> Network:
    """The network by which all-reduces, of bytes that a rank sends and seconds, differ least from
    what they take: by the squares of relative errors. With four points and more it has two rates,
    which change at one of them."""
    found = [_fit(points, ranks, None)]
    for least, _ in sorted(points)[1:-1] if len(points) > 3 else ():
        found.append(_fit(points, ranks, least))

    def error(net: Network) -> float:
        return sum((net.seconds("all_reduce", s, ranks) / t - 1) ** 2 for s, t in points)

    return min(found, key=error)


def _fit(points: Sequence[tuple[float, float]], ranks: int, least: float | None) -> Network:
    """The same where the rate changes at so many bytes."""
    n = messages("all_reduce", ranks)
    end = inf if least is None else least
    # n a + b min(s, end) + c (s - end) = t for the latency a, and b and c the seconds of a byte.
    rows = np.array([[n, min(s, end), max(s - end, 0.0)] for s, _ in points])
    rows = rows[:, : 2 if least is None else 3] / np.array([[t] for _, t in points])
    scale = np.abs(rows).max(axis=0)
    found = np.linalg.lstsq(rows / scale, np.ones(len(points)), rcond=None)[0] / scale
    latency, byte, *more = (max(float(x), tiny) for x, tiny in zip(found, LEAST, strict=False))
    return Network(latency, 1 / byte, (end, 1 / more[0]) if more else None)


LEAST = (1e-9, 1e-15, 1e-15)
"""A latency, and the seconds of a byte, that are as good as none."""


class Cost(NamedTuple):
    """A step on a mesh: seconds of ``compute``, of collectives by axis (``exchange``), how many of
    them there are, the bytes that a rank sends, and those of its params and inputs. The collectives
    along the axes ``beside`` run while ranks compute."""

    mesh: Mesh
    compute: float
    exchange: dict[str, float]
    collectives: int
    sent: int
    held: int
    beside: tuple[str, ...] = ()

    @property
    def step(self) -> float:
        """Seconds of a step: it waits for all collectives but those that run beside others, and
        takes no less than those of each axis."""
        waited = sum(s for axis, s in self.exchange.items() if axis not in self.beside)
        return max(self.compute + waited, *self.exchange.values(), 0.0)

    @property
    def busy(self) -> float:
        """The share of a step in which ranks compute."""
        return self.compute / self.step

    def __str__(self) -> str:
        along = [f", {_time(s)} along {axis!r}" for axis, s in self.exchange.items()]
        return (
            f"{self.mesh}: {_time(self.step)} a step, of it {_time(self.compute)} computing"
            f" ({100 * self.busy:.1f} %){''.join(along)}; {self.collectives} collectives,"
            f" {bytes_text(self.sent)} sent and {bytes_text(self.held)} held by a rank"
        )


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{1e6 * seconds:.4g} us"


@located
def cost(
    sharded: Sharded,
    roofline: Roofline,
    networks: Mapping[str, Network] | Network,
    times: int = 1,
    *,
    rates: Mapping[str, float] | None = None,
    beside: Sequence[str] = (),
) -> Cost:
    """What a step of a graph takes on its mesh, ``times`` over, as for so many equal layers.

    ``networks`` is what connects the ranks along each axis, or all of them. A product takes as long
    as its operations or its memory, whichever is longer; reductions, norms and the like take their
    memory. Elementwise ops run together between these, and read and write what they have from or
    make for them. ``rates`` are operations a second of ops by name where they are others, such as
    ``{"attention": 3e14}``; the collectives along the axes ``beside`` run while ranks compute.
    Results are not joined. GraphError for a graph with symbolic sizes, and for one of
    ``manual=True``, which has no report; NameError for an axis that the mesh has not.
    """
    if not isinstance(sharded, Sharded) or sharded.report is None:
        raise GraphError("cost takes what rlx.shard gives without manual=True")
    if sharded.graph.symbols:
        listed = ", ".join(sorted(sharded.graph.symbols))
        raise GraphError(f"cost: the sizes {listed} are not known; bind them first")
    mesh, exchange, other = sharded.mesh, dict[str, float](), rates or {}
    along = tuple([mesh[name].name for name in beside])
    for e in sharded.report.collectives:
        if not e.joins:
            network = networks if isinstance(networks, Network) else networks.get(e.axis)
            if not isinstance(network, Network):
                raise GraphError(f"cost: there is no Network for the axis {e.axis!r} of {mesh}")
            seconds = times * network.seconds(e.op, e.bytes, e.ranks)
            exchange[e.axis] = exchange.get(e.axis, 0.0) + seconds
    nodes = sharded.graph.nodes()
    compute = times * sum(_seconds(op, roofline, other) for op in nodes)
    compute += times * _between(nodes, sharded.graph.outputs) / roofline.bytes
    held = times * bytes_of(sharded.graph.params) + bytes_of(sharded.graph.inputs)
    report = sharded.report
    return Cost(mesh, compute, exchange, times * report.count, times * report.bytes, held, along)


def _elementwise(op: Op) -> bool:
    """Whether it runs together with what is beside it, or moves nothing."""
    return op.pointwise or op.meets or not op.flops_per_element


def _seconds(op: Op, roofline: Roofline, rates: Mapping[str, float]) -> float:
    if _elementwise(op):
        return 0.0
    work = op.cost()
    memory = work.bytes / roofline.bytes
    factors: Factors | None = op.factors() if hasattr(op, "factors") else None
    if factors is not None and factors.multiplies:
        return max(work.flops / rates.get(op.short, roofline.flops), memory)
    return memory


def _between(nodes: Sequence[Op], outputs: Sequence[Value]) -> int:
    """The bytes that elementwise ops read and write, where those that follow each other are one:
    what they have from others, each once, and what others have from them."""
    read, written = set[Value](), set[Value]()
    made = {v for op in nodes if op.pointwise for v in op.results}
    for op in nodes:
        if op.pointwise:
            read.update(v for v in op.present if v not in made)
        elif not _elementwise(op):
            written.update(v for v in op.present if v in made)
    written.update(v for v in outputs if v in made)
    return bytes_of([*read, *written])
