"""Row-wise regions: reductions along the last axes with pointwise ops around them.

What a region computes is read by ``row_region``; here its operands get their places.
"""

from __future__ import annotations

import math

from rlx.codegen.combine import REDUCTIONS
from rlx.kernels.rowwise.config import Reduce
from rlx.kernels.rowwise.region import NotRowwise, RowInput, RowRegion
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.reduce import select as reduce
from rlx.lowering.select.rowwise.match import row_region
from rlx.lowering.select.selector import Selector, Several
from rlx.lowering.select.views import View

__all__ = ["SELECTOR"]

LONGEST_ROW = 1 << 14
"""Elements of a row up to which a kernel of rows also stores what its reductions read. Of longer
rows there may be one alone, where a kernel by elements has work for many threads."""


def _rows(region: Region) -> RowRegion | NotRowwise:
    """The region as a program over rows, or why it is none; built once for equal regions."""

    def build() -> RowRegion | NotRowwise:
        found = row_region(region.nodes, region.outs)
        if isinstance(found, NotRowwise):
            return found
        if not any(isinstance(s, Reduce) for s in found.program.steps):
            return NotRowwise("it reduces nothing")
        if 0 in found.shape:
            return NotRowwise("a dim is empty")
        if any(i.value not in region.leaves for i in found.inputs):
            return NotRowwise("an operand is no value of the region")
        columns = math.prod(found.shape[len(found.shape) - found.trailing :])
        if region.body.joint and columns > LONGEST_ROW:
            return NotRowwise(
                Several(
                    f"one thread would write {len(region.outs)} rows of {columns} elements, and"
                    f" several results have rows of {LONGEST_ROW} at most"
                )
            )
        return found

    return region.body.fact("rows", build)


class Rowwise:
    """Regions whose values are rows, columns or scalars of one row space."""

    def claim(self, region: Region) -> str | None:
        found = _rows(region)
        return found.reason if isinstance(found, NotRowwise) else None

    def lower(self, region: Region, lowering: Lowering) -> None:
        if len(region.nodes) == 1 and region.nodes[0].name in REDUCTIONS:
            (operand,) = region.nodes[0].present
            # A GPU may cut a long row into parts; rows that lie across are columns of a matrix.
            if lowering.shares or _across(lowering.view(region.leaves[operand]), lowering):
                reduce.SELECTOR.lower(region, lowering)
                return
        rows = _rows(region)
        assert isinstance(rows, RowRegion), rows
        views: list[View] = []
        for i in rows.inputs:
            own = _read(i, region, lowering)
            view = own.expand(rows.shape)
            if _across(view, lowering) or not rows.merges(view.strides):
                view = lowering.copied(own).expand(rows.shape)
            views.append(view)
        results = [lowering.result(v) for v in region.op.results]
        _, outputs = rows.dense_strides()
        strides = [v.strides for v in views]
        serial = lowering.target.kernels.serial
        config, launch = rows.launch(strides, outputs, blocks=lowering.shares, serial=serial)
        lowering.launch("rowwise", config, [*views, *results], launch, region.flops)


def _across(view: View, lowering: Lowering) -> bool:
    """Whether a CPU reads a new cache line for each element of a row, where a copy, by tiles, would
    read whole ones."""
    *lead, row = view.strides
    return lowering.target.kernels.serial and row > 1 and 1 in lead


def _read(i: RowInput, region: Region, lowering: Lowering) -> View:
    """An operand in the shape in which the region reads it."""
    view = lowering.view(region.leaves[i.value])
    for shape in (*i.through, i.shape):
        if math.prod(shape) != view.size:
            view = view.expand(shape)
            continue
        found = view.reshape(shape) or lowering.copied(view).reshape(shape)
        assert found is not None, "a dense view takes any shape"
        view = found
    return view


SELECTOR: Selector = Rowwise()
