"""fuse: ops that one kernel can run become a ``mir.fused`` region.

The patterns (``patterns``) are tried in their order, each in one sweep in program order. The
results of a region are the values that ops outside use: several only if its pattern ``stores``. The
family decides whether a kernel runs a region: growth (``grow``) asks its claim. Un-fusing is always
inlining. A pattern whose family the target has no emitter for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rlx._mlir import ir
from rlx.dialects.bridge import create, place_of
from rlx.dialects.convert import from_type
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions, op_counts
from rlx.lowering.pass_base import RulePass
from rlx.lowering.passes.dataflow import Dataflow
from rlx.lowering.passes.grow import LONGEST, Group, Growth, extend
from rlx.lowering.passes.patterns import PATTERNS, Pattern, counts, is_pointwise, region_leaf
from rlx.lowering.passes.placement import Extent
from rlx.lowering.report import MissedFusion, MissReason
from rlx.lowering.select.selector import Several
from rlx.lowering.select.storage_types import is_format
from rlx.lowering.select.table import buffers_of, claim
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.movement import Expand
from rlx.types import Shape

__all__ = ["Fuse"]

MOST_RESULTS = 8
"""The most results of a region: a kernel that writes more streams is slower than two kernels."""

LOOKS = 8
"""Users of a value that are asked whether they join."""

_STORED = "what the next region makes is stored once and read again"


class _Full(str):
    """Why a region does not grow though its family would run it: a kernel binds no more buffers."""

    __slots__ = ()


class Fuse(RulePass):
    """Merge products, row reductions and pointwise ops into regions."""

    name = "fuse"
    rules = tuple(PATTERNS)

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        if compilation.options.dispatch == "native" and compilation.options.fuse:
            for name, f in functions(module).items():
                for block in f.regions[0].blocks:
                    _Fuser(block, compilation, self, stores=name != "prologue").run()
        compilation.fusion.after = op_counts(module)
        return module


class _Fuser:
    """``stores`` says whether regions may have several results. They may not in the prologue, whose
    values are computed on demand and kept."""

    def __init__(
        self, block: ir.Block, compilation: Compilation, owner: Fuse, *, stores: bool
    ) -> None:
        self.stores = stores
        self.block, self.compilation, self.owner = block, compilation, owner
        apart = compilation.options.force_common
        self.taken = {v for o in block.operations if o.operation.name in apart for v in o.results}
        self.below: dict[ir.Value, Mapping[ir.Value, ir.Operation]] = {}

    def run(self) -> None:
        ops = [view.operation for view in self.block.operations]
        self.flow = Dataflow(ops)
        self.apart = {*self.taken, *(o.results[0] for o in ops if not region_leaf(o))}
        self.weights = _weights(ops)
        for name, pattern in PATTERNS.items():
            if name not in self.compilation.target.families or not self.owner.applies(name):
                continue
            self.below.clear()
            for root in [o for o in (reversed(ops) if pattern.last_first else ops)]:
                if pattern.roots(root) and root.results[0] not in self.taken:
                    self.grow(pattern, root)

    # -- growth ----------------------------------------------------------------------------

    def grow(self, pattern: Pattern, root: ir.Operation) -> None:
        """Grow from a root while the family claims the result; make a region of two ops or more."""
        group = Group(root)
        if pattern.producers:
            self.take_producers(pattern, group, root)
        if pattern.users:
            self.take_users(pattern, group)
        if pattern.stores and self.stores:
            self.take_stored(pattern, group)
        whole = self.extent(pattern, group.ops)
        gains = len(group.ops) > 1 or any(counts(o) for o in whole.ops)
        may_gain = root.name in pattern.alone or any(is_format(o) for o in whole.ops)
        if gains or (may_gain and self.refusal(pattern, group) is None):
            self.region(pattern, whole)

    def take_users(self, pattern: Pattern, group: Group) -> None:
        """Append the ops that follow, each the only user of the one before."""

        def follows(v: ir.Value) -> ir.Operation | None:
            user = self.sole_user(v)
            if user is None or not self.may_follow(user):
                return None
            out = user.results[0]
            same = _shape(out) == _shape(v) if pattern.retypes else out.type == v.type
            return user if same else None

        growth = self.extend(pattern, group, group.last.results, follows, lambda op: op.results)
        for op, reason in growth.refused:
            if not isinstance(reason, _Full):
                self.miss(pattern, op, reason)
        if not growth.refused and self.sole_user(group.last.results[0]) is None:
            self.miss_users(pattern, group)

    def may_follow(self, op: ir.Operation) -> bool:
        """Whether an op may join behind another: it is pointwise, and in no region yet."""
        if not is_pointwise(op) or is_format(op):
            return False
        out = op.results[0]
        return out not in self.taken and out in self.flow

    def take_producers(self, pattern: Pattern, group: Group, of: ir.Operation) -> None:
        """Pull in pointwise producers of what an op reads that only the group uses, nearest
        first."""

        def precedes(v: ir.Value) -> ir.Operation | None:
            op = self.joins(pattern, group, v)
            return op if op is not None and self.only_used_by(op.results[0], group) else None

        growth = self.extend(pattern, group, self.operands(of), precedes, self.operands)
        for op, reason in growth.refused if pattern.users else ():
            if not isinstance(reason, _Full | Several):
                self.miss(pattern, op, reason)
        group.ops.sort(key=self.flow.of)

    def operands(self, op: ir.Operation) -> list[ir.Value]:
        """What an op reads, the values of fewest ops first; of a gather what lies in memory is
        read."""
        if op.name == Gather.name:
            return []
        return sorted(self.flow.operands(op), key=lambda v: self.weights.get(v, 0))

    def sole_user(self, v: ir.Value) -> ir.Operation | None:
        """The op that alone uses a value, however often; None if there are several or none."""
        found = self.flow.readers(v)
        return found[0] if found and all([u == found[0] for u in found[1:]]) else None

    def joins(self, pattern: Pattern, group: Group, v: ir.Value) -> ir.Operation | None:
        """The op that makes a value, or what it broadcasts, if it may join a group."""
        op = self.flow.makers.get(v)
        if op is not None and op.name == Expand.name:
            op = self.flow.makers.get(self.flow.operands(op)[0])
        if op is None or not (is_pointwise(op) or self.taken_by_index(pattern, op)):
            return None
        out = op.results[0]
        return None if out in self.taken or out in group.values else op

    def taken_by_index(self, pattern: Pattern, op: ir.Operation) -> bool:
        return self.compilation.target.kernels.serial and pattern.gathers(op)

    def extend(
        self,
        pattern: Pattern,
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
        for u, out in zip(self.flow.readers(v), self.flow.read_by(v), strict=True):
            if out is None:
                return False
            if out in group.values:
                continue
            if u.name != Expand.name or not self.only_used_by(out, group):
                return False
        return True

    def extent(self, pattern: Pattern, group: list[ir.Operation]) -> Extent:
        """The region of a group, with the cheap ops that it reads."""
        found = {o.results[0]: o for o in group}
        for v in list(found):
            found |= self.cheap_below(pattern, v)
        return Extent(found, self.flow, pattern.cheap)

    def cheap_below(self, pattern: Pattern, v: ir.Value) -> Mapping[ir.Value, ir.Operation]:
        """The cheap ops that the maker of a value reads, by their results."""
        known = self.below.get(v)
        if known is not None:
            return known
        found: dict[ir.Value, ir.Operation] = {}
        todo = [self.flow.makers[v]]
        while todo:
            reader = todo.pop()
            for x in self.flow.operands(reader) if reader.name != Gather.name else ():
                op = self.flow.makers.get(x)
                if op is not None and x not in found and x not in self.apart and pattern.cheap(op):
                    found[x] = op
                    todo.append(op)
        self.below[v] = found
        return found

    def refusal(self, pattern: Pattern, group: Group) -> str | None:
        """Why the family does not run the group as a region; None if it does."""
        extent = self.extent(pattern, group.ops)
        ops, outs = extent.ops, extent.outs
        if len(outs) > 1:
            if len(outs) > MOST_RESULTS:
                return Several(f"it has {len(outs)} results, and a region {MOST_RESULTS} at most")
            if len({v.type for v in outs[1:]}) > 1:
                return Several("its results are of several types")
            if extent.seat() is None:
                return "it reads what is computed from one of its results"
        region = self.compilation.regions.of_ops(ops, ops[-1], outs, self.flow.look)
        refused = claim(pattern.name, region)
        if refused is None:
            many = self.compilation.target.kernels.too_many(buffers_of(region))
            return many and _Full(many)
        return refused

    # -- several results -------------------------------------------------------------------

    def take_stored(self, pattern: Pattern, group: Group) -> None:
        """Pull in pointwise producers whose values others use too, each with the producers that
        only the group then uses; then siblings, the pointwise users of values that are stored."""

        def precede(v: ir.Value) -> list[ir.Operation]:
            op = self.joins(pattern, group, v)
            return [] if op is None or self.only_used_by(op.results[0], group) else [op]

        size = len(group.ops)
        start = [v for op in group.ops for v in self.operands(op)]
        self.join_all(pattern, group, start, precede, self.operands, max)
        if pattern.siblings and len(group.ops) > size:
            stored = self.extent(pattern, group.ops).outs
            self.join_all(
                pattern, group, stored,
                lambda v: self.flow.readers(v)[:LOOKS], lambda op: op.results, min,
            )  # fmt: skip

    def join_all(
        self,
        pattern: Pattern,
        group: Group,
        start: Iterable[ir.Value],
        near: Callable[[ir.Value], Iterable[ir.Operation]],
        onward: Callable[[ir.Operation], Iterable[ir.Value]],
        nearest: Callable[..., ir.Value],
    ) -> None:
        """Let the ops ``near`` values join, each with the producers that only the group then uses,
        and go on ``onward``. Ops are tried one by one, since one is refused for where it stands
        more than for what it is; ``LOOKS`` refusals end the search. ``nearest`` picks the next
        value, the last or the first in program order, so that no op depends on one that is yet to
        be tried."""
        todo, asked, in_vain = set(start), set[ir.Value](), 0
        while todo and in_vain < LOOKS:
            v = nearest(todo, key=self.flow.at)
            todo.remove(v)
            for op in near(v):
                if not self.may_follow(op):
                    continue
                out = op.results[0]
                if out in asked or out in group.values or len(group.ops) == LONGEST:
                    continue
                asked.add(out)
                before = set(group.values)
                group.add(op)
                reason = self.refusal(pattern, group)
                if reason is None:
                    self.take_producers(pattern, group, op)
                    new = [o for o in group.ops if o.results[0] not in before]
                    todo |= {x for o in new for x in onward(o)}
                    continue
                group.cut(len(before))
                in_vain += 1
                if isinstance(reason, _Full):
                    self.miss(pattern, op, reason, _STORED, MissReason.BUFFERS)
                elif isinstance(reason, Several):
                    self.miss(pattern, op, reason, _STORED, MissReason.SEVERAL_USES)
        group.ops.sort(key=self.flow.of)

    # -- the region ------------------------------------------------------------------------

    def region(self, pattern: Pattern, extent: Extent) -> None:
        """Wrap ops in a mir.fused; cheap ops that others use are copied."""
        ops, outs, flow, seat = extent.ops, extent.outs, self.flow, extent.seat()
        assert seat is not None, "the region was not refused"
        label = "+".join(o.name.split(".")[1] for o in ops if not pattern.cheap(o))
        fused = create(
            "mir.fused", [v.type for v in outs], [], {"kind": ir.StringAttr.get(pattern.name)},
            regions=1, ip=ir.InsertionPoint(seat), loc=ir.Location.fused([o.location for o in ops]),
        )  # fmt: skip
        body = fused.regions[0].blocks.append()
        flow.put(fused, flow.of(seat))
        read = [v for op in ops for v in flow.operands(op)]
        flow.forget([*ops, *(u for v in outs for u in flow.readers(v))], [*read, *outs])
        stands_for: dict[ir.Value, ir.Value] = {}
        for v, result in zip(outs, fused.results, strict=True):
            v.replace_all_uses_with(result)
            stands_for[v] = result
        inside: dict[ir.Value, ir.Value] = {}
        for op in ops:
            v = op.results[0]
            shared = v not in extent.moved
            moved = op.clone(ir.InsertionPoint(body)).operation if shared else op
            if not shared:
                op.detach_from_parent()
                body.append(op)
            for i, x in enumerate(moved.operands):
                moved.operands[i] = inside.get(x, x)
            inside[v] = inside[stands_for.get(v, v)] = moved.results[0]
        ends = [inside[v] for v in outs]
        create("mir.yield", [], ends, ip=ir.InsertionPoint(body), loc=ops[-1].location)
        self.below.clear()  # an op may be cheap because of what reads it
        self.taken |= {*fused.results, *inside, *inside.values()}
        said = f" ({len(outs)} results)" if len(outs) > 1 else ""
        self.compilation.fusion.fused[f"{pattern.name}: {label}{said}"] += 1
        self.compilation.hit(self.owner.name, pattern.name)

    # -- misses ----------------------------------------------------------------------------

    def miss(
        self,
        pattern: Pattern,
        op: ir.Operation,
        reason: str,
        hint: str = "",
        kind: MissReason = MissReason.REFUSED,
    ) -> None:
        name = op.name.split(".")[1]
        m = MissedFusion(pattern.name, name, place_of(op), reason, hint, kind)
        self.compilation.fusion.missed.append(m)

    def miss_users(self, pattern: Pattern, group: Group) -> None:
        """Report a value that is stored, and read again by a pointwise op that could follow at
        once. A user that also needs something computed from the value in between is no loss."""
        found = self.flow.readers(group.last.results[0])
        if any(is_pointwise(u) and self.could_follow(pattern, group, u) for u in found):
            names = ", ".join(sorted({u.name.split(".")[-1] for u in found}))
            self.miss(
                pattern,
                group.last,
                f"its result has {len(found)} uses ({names})",
                "it is stored once and read again",
                MissReason.SEVERAL_USES,
            )

    def could_follow(self, pattern: Pattern, group: Group, op: ir.Operation) -> bool:
        if op.results[0] not in self.flow:  # it lies in a region that the text has already
            return False
        return self.extent(pattern, [*group.ops, op]).seat() is not None


def _weights(ops: list[ir.Operation]) -> dict[ir.Value, int]:
    """Roughly how many pointwise ops lead to a value. A region takes operands with fewer ops first,
    so that one that fills up is cut where few values cross: a long sum between its terms."""
    found: dict[ir.Value, int] = {}
    for op in ops:
        if is_pointwise(op) or op.name == Expand.name:
            below = sum(found.get(v, 0) for v in op.operands)
            found[op.results[0]] = min(1 + below, LONGEST)
    return found


def _shape(v: ir.Value) -> Shape:
    return from_type(v.type).shape
