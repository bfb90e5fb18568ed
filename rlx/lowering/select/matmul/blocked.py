"""Products: the right operand by panels, the left one by rows, and the rest is the epilogue."""

from __future__ import annotations

from collections.abc import Callable

from rlx._mlir import ir
from rlx.base.dims import is_known
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.matmul import amx
from rlx.kernels.matmul import emit as contraction
from rlx.kernels.matmul.dot import group_of
from rlx.kernels.matmul.emit import ContractionConfig, OperandKind
from rlx.kernels.matmul.tile import accumulate_type
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.matmul.batched_small import Operand, is_small, lower_small
from rlx.lowering.select.matmul.gemv import lower_by_vector
from rlx.lowering.select.matmul.pack_rhs import Geometry, Panels, columns_of, packed_rhs
from rlx.lowering.select.matmul.skinny import lower_skinny
from rlx.lowering.select.selector import ProgramBuilder, Selector, spread_source
from rlx.lowering.select.storage_types import below, stored
from rlx.lowering.select.views import View
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import literal
from rlx.ops.movement.movement import Expand
from rlx.types import DType, Shape

__all__ = ["INTEGERS", "SELECTOR"]


class Contraction:
    """A product of floats, or of 8-bit integers into i32, then pointwise ops of its shape."""

    def claim(self, region: Region) -> str | None:
        product = next((n for n in region.nodes if isinstance(n, MatMul)), None)
        formats = stored(product, region.nodes) if product else set[Op]()
        work = [n for n in region.nodes if not isinstance(n, Expand) and literal(n) is None]
        work = [n for n in work if n not in formats]
        if product is None or work[0] is not product:
            return "it does not begin with a matmul"
        if not product.out.dtype.is_float and len(formats) < len(set(product.present)):
            return f"the matmul is on {product.out.dtype}, and not all of it from 8 bits"
        if _is_empty(product):
            return "a dim is empty"
        if any(_leaf(v, product) not in region.leaves for v in product.present):
            return "an operand of the matmul is computed inside"
        for n in work[1:]:
            if not n.pointwise:
                return f"{n.short} is not pointwise"
            if n.out.shape != product.out.shape:
                return f"{n.short} is on another shape than the product"
            for v in n.present:
                reason = self._operand(v, product, region)
                if reason is not None:
                    return reason
        return None

    def _operand(self, v: Value, product: Op, region: Region) -> str | None:
        source = spread_source(v)
        if source.op is not None:
            number = literal(source.op) is not None
            if v.shape == product.out.shape and (source is v or number):
                return None
            if not number:
                return "an operand is broadcast from inside"
        if kind_of(source.shape, product.out.shape) is None:
            return f"an operand {list(source.shape)} is no row, column or matrix of the product"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        product = next(n for n in region.nodes if isinstance(n, MatMul))
        builder = ProgramBuilder([product.out])
        formats = stored(product, region.nodes)
        read = {v for n in region.nodes if n is not product for v in n.present}
        for n in region.nodes:
            if n.pointwise and (n not in formats or n.out in read):
                builder.add(n)
        program = builder.build(region.outs[0])
        g = Geometry.of(product)
        out_shape = product.out.type.static_shape
        leaves = [_leaf(v, product) for v in product.present]
        left, right = (region.leaves[v] for v in leaves)
        sources = [spread_source(v) for v in builder.inputs[1:]]
        if lowering.shares:
            from rlx.lowering.select.matmul.gpu import lower_product

            extra_leaves = [region.leaves[v] for v in sources]
            lower_product(region, lowering, product, program, (left, right), extra_leaves)
            return
        if lower_by_vector(region, lowering, product, program, sources):
            return
        if lower_skinny(region, lowering, product, program, sources, g):
            return
        if is_small(region, lowering, product, g):
            found = [_Operand.of(v, region, lowering, out_shape, g) for v in sources]
            beside: list[Operand] = [(o.view, o.kind, o.strides) for o in found]
            lower_small(region, lowering, product, program, beside, g)
            return
        a, lda, a_batch, across = _rows(lowering, left, product.present[0], out_shape, g)
        types = a.dtype, leaves[1].dtype, product.out.dtype
        panels, by_amx = _unit(lowering.target.kernels, *types, g.k)
        operands = [_Operand.of(source, region, lowering, out_shape, g) for source in sources]
        result = lowering.result(region.op.results[0])
        may_lie = not by_amx and a.dtype is accumulate_type(a.dtype)
        shape = product.present[1].type.static_shape
        for b in packed_rhs(lowering, right, shape, out_shape, g, panels, may_lie):
            config = ContractionConfig(
                a.dtype, b.view.dtype, program, tuple(o.kind for o in operands), panels.group,
                by_amx, across, b.step is not None and not b.turned, b.turned, b.narrow,
            ).for_sizes(lowering.target.kernels, g.m, g.k)  # fmt: skip
            launch = contraction.launch(
                config, lowering.target.kernels, m=g.m, n=b.columns, k=g.k, batch=g.batch, lda=lda,
                ldb=b.step, ldc=g.n, a_batch=a_batch, b_batch=b.batch,
                operands=[o.strides for o in operands],
            )  # fmt: skip
            extra = [o.columns(b.first, b.columns) for o in operands]
            views = [a, b.view, *extra, columns_of(result, b.first, b.columns)]
            lowering.launch("contraction", config, views, launch, region.flops * b.columns // g.n)


class IntegerContraction(Contraction):
    """A product of integers by itself."""

    def claim(self, region: Region) -> str | None:
        product = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(product, MatMul):
            return "it is no single matmul"
        if not product.out.dtype.is_int:
            return f"it is on {product.out.dtype}"
        return "a dim is empty" if _is_empty(product) else None


def _is_empty(product: Op) -> bool:
    dims = product.out.shape + product.present[0].shape
    return not all(is_known(d) and d > 0 for d in dims)


@frozen
class _Operand:
    """What the epilogue reads besides the product, and its distances between rows and between batch
    elements."""

    view: View
    kind: OperandKind
    strides: tuple[int, int]

    @staticmethod
    def of(
        source: Value, region: Region, lowering: Lowering, out: tuple[int, ...], g: Geometry
    ) -> _Operand:
        kind = kind_of(source.shape, out)
        assert kind is not None
        row = {"full": g.n, "column": 1}.get(kind, 0)
        batch = 0 if row == 0 or g.batch == 1 else g.m * row
        return _Operand(lowering.dense(region.leaves[source]), kind, (row, batch))

    def columns(self, first: int, count: int) -> View:
        """The part that some columns of the product read."""
        return columns_of(self.view, first, count) if self.kind in ("row", "full") else self.view


def _unit(target: KernelTarget, a: DType, b: DType, c: DType, k: int) -> tuple[Panels, bool]:
    """What multiplies, the best that the target has for a K: AMX, else instructions on groups, else
    one element at a time. The choice depends on nothing else, so that a row's bits do not. Sums of
    integers in floats have no instruction."""
    if c.is_float and not a.is_float and not b.is_float:
        return Panels(b, 1), False
    if amx.serves(target, a, b, k):
        return Panels(b, 4 // b.bytes), True
    group = group_of(target, a, b)
    return Panels(b, group if k % group == 0 else 1), False


def _leaf(v: Value, product: Op) -> Value:
    """What a product reads of an operand."""
    return spread_source(below(spread_source(v), product))


def kind_of(shape: Shape, out: Shape) -> OperandKind | None:
    """How an operand that broadcasts to ``out`` is addressed by row and column of the product."""
    own = (*([1] * (len(out) - len(shape))), *shape)
    kinds: dict[OperandKind, Callable[[], bool]] = {
        "full": lambda: own == out,
        "scalar": lambda: all(d == 1 for d in own),
        "row": lambda: own[-1] == out[-1] and all(d == 1 for d in own[:-1]),
        "column": lambda: own[-1] == 1 and own[:-1] == out[:-1],
    }
    return next((kind for kind, is_it in kinds.items() if prefers(is_it, otherwise=False)), None)


def _rows(
    lowering: Lowering, leaf: ir.Value, v: Value, out: tuple[int, ...], g: Geometry
) -> tuple[View, int, int, bool]:
    """The left operand as [batch, rows, K]: its view, the distance between rows (between columns if
    it lies across) and between batch elements, and whether it does."""
    wide = v.type.static_shape if g.shared else (*out[:-2], *v.type.static_shape[-2:])
    view = lowering.view(leaf).expand(v.type.static_shape)
    for attempt in (view, None):
        view = attempt or _dense(lowering, leaf, view)
        flat = view.expand(wide).reshape((g.batch, g.m, g.k))
        if flat is None:
            continue
        batch, row, column = flat.strides
        if column == 1 or g.k == 1:
            return flat, row, batch, False
        if (row == 1 or g.m == 1) and _across_pays(flat, column, g):
            return flat, column, batch, True
    # Matrices that broadcast along only some batch dims are copied once a batch element.
    return lowering.copied(view.expand(wide)), g.k, g.m * g.k, False


def _dense(lowering: Lowering, leaf: ir.Value, view: View) -> View:
    """A dense copy, which other products find too unless the leaf is broadcast first."""
    whole = lowering.view(leaf).shape == view.shape
    return lowering.dense(leaf) if whole else lowering.copied(view)


ACROSS_STEPS = 512
"""Steps of k up to which the cache lines of an operand that lies across stay in the L1 cache."""
ACROSS_COLUMNS = 96
"""Columns up to which such an operand is read but once."""
CROWDED_BYTES = 2048
"""Rows that are a multiple of this apart meet in few sets of the caches."""


def _across_pays(a: View, column: int, g: Geometry) -> bool:
    """Whether a left operand that lies across is read as it is, and not copied first."""
    if a.dtype is not accumulate_type(a.dtype):
        return False  # it is copied as it is converted
    crowded = column * a.dtype.bytes % CROWDED_BYTES == 0
    return g.n <= ACROSS_COLUMNS or (g.k <= ACROSS_STEPS and not crowded)


SELECTOR: Selector = Contraction()
INTEGERS: Selector = IntegerContraction()
