"""A graph as a picture: boxes in layers, each below what it reads, as SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rlx.base.dim_text import without_ranges
from rlx.base.frozen import frozen
from rlx.ir.graph import names_of_outputs

if TYPE_CHECKING:
    from rlx.ir.graph import Graph
    from rlx.types import TensorType

__all__ = ["MOST", "Box", "boxes_of_graph", "short_type", "svg"]

MOST = 600
"""Boxes of a picture that can be looked at."""

_LINE, _CHARACTER, _PAD, _GAP, _LAYER = 15, 6.2, 10, 14, 34
_COLOURS = {
    "input": "#dcebff", "output": "#dcebff", "op": "#f4f4f4", "fused": "#e4f5e0",
}  # fmt: skip


@frozen
class Box:
    """What is computed: its lines, the first of which is its name; the boxes that it reads, by
    number; and the share of a run's time that it takes, if that is known."""

    kind: str
    lines: tuple[str, ...]
    reads: tuple[int, ...] = ()
    share: float | None = None


def short_type(t: TensorType) -> str:
    """A type as ``f32[2, 3]``."""
    return f"{t.dtype.name}[{', '.join(without_ranges(str(d)) for d in t.shape)}]"


def boxes_of_graph(graph: Graph) -> list[Box]:
    """The inputs, nodes and outputs of a graph; the params that a node reads are lines of it."""
    boxes: list[Box] = []
    number: dict[Any, int] = {}
    params = {v: f"{v.name}: {short_type(v.type)}" for v in graph.params}
    for v in graph.inputs:
        number[v] = len(boxes)
        boxes.append(Box("input", (str(v.name), short_type(v.type))))
    for node in graph.nodes():
        if node.short == "constant":
            continue
        reads = tuple(dict.fromkeys(number[v] for v in node.present if v in number))
        held = [params[v] for v in node.present if v in params]
        types = ", ".join(short_type(v.type) for v in node.results)
        for v in node.results:
            number[v] = len(boxes)
        boxes.append(Box("op", (node.short, types, *held), reads))
    for name, v in zip(names_of_outputs(graph), graph.outputs, strict=True):
        reads = (number[v],) if v in number else ()
        boxes.append(Box("output", (f"output {name}", short_type(v.type)), reads))
    return boxes


# -- layout --------------------------------------------------------------------------------


def _layers(boxes: Sequence[Box]) -> tuple[list[list[int]], list[list[int]]]:
    """Boxes by layer, and what each reads in the layer above: an edge that crosses layers goes
    through empty boxes, whose numbers follow those of ``boxes``."""
    rank: list[int] = []
    for b in boxes:
        rank.append(1 + max((rank[n] for n in b.reads), default=-1))
    above: list[list[int]] = [[] for _ in boxes]
    for i, b in enumerate(boxes):
        for n in b.reads:
            at = n
            for layer in range(rank[n] + 1, rank[i]):
                rank.append(layer)
                above.append([at])
                at = len(rank) - 1
            above[i].append(at)
    layers: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for i, r in enumerate(rank):
        layers[r].append(i)
    return layers, above


def _ordered(layers: list[list[int]], above: Sequence[Sequence[int]]) -> None:
    """Sort each layer by the mean place of what it is joined to, downward and upward in turns."""
    below: dict[int, list[int]] = defaultdict(list)
    for i, found in enumerate(above):
        for n in found:
            below[n].append(i)
    for turn in range(6):
        down = turn % 2 == 0
        for layer in layers if down else reversed(layers):
            place = {n: i for row in layers for i, n in enumerate(row)}

            def mean(n: int, place: Mapping[int, int] = place, down: bool = down) -> float:
                joined = above[n] if down else below[n]
                return sum(place[m] for m in joined) / len(joined) if joined else place[n]

            layer.sort(key=mean)


def _columns(
    layers: Sequence[Sequence[int]], above: Sequence[Sequence[int]], widths: Sequence[float]
) -> list[float]:
    """The middle of each box: near that of what it reads, without overlaps."""
    x = [0.0] * len(widths)
    for layer in layers:
        wanted = [sum(x[m] for m in above[n]) / len(above[n]) if above[n] else 0.0 for n in layer]
        right = float("-inf")
        for n, want in zip(layer, wanted, strict=True):
            x[n] = max(want, right + widths[n] / 2)
            right = x[n] + widths[n] / 2 + _GAP
        # The layer as a whole goes where its boxes want to be on average.
        if any(above[n] for n in layer):
            shift = sum(w - x[n] for n, w in zip(layer, wanted, strict=True)) / len(layer)
        else:
            shift = -sum(x[n] for n in layer) / len(layer)
        for n in layer:
            x[n] += shift
    return x


def svg(boxes: Sequence[Box]) -> str:
    """The picture. The fuller the colour of a box, the more of the time it takes."""
    layers, above = _layers(boxes)
    _ordered(layers, above)
    count = len(above)
    widths = [
        2 * _PAD + _CHARACTER * max(map(len, boxes[i].lines)) if i < len(boxes) else 8.0
        for i in range(count)
    ]
    heights = [_LINE * len(b.lines) + _PAD for b in boxes]
    x = _columns(layers, above, widths)
    left = min((x[i] - widths[i] / 2 for i in range(count)), default=0.0) - 10
    wide = max((x[i] + widths[i] / 2 for i in range(count)), default=0.0) + 10 - left
    top, bottom, y = [0.0] * count, [0.0] * count, 10.0
    for layer in layers:
        tall = max((heights[i] for i in layer if i < len(boxes)), default=0)
        for i in layer:
            high = heights[i] if i < len(boxes) else tall
            top[i], bottom[i] = y, y + high
        y += tall + _LAYER
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{y:.0f}"'
        f' viewBox="{left:.0f} 0 {wide:.0f} {y:.0f}" font-family="monospace" font-size="10">'
    ]
    for i, found in enumerate(above):
        for n in found:
            parts.append(_edge(x[n], bottom[n], x[i], top[i], i < len(boxes)))
        if i >= len(boxes):
            parts.append(_edge(x[i], top[i], x[i], bottom[i], False))
    parts += [_drawn(b, x[i], top[i], widths[i], heights[i]) for i, b in enumerate(boxes)]
    return "".join([*parts, "</svg>"])


def _edge(x0: float, y0: float, x1: float, y1: float, arrow: bool) -> str:
    middle = (y0 + y1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    if arrow:
        path += f"M{x1 - 3:.1f} {y1 - 5:.1f}L{x1:.1f} {y1:.1f}L{x1 + 3:.1f} {y1 - 5:.1f}"
    return f'<path d="{path}" fill="none" stroke="#888"/>'


def _drawn(b: Box, x: float, y: float, wide: float, high: float) -> str:
    share = "" if b.share is None else f' fill-opacity="{0.15 + 0.85 * b.share:.2f}"'
    colour = _COLOURS[b.kind] if b.share is None else "#f08030"
    parts = [
        f'<g><rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
        f' rx="4" fill="#fff"/><rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}"'
        f' height="{high:.1f}" rx="4" fill="{colour}"{share} stroke="#777"/>'
    ]
    for n, line in enumerate(b.lines):
        weight = ' font-weight="bold"' if n == 0 else ""
        parts.append(
            f'<text x="{x:.1f}" y="{y + _LINE * (n + 0.95):.1f}" text-anchor="middle"'
            f' fill="#222"{weight}>{escape(line)}</text>'
        )
    return "".join([*parts, "</g>"])
