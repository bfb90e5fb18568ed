"""What a step of a sharded graph takes: compute by the roofline, collectives by latency and rate.

A collective of n ranks sends messages of a latency each, and the bytes of the report at a rate: the
model of Hockney, "The communication challenge for MPP" (1994). Reductions and gathers take log2 n
rounds of messages, as by halving and doubling (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005); an exchange takes one for each other rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isfinite, log2
from typing import TYPE_CHECKING, NamedTuple

from rlx.base.mesh import Mesh
from rlx.base.units import bytes_text
from rlx.distributed.sharding import Sharded
from rlx.errors import GraphError, shown
from rlx.ir.builders import located, public
from rlx.ir.factors import Factors
from rlx.ir.op import Op
from rlx.ir.value import bytes_of

if TYPE_CHECKING:
    from rlx.roofline import Roofline

__all__ = ["Cost", "Network", "cost", "fitted"]


@public
class Network:
    """What connects ranks: a message takes ``latency`` seconds, and a rank sends so many ``bytes``
    a second. GraphError unless both are above 0."""

    def __init__(self, latency: float, bytes: float) -> None:
        for what, number in (("latency", latency), ("bytes", bytes)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise GraphError(f"Network: {what} is {shown(number)}, expected a number")
            if not number > 0 or not isfinite(number):
                raise GraphError(f"Network: {what} is {number}, expected a number above 0")
        self.latency, self.bytes = float(latency), float(bytes)

    def seconds(self, op: str, sent: float, ranks: int) -> float:
        """What a collective takes in which each of the ranks sends so many bytes."""
        return messages(op, ranks) * self.latency + sent / self.bytes

    def __repr__(self) -> str:
        return f"Network({1e6 * self.latency:.3g} us, {self.bytes / 1e9:.3g} GB/s)"


def messages(op: str, ranks: int) -> int:
    """How many messages a rank waits for, one after another."""
    if op == "all_to_all":
        return ranks - 1
    return ceil(log2(ranks)) * (2 if op == "all_reduce" else 1)


def fitted(points: Sequence[tuple[float, float]], ranks: int) -> Network:
    """The network by which all-reduces, of bytes that a rank sends and seconds, differ least from
    what they take: by the squares of relative errors."""
    n = messages("all_reduce", ranks)
    # a n / t + b s / t = 1 for the latency a and the seconds b of a byte.
    rows = [(n / t, s / t) for s, t in points]
    aa, ab, bb = (sum(p[i] * p[j] for p in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(p[i] for p in rows) for i in (0, 1))
    det = aa * bb - ab * ab
    latency, byte = (a * bb - b * ab) / det, (b * aa - a * ab) / det
    return Network(max(latency, 1e-9), 1 / max(byte, 1e-15))


class Cost(NamedTuple):
    """A step on a mesh: seconds of ``compute``, of collectives by axis (``exchange``), how many of
    them there are, the bytes that a rank sends, and those of its params and inputs."""

    mesh: Mesh
    compute: float
    exchange: dict[str, float]
    collectives: int
    sent: int
    held: int

    @property
    def step(self) -> float:
        """Seconds of a step: no collective runs beside a computation."""
        return self.compute + sum(self.exchange.values())

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
    sharded: Sharded, roofline: Roofline, networks: Mapping[str, Network] | Network, times: int = 1
) -> Cost:
    """What a step of a graph takes on its mesh, ``times`` over, as for so many equal layers.

    ``networks`` is what connects the ranks along each axis, or all of them. A product takes as long
    as its operations or its memory, whichever is longer; elementwise ops and those that move data
    run with what is beside them; all others take their memory. Results are not joined. GraphError
    for a graph with symbolic sizes, and for one of ``manual=True``, which has no report.
    """
    if not isinstance(sharded, Sharded) or sharded.report is None:
        raise GraphError("cost takes what rlx.shard gives without manual=True")
    if sharded.graph.symbols:
        listed = ", ".join(sorted(sharded.graph.symbols))
        raise GraphError(f"cost: the sizes {listed} are not known; bind them first")
    mesh, exchange = sharded.mesh, dict[str, float]()
    for e in sharded.report.collectives:
        if not e.joins:
            network = networks if isinstance(networks, Network) else networks.get(e.axis)
            if not isinstance(network, Network):
                raise GraphError(f"cost: there is no Network for the axis {e.axis!r} of {mesh}")
            seconds = times * network.seconds(e.op, e.bytes, e.ranks)
            exchange[e.axis] = exchange.get(e.axis, 0.0) + seconds
    compute = times * sum(_seconds(op, roofline) for op in sharded.graph.nodes())
    held = times * bytes_of(sharded.graph.params) + bytes_of(sharded.graph.inputs)
    report = sharded.report
    return Cost(mesh, compute, exchange, times * report.count, times * report.bytes, held)


def _seconds(op: Op, roofline: Roofline) -> float:
    if op.pointwise or op.meets or not op.flops_per_element:
        return 0.0
    work = op.cost()
    memory = work.bytes / roofline.bytes
    factors: Factors | None = op.factors() if hasattr(op, "factors") else None
    if factors is not None and factors.multiplies:
        return max(work.flops / roofline.flops, memory)
    return memory
