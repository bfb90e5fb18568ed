"""fuse: ops that one kernel can run become a ``mir.fused`` region.

Four patterns, in this order, each one sweep in program order: a product, and a convolution, with
its pointwise epilogue; row-wise reductions with the pointwise ops around them; what is left of
pointwise chains.
A region never swallows a value that something outside it uses. Whether a region is right for a
kernel is the family's to say: growth (``growth``) asks its claim, and un-fusing is always inlining.
A pattern whose family the target has no emitter for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rlx._mlir import ir
from rlx.dialects.bridge import create, is_mir, place_of
from rlx.dialects.convert import from_type
from rlx.ir.op import op_class
from rlx.lowering.base import Compilation, RulePass, functions, op_counts
from rlx.lowering.passes.grow import LONGEST, Group, Growth, extend
from rlx.lowering.region import iter_users, producer, sole_user, users
from rlx.lowering.report import MissedFusion, MissReason
from rlx.lowering.rules import splat_of
from rlx.lowering.select.storage_types import is_format
from rlx.lowering.select.table import buffers_of, claim
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import Expand, Reshape
from rlx.ops.nn.normalization import LayerNorm, RmsNorm, Softmax
from rlx.ops.nn.normalization_grad import LayerNormGrad, RmsNormGrad
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.types import Shape

__all__ = ["PATTERNS", "ROW_ROOTS", "Fuse"]

ROW_ROOTS = {
    c.name
    for c in (
        Softmax, LayerNorm, RmsNorm, LayerNormGrad, RmsNormGrad,
        ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd,
    )
}  # fmt: skip
CHEAP = {Constant.name, Expand.name}
"""Ops that cost nothing inside a region, where they are an immediate or an address: copied in."""


_STORED = "what the next region makes is stored once and read again"


class _Full(str):
    """Why a region cannot grow that its family would run: a kernel cannot bind more buffers."""

    __slots__ = ()


class Fuse(RulePass):
    """Merge products, row reductions and pointwise ops into regions."""

    name = "fuse"
    rules = ("contraction", "conv", "rowwise", "elementwise")

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        if compilation.options.dispatch == "native" and compilation.options.fuse:
            for f in functions(module).values():
                for block in f.regions[0].blocks:
                    _Fuser(block, compilation, self).run()
        compilation.fusion.after = op_counts(module)
        return module


class _Fuser:
    def __init__(self, block: ir.Block, compilation: Compilation, owner: Fuse) -> None:
        self.block, self.compilation, self.owner = block, compilation, owner
        apart = compilation.options.force_common
        self.apart = {v for o in block.operations if o.operation.name in apart for v in o.results}
        self.taken = set(self.apart)

    def run(self) -> None:
        ops = [view.operation for view in self.block.operations]
        self.place = {o.results[0]: i for i, o in enumerate(ops) if len(o.results)}
        self.weights = _weights(ops)
        for pattern, roots in PATTERNS.items():
            if pattern not in self.compilation.target.families or not self.owner.applies(pattern):
                continue
            for root in roots(ops):
                if root.results[0] not in self.taken:
                    self.grow(pattern, root)

    # -- growth ----------------------------------------------------------------------------

    def grow(self, pattern: str, root: ir.Operation) -> None:
        """Grow from a root while the family claims the result; make a region of two ops or more."""
        group = Group(root)
        if pattern not in ("contraction", "conv"):
            self.take_producers(pattern, group)
        if pattern != "elementwise":
            self.take_users(pattern, group)
        whole = self.with_cheap(pattern, group.ops)
        gains = len(group.ops) > 1 or any(_counts(o) for o in whole)
        may_gain = root.name in ROW_ROOTS or any(is_format(o) for o in whole)
        if gains or (may_gain and self.refusal(pattern, group) is None):
            self.region(pattern, whole)

    def take_users(self, pattern: str, group: Group) -> None:
        """Append the ops that follow, each the only user of the one before."""

        def follows(v: ir.Value) -> ir.Operation | None:
            user = sole_user(v)
            if user is None or not _pointwise(user) or is_format(user):
                return None
            out = user.results[0]
            inside = out in self.taken or out not in self.place  # of another region
            same = _shape(out) == _shape(v) if pattern == "contraction" else out.type == v.type
            return None if inside or not same else user

        growth = self.extend(pattern, group, group.last.results, follows, lambda op: op.results)
        for op, reason in growth.refused:
            if not isinstance(reason, _Full):
                self.miss(pattern, op, reason)
        if not growth.refused and sole_user(group.last.results[0]) is None:
            self.miss_users(pattern, group.last)

    def take_producers(self, pattern: str, group: Group) -> None:
        """Pull in pointwise producers that only the group uses, nearest first."""

        def precedes(v: ir.Value) -> ir.Operation | None:
            op = producer(v)
            if op is not None and op.name == Expand.name:
                op = producer(op.operands[0])
            if op is None or not (_pointwise(op) or self.taken_by_index(pattern, op)):
                return None
            out = op.results[0]
            inside = out in self.taken or out in group.values
            return op if not inside and self.only_used_by(out, group) else None

        def operands(op: ir.Operation) -> list[ir.Value]:
            if op.name == Gather.name:  # of which only what lies in memory is read
                return []
            return sorted(op.operands, key=lambda v: self.weights.get(v, 0))

        self.extend(pattern, group, operands(group.last), precedes, operands)
        group.ops.sort(key=self.order)

    def taken_by_index(self, pattern: str, op: ir.Operation) -> bool:
        """Whether an op is a gather that pointwise ops may read from, each element by its index.

        What it reads must lie in memory. A pointwise op that others read too might join the region,
        so which of the two does would depend on their order.
        """
        cpu = self.compilation.target.kernels.frame == "cpu"
        if not cpu or pattern != "elementwise" or op.name != Gather.name:
            return False
        makers = ((v, producer(v)) for v in op.operands)
        return all(
            maker is None
            or not (_pointwise(maker) or maker.name == Expand.name)
            or all(u.name == Gather.name for u in iter_users(v))
            for v, maker in makers
        )

    def extend(
        self,
        pattern: str,
        group: Group,
        start: Iterable[ir.Value],
        neighbour: Callable[[ir.Value], ir.Operation | None],
        onward: Callable[[ir.Operation], Iterable[ir.Value]],
    ) -> Growth:
        growth = extend(group, start, neighbour, onward, lambda g: self.refusal(pattern, g))
        if growth.left is not None:
            self.miss(
                pattern,
                growth.left,
                f"the region has {LONGEST} ops, as many as one may have",
                _STORED,
                MissReason.LENGTH,
            )
        for op, reason in growth.refused:
            if isinstance(reason, _Full):
                self.miss(pattern, op, reason, _STORED, MissReason.BUFFERS)
        return growth

    def only_used_by(self, v: ir.Value, group: Group) -> bool:
        for u in iter_users(v):
            if len(u.results) == 0:
                return False
            if u.results[0] in group.values:
                continue
            if u.name != Expand.name or not self.only_used_by(u.results[0], group):
                return False
        return True

    def order(self, op: ir.Operation) -> int:
        return self.place[op.results[0]]

    def with_cheap(self, pattern: str, group: list[ir.Operation]) -> list[ir.Operation]:
        """The group with the cheap ops that it reads, in program order."""
        found = {o.results[0]: o for o in group}
        todo = list(group)
        while todo:
            reader = todo.pop()
            for v in reader.operands if reader.name != Gather.name else ():
                op = producer(v)
                if (
                    op is not None
                    and _cheap(pattern, op)
                    and v not in found
                    and v in self.place
                    and v not in self.apart
                    and _region_leaf(op)
                ):
                    found[v] = op
                    todo.append(op)
        return sorted(found.values(), key=self.order)

    def refusal(self, pattern: str, group: Group) -> str | None:
        """Why the family does not run the group as a region; None if it does."""
        ops = self.with_cheap(pattern, group.ops)
        region = self.compilation.regions.of_ops(ops, ops[-1])
        refused = claim(pattern, region)
        if refused is None:
            many = self.compilation.target.kernels.too_many(buffers_of(region))
            return many and _Full(many)
        return refused

    # -- the region ------------------------------------------------------------------------

    def region(self, kind: str, ops: list[ir.Operation]) -> None:
        """Wrap ops (in program order) in a mir.fused; cheap ops that others use are copied."""
        last = ops[-1]
        out = last.results[0]
        label = "+".join(o.name.split(".")[1] for o in ops if not _cheap(kind, o))
        fused = create(
            "mir.fused", [out.type], [], {"kind": ir.StringAttr.get(kind)},
            regions=1, ip=ir.InsertionPoint(last), loc=ir.Location.fused([o.location for o in ops]),
        )  # fmt: skip
        body = fused.regions[0].blocks.append()
        out.replace_all_uses_with(fused.results[0])
        self.place[fused.results[0]] = self.place[out]
        inside: dict[ir.Value, ir.Value] = {}
        shared_values = _shared(kind, ops)
        for op in ops:
            v = op.results[0]
            shared = v in shared_values
            moved = op.clone(ir.InsertionPoint(body)).operation if shared else op
            if not shared:
                op.detach_from_parent()
                body.append(op)
            for i, x in enumerate(moved.operands):
                moved.operands[i] = inside.get(x, x)
            inside[v] = moved.results[0]
        create("mir.yield", [], [inside[out]], ip=ir.InsertionPoint(body), loc=last.location)
        self.taken |= {fused.results[0], *inside, *inside.values()}
        self.compilation.fusion.fused[f"{kind}: {label}"] += 1
        self.compilation.hit(self.owner.name, kind)

    # -- misses ----------------------------------------------------------------------------

    def miss(
        self,
        pattern: str,
        op: ir.Operation,
        reason: str,
        hint: str = "",
        kind: MissReason = MissReason.REFUSED,
    ) -> None:
        m = MissedFusion(pattern, op.name.split(".")[1], place_of(op), reason, hint, kind)
        self.compilation.fusion.missed.append(m)

    def miss_users(self, pattern: str, op: ir.Operation) -> None:
        found = users(op.results[0])
        if any(_pointwise(u) for u in found):
            names = ", ".join(sorted({u.name.split(".")[-1] for u in found}))
            self.miss(
                pattern,
                op,
                f"its result has {len(found)} uses ({names})",
                "it is stored once and read again",
                MissReason.SEVERAL_USES,
            )


def _pointwise(op: ir.Operation) -> bool:
    return is_mir(op) and op.name not in ("mir.fused", "mir.yield") and op_class(op.name).pointwise


PATTERNS: dict[str, Callable[[list[ir.Operation]], list[ir.Operation]]] = {
    "contraction": lambda ops: [o for o in ops if o.name == MatMul.name],
    "conv": lambda ops: [o for o in ops if o.name in (Conv.name, ConvTranspose.name)],
    "rowwise": lambda ops: [o for o in ops if o.name in ROW_ROOTS],
    "elementwise": lambda ops: [o for o in reversed(ops) if _pointwise(o)],
}
"""The patterns by the family that runs them, in the order of asking, and the ops to start from."""


def _weights(ops: list[ir.Operation]) -> dict[ir.Value, int]:
    """How many pointwise ops, about, lead to a value. A region takes the smaller operands first: so
    one that gets full is cut from few values, as a sum of products from the sum of the first."""
    found: dict[ir.Value, int] = {}
    for op in ops:
        if _pointwise(op) or op.name == Expand.name:
            below = sum(found.get(v, 0) for v in op.operands)
            found[op.results[0]] = min(1 + below, LONGEST)
    return found


def _region_leaf(op: ir.Operation) -> bool:
    """Constants only as splats: other literals are buffers, read like any operand."""
    if op.name != Constant.name:
        return True
    return splat_of(op.results[0]) is not None


def _cheap(pattern: str, op: ir.Operation) -> bool:
    if pattern == "contraction" and is_format(op):
        return True
    return op.name in CHEAP or (pattern == "elementwise" and _counts(op))


def _shape(v: ir.Value) -> Shape:
    return from_type(v.type).shape


def _counts(op: ir.Operation) -> bool:
    """Whether an op counts in integers: an elementwise kernel has the number of each element."""
    if op.name == Reshape.name:
        source = producer(op.operands[0])
        return source is not None and _counts(source) and len(source.attributes["shape"]) == 1
    return op.name == Iota.name and from_type(op.results[0].type).dtype.is_int


def _shared(pattern: str, ops: list[ir.Operation]) -> set[ir.Value]:
    """The results of cheap ops that something outside ``ops`` reads, or that one of these reads:
    what stays where it is needs its operands there."""
    moved = {o.results[0] for o in ops}
    for op in reversed(ops):
        if _cheap(pattern, op) and not all(_within(u, moved) for u in iter_users(op.results[0])):
            moved.discard(op.results[0])
    return {o.results[0] for o in ops} - moved


def _within(op: ir.Operation, values: set[ir.Value]) -> bool:
    return len(op.results) > 0 and op.results[0] in values
