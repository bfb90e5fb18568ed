"""A curve as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

__all__ = ["chart"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 220, 64, 34
_POINTS = 1000
"""Points of a curve at most: of more, the mean of each group is drawn."""


def chart(values: Sequence[float], first: int, across: str, up: str) -> str:
    """Numbers over their positions, counted from ``first``, as an SVG; gaps where they are not
    finite. ``across`` and ``up`` are the titles of the axes."""
    points = _points(values, first)
    finite = [y for _, y in points if math.isfinite(y)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    start, end = first, max(first + len(values) - 1, first + 1)

    def x(n: float) -> float:
        return _LEFT + (n - start) / (end - start) * (_WIDTH - _LEFT - 10)

    def y(v: float) -> float:
        return 10 + (high - v) / (high - low) * (_HEIGHT - _BOTTOM - 10)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
        ' style="max-width: 100%" font-family="sans-serif" font-size="11" fill="currentColor">'
    ]
    for v in (low, (low + high) / 2, high):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(v):.1f}" y2="{y(v):.1f}"'
            ' stroke="currentColor" stroke-opacity="0.2"/>'
            f'<text x="{_LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.4g}</text>'
        )
    for n, anchor in ((start, "start"), (end, "end")):
        text = f'<text x="{x(n):.1f}" y="{_HEIGHT - 18}" text-anchor="{anchor}">{n}</text>'
        parts.append(text)
    for run in _runs(points):
        listed = " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in run)
        parts.append(
            f'<polyline points="{listed}" fill="none" stroke="#2a6fdb" stroke-width="1.5"/>'
        )
    middle = (_LEFT + _WIDTH) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(across)}</text>'
        f'<text x="12" y="{_HEIGHT / 2 - 10}" text-anchor="middle"'
        f' transform="rotate(-90 12 {_HEIGHT / 2 - 10})">{escape(up)}</text></svg>'
    )
    return "".join(parts)


def _points(values: Sequence[float], first: int) -> list[tuple[float, float]]:
    each = -(-len(values) // _POINTS) or 1
    groups = [values[i : i + each] for i in range(0, len(values), each)]
    return [(first + i * each + (len(g) - 1) / 2, sum(g) / len(g)) for i, g in enumerate(groups)]


def _runs(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The points that follow each other and are finite."""
    found: list[list[tuple[float, float]]] = [[]]
    for n, v in points:
        if math.isfinite(v):
            found[-1].append((n, v))
        elif found[-1]:
            found.append([])
    return [run for run in found if run]
