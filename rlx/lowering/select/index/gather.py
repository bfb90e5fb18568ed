"""Gathers: rows of a table copied by index, the table read where it lies."""

from __future__ import annotations

import math
from dataclasses import replace

from rlx._mlir import ir
from rlx.codegen.program import Program
from rlx.dialects.convert import from_attr
from rlx.kernels.elementwise import copy
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.elementwise.gathered_operand import Take
from rlx.kernels.index import gather
from rlx.kernels.index.gather import GatherConfig
from rlx.lowering.region import Region, sole_user
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.index_modes import out_of_range
from rlx.ops.movement.movement import Transpose
from rlx.types import i64

__all__ = ["SELECTOR", "views_of"]


class GatherSelector:
    """A single gather."""

    def claim(self, region: Region) -> str | None:
        if len(region.nodes) != 1 or not isinstance(region.nodes[0], Gather):
            return "it is no single gather"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Gather)
        whole = lowering.view(region.leaves[node.table])
        bits = whole.as_bits(lowering.widest)
        if lowering.target.kernels.serial and math.prod(bits.shape[node.axis + 1 :]) == 1:
            _elements(node, bits, region, lowering)
            return
        table = _rows(node, bits, lowering)
        indices = lowering.dense(region.leaves[node.indices])
        result = lowering.result(region.op.results[0])
        count = math.prod(indices.shape[node.batch_dims :])
        config = GatherConfig(table.dtype.bits, indices.dtype, node.mode)
        error: list[View] = []
        site = 0
        if config.faults:
            site = lowering.site(out_of_range(node, table.shape[2]))
            error = [View.dense(lowering.error, i64, (2,))]
        launch = gather.launch(
            config, table.shape, table.strides, count, site=site, block=lowering.block
        )
        bits = [table, indices, result.as_bits(lowering.widest)]
        lowering.launch("gather", config, [*bits, *error], launch, moved=node.cost().bytes)


def _elements(node: Gather, table: View, region: Region, lowering: Lowering) -> None:
    """Rows of one element: a loop over the result, which reads the table by index."""
    axis, length = node.axis, table.shape[node.axis]
    indices = lowering.view(region.leaves[node.indices])
    like = indices if node.batch_dims == axis and not table.shape[axis + 1 :] else None
    result = _placed(region.op.results[0], like, lowering)
    if not length:  # of which mode "fill" alone has results
        launch = copy.fill_launch(table.dtype.bits, 0, result.shape, result.strides)
        lowering.launch("copy", launch[0], [result.as_bits(lowering.widest)], launch[1])
        return
    index, at = views_of(node, indices, table)
    step = table.strides[axis]
    take = Take(1, 0, node.mode, step == 1)
    error = [View.dense(lowering.error, i64, (2,))] if take.faults else []
    site = lowering.site(out_of_range(node, length)) if take.faults else 0
    config, launch = elementwise.launch(
        Program((index.dtype, at.dtype), (), (1,)), result.shape, [index.strides, at.strides],
        [result.strides], lowering.block, taken=[(take, take.sizes(length, step, site))],
    )  # fmt: skip
    views = [index, at, result.as_bits(lowering.widest), *error]
    lowering.launch("elementwise", config, views, launch, moved=node.cost().bytes)


def views_of(node: Gather, indices: View, table: View) -> tuple[View, View]:
    """The indices, and the elements of the table that the index 0 names, in the shape of the
    gather's result."""
    axis, lead = node.axis, node.batch_dims
    middle, rest = indices.shape[lead:], table.shape[axis + 1 :]
    shape = (*table.shape[:axis], *middle, *rest)
    index = (
        *indices.strides[:lead], *[0] * (axis - lead), *indices.strides[lead:], *[0] * len(rest),
    )  # fmt: skip
    at = (*table.strides[:axis], *[0] * len(middle), *table.strides[axis + 1 :])
    return replace(indices, shape=shape, strides=index), replace(table, shape=shape, strides=at)


def _placed(v: ir.Value, like: View | None, lowering: Lowering) -> View:
    """The place for a result of any strides: where the transpose of it is wanted, or in the order
    in which another view lies."""
    if like is None or like.is_dense or v in lowering.destinations or lowering.in_prologue:
        return lowering.result(v)
    user = sole_user(v)
    if user is not None and user.name == Transpose.name:
        # It is memory that nothing else lies in: a transpose is never written over a value.
        wanted = lowering.destinations.get(user.results[0])
        if wanted is not None:
            perm = from_attr(user.attributes["perm"], "tuple[int, ...]")
            lowering.env[v] = wanted.transpose([perm.index(a) for a in range(len(perm))])
            return lowering.env[v]
    order = sorted(range(len(like.strides)), key=lambda d: -like.strides[d])
    return lowering.result(v, order)


def _rows(node: Gather, view: View, lowering: Lowering) -> View:
    """The table as [batch, outer, length, row] with contiguous rows, by a copy if need be."""
    shape, lead, axis = view.shape, node.batch_dims, node.axis
    groups = (shape[:lead], shape[lead:axis], (shape[axis],), shape[axis + 1 :])
    dims = [math.prod(g) for g in groups]
    found = view.reshape(dims)
    if found is None or (found.shape[3] > 1 and found.strides[3] != 1):
        found = lowering.copied(view).reshape(dims)
    assert found is not None, "a dense view takes any shape"
    return found


SELECTOR: Selector = GatherSelector()
