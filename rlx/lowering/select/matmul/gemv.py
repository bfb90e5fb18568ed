"""Products of matrices by one vector each. In panels one lane would be at work, and of one row one
thread. So rows that lie along K are multiplied and summed, with all lanes along K; rows that lie
side by side are columns that are summed with weights, with a row in each lane.

What belongs to a product by one column may be summed in any order that does not depend on the
number of rows. A product of one row by a matrix must have the bits that the row has among others,
and is left to the contraction, unless it is of integers.
"""

from __future__ import annotations

from dataclasses import replace

from rlx.base.guards import is_one
from rlx.codegen.program import Program, Step
from rlx.codegen.strides import ceil_div, row_major
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.reduce import emit as reduce
from rlx.kernels.reduce.emit import ReduceConfig
from rlx.kernels.rowwise import config as rowwise
from rlx.kernels.rowwise.config import Reduce, RowProgram
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View
from rlx.ops.pointwise.cast import Cast
from rlx.types import DType

__all__ = ["lower_by_vector", "lower_rest"]

PART = 512
"""Steps of k of a task of columns."""


def lower_by_vector(
    region: Region, lowering: Lowering, product: Op, program: Program, operands: list[Value]
) -> bool:
    """Lower a product by one column, or of one row of integers; False if it is none, or lies as
    suits no kernel. ``program`` follows the product, on it and its ``operands``."""
    found = _matrix_and_vector(region, lowering, product)
    if found is None:
        return False
    matrix, vector = found
    along = matrix.strides[-1] == 1 or matrix.shape[-1] == 1
    beside = matrix.strides[-2] == 1 or matrix.shape[-2] == 1
    *batch, rows, depth = matrix.shape
    count = 1
    for d in batch:
        count *= d
    flat = matrix.reshape((count, rows, depth)) if beside else None
    if not along and flat is None:
        return False
    result = lowering.result(region.op.results[0])
    total = lowering.fresh(vector.dtype, result.shape) if program.steps else result
    if along:
        _by_rows(lowering, matrix, vector, total, region.flops)
    elif flat is not None:
        vector = vector.reshape((count, depth)) or _dense(lowering, vector, (count, depth))
        _by_columns(lowering, flat.transpose((0, 2, 1)), vector, total, region.flops)
    if program.steps:
        lower_rest(region, lowering, program, operands, total, result)
    return True


def lower_rest(
    region: Region, lowering: Lowering, program: Program, operands: list[Value], total: View,
    result: View,
) -> None:  # fmt: skip
    """What follows a product ``total``, by a launch of its own."""
    sources = [lowering.view(region.leaves[v]).expand(result.shape) for v in operands]
    strides = [v.strides for v in (total, *sources)], [result.strides]
    config, launch = elementwise.launch(program, result.shape, *strides)
    lowering.launch("elementwise", config, [total, *sources, result], launch, 0)


def _matrix_and_vector(region: Region, lowering: Lowering, product: Op) -> tuple[View, View] | None:
    """The matrices [..., rows, K] and the vectors [..., K], broadcast."""
    left, right = product.present
    shape, dt = product.out.type.static_shape, product.out.dtype
    if dt.is_complex or any(v not in region.leaves or v.dtype is not dt for v in (left, right)):
        return None
    is_column = shape[-1] == 1
    is_row = dt.is_int and is_one(shape[-2]) and lowering.static_of(region.leaves[right]) is None
    if not (is_column or is_row):
        return None  # before a view is asked for: weights that are packed by parts would be joined
    a, b = (
        lowering.view(region.leaves[v]).expand((*shape[:-2], *v.type.static_shape[-2:]))
        for v in (left, right)
    )
    turned = b.transpose([*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
    return (a, _first_row(turned)) if is_column else (turned, _first_row(a))


def _first_row(v: View) -> View:
    return replace(v, shape=(*v.shape[:-2], v.shape[-1]), strides=(*v.strides[:-2], v.strides[-1]))


def _dense(lowering: Lowering, v: View, shape: tuple[int, ...]) -> View:
    found = lowering.copied(v).reshape(shape)
    assert found is not None, "a dense view takes any shape"
    return found


def _by_rows(lowering: Lowering, matrix: View, vector: View, total: View, flops: int) -> None:
    """Rows that lie along K."""
    if vector.strides[-1] not in (0, 1):
        vector = lowering.copied(vector)
    program = _multiply_and_sum(total.dtype)
    row = (*vector.strides[:-1], 0, vector.strides[-1])
    views = [matrix, replace(vector, shape=matrix.shape, strides=row)]
    ends = [v.strides for v in views], [(*row_major(matrix.shape[:-1]), 0)]
    config, launch = rowwise.launch(program, matrix.shape, *ends)
    lowering.launch("rowwise", config, [*views, total], launch, flops)


def _multiply_and_sum(dt: DType) -> RowProgram:
    wide = reduce.accumulate_type(dt)
    if dt is wide:
        multiply = Step("mir.mul", (0, 1), (dt, dt), dt)
        return RowProgram((dt, dt), (multiply, Reduce("sum", 2, dt, dt)), (3,))
    widen = [Step(Cast.name, (n,), (dt,), wide, (("to", wide),)) for n in (0, 1)]
    multiply = Step("mir.mul", (2, 3), (wide, wide), wide)
    return RowProgram((dt, dt), (*widen, multiply, Reduce("sum", 4, wide, dt)), (5,))


def _by_columns(lowering: Lowering, source: View, vector: View, total: View, flops: int) -> None:
    """Rows that lie side by side: ``source`` is [batch, K, rows]. How K is cut depends on K alone,
    so that the bits of a row do not depend on the others."""
    count, depth, rows = source.shape
    dt, target = total.dtype, lowering.target.kernels
    parts = ceil_div(depth, PART)
    wide = reduce.accumulate_type(dt) if parts > 1 else dt
    sums = lowering.fresh(wide, (count, parts, rows)) if parts > 1 else total
    step = ceil_div(depth, parts)
    config = ReduceConfig("sum", source.dtype, wide, weighted=True).for_rows(target, step)
    launch = reduce.launch(source.shape, source.strides, rows=step, weights=vector.strides)
    lowering.launch("reduce", config, [source, vector, sums], launch, flops)
    if parts > 1:
        last = ReduceConfig("sum", wide, dt).for_rows(target, parts)
        launch = reduce.launch(sums.shape, sums.strides)
        lowering.launch("reduce", last, [sums, total], launch, sums.size)
