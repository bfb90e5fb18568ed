"""The text of branches, loops and collectives in lir, there and back.

There is a row of ``FORMS`` for each kind of step.
A test stands right before what it decides, and a loop's count at the head of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.base.mesh import check_axis
from rlx.dialects.bridge import place_of, trail_of
from rlx.errors import GraphError, IRError, UnsupportedError
from rlx.schedule.steps import (
    COLLECTIVES,
    REDUCTIONS,
    Collective,
    For,
    If,
    Origin,
    Place,
    Step,
    While,
    axis_name,
    axis_words,
)  # fmt: skip
from rlx.types import DTYPES

if TYPE_CHECKING:
    from rlx.lowering.passes.lir_reader import Reader
    from rlx.lowering.passes.lir_text import Entry

__all__ = ["FORMS", "Form"]


@frozen
class Form:
    """A kind of step as text: its op, what writes a step of an entry at an indent, and what reads
    it."""

    op: str
    write: Callable[[Entry, Any, str], list[str]]
    read: Callable[[Reader, ir.Operation], Step[Place]]


def _test(e: Entry, s: If[Place] | While[Place], indent: str) -> tuple[str, str]:
    """The SSA name of a test, and the line that makes it."""
    e.tests += 1
    name, (flag, kind) = f"%t{e.tests - 1}", e.named(s.flag)
    return name, f'{indent}{name} = "lir.test"({flag}) : ({kind}) -> i1 {e.location(s)}'


def _flag(r: Reader, v: ir.Value, op: ir.Operation) -> Place:
    test = None if isinstance(v.owner, ir.Block) else v.owner.operation
    if test is None or test.name != "lir.test":
        raise IRError(f"the condition of {op.name} must be a lir.test", place_of(op))
    return r.place(test.operands[0], "what lir.test reads", test)


def _no_values(op: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Steps pass data through memory: a structured step carries no values."""
    if len(values):
        raise UnsupportedError(f"{op.name} of a schedule carries no values", place_of(op))


def _origin(op: ir.Operation) -> Origin:
    return Origin(place_of(op), trail_of(op.location))


# -- branches ------------------------------------------------------------------------------


def _write_if(e: Entry, s: If[Place], indent: str) -> list[str]:
    then, otherwise = (e.block(steps, indent) for steps in (s.then, s.otherwise))
    name, test = _test(e, s, indent)
    end = f"{indent}}} {e.location(s)}"
    return [test, f"{indent}scf.if {name} {{", *then, f"{indent}}} else {{", *otherwise, end]


def _read_if(r: Reader, op: ir.Operation) -> If[Place]:
    if r.tested is None or op.operands[0] != r.tested:
        raise IRError("an scf.if takes a lir.test that stands right before it", place_of(op))
    _no_values(op, op.results)
    flag = _flag(r, op.operands[0], op)
    then, otherwise = (r.block(g.blocks[0]) if len(g.blocks) else () for g in op.regions)
    return If(flag, then, otherwise, _origin(op))


# -- loops ---------------------------------------------------------------------------------


def _write_while(e: Entry, s: While[Place], indent: str) -> list[str]:
    before, body = (e.block(steps, indent) for steps in (s.test, s.body))
    name, test = _test(e, s, indent + "  ")
    limit = f"lir.limit = {s.limit} : i64, lir.site = {s.site} : i64"
    return [
        f"{indent}scf.while : () -> () {{",
        *before,
        test,
        f"{indent}  scf.condition({name})",
        f"{indent}}} do {{",
        *body,
        f"{indent}  scf.yield",
        f"{indent}}} attributes {{{limit}}} {e.location(s)}",
    ]


def _read_while(r: Reader, op: ir.Operation) -> While[Place]:
    """The steps of the first region, its test, the steps of the second."""
    _no_values(op, [*op.operands, *op.results])
    before, body = (g.blocks[0] for g in op.regions)
    end = list(before.operations)[-1].operation
    conditions = r.block(before)
    flag = _flag(r, end.operands[0], end)
    last = [v.operation for v in before.operations if v.operation.name in ("lir.test", *r.steps)][
        -1
    ]
    if last.name != "lir.test":
        raise IRError("an scf.while takes a lir.test that ends its first region", place_of(last))
    limit, site = (
        ir.IntegerAttr(op.attributes[k]).value if k in op.attributes else default
        for k, default in (("lir.limit", -1), ("lir.site", 0))
    )
    if limit < -1:
        raise IRError(f"lir.limit is {limit}, expected -1 (none) or more", place_of(op))
    return While(conditions, flag, r.block(body), limit, site, _origin(op))


def _write_for(e: Entry, s: For[Place], indent: str) -> list[str]:
    name, head = f"%i{e.loops}", list[str]()
    e.loops += 1
    e.rounds.append(name)
    e.heads.append(head)
    zero, one, count = (e.size(n) for n in (0, 1, s.rounds))
    body = e.block(s.body, indent)
    if s.counter is not None:
        counter, kind = e.named(s.counter)
        store = f'"lir.count"({name}, {counter}) : (index, {kind}) -> ()'
        head.append(f"{indent}  {store} {e.location(s)}")
    e.rounds.pop()
    e.heads.pop()
    mark = " {lir.reverse}" if s.reverse else ""
    return [
        f"{indent}scf.for {name} = {zero} to {count} step {one} {{",
        *head,
        *body,
        f"{indent}}}{mark} {e.location(s)}",
    ]


def _read_for(r: Reader, op: ir.Operation) -> For[Place]:
    """A loop over constant bounds. A ``lir.count`` at the head of its body stores the round."""
    _no_values(op, op.results)
    bounds = [r.sizes.get(v) for v in list(op.operands)[:3]]
    if any(b is None for b in bounds):
        raise UnsupportedError("bounds and step of an scf.for must be constants", place_of(op))
    low, high, step = (b or 0 for b in bounds)
    if low != 0 or step != 1:
        message = f"an scf.for counts from {low} in steps of {step}, expected 0 and 1"
        raise UnsupportedError(message, place_of(op))
    block = op.regions[0].blocks[0]
    counter = None
    r.rounds[block.arguments[0]] = max(high, 0)
    for view in block.operations:
        inner = view.operation
        if inner.name == "lir.count" and inner.operands[0] == block.arguments[0]:
            counter = r.place(inner.operands[1], "the place of a count", inner)
            r.counts.append(inner)
            break
        if not r.value(inner):
            break
    steps = r.block(block)
    del r.rounds[block.arguments[0]]
    reverse = "lir.reverse" in op.attributes
    return For(max(high, 0), steps, counter, reverse, _origin(op))


# -- collectives ---------------------------------------------------------------------------


def _write_collective(e: Entry, s: Collective[Place], indent: str) -> list[str]:
    named = [e.named(p) for p in (s.source, s.target) if p is not None]
    values, kinds = (", ".join(part) for part in zip(*named, strict=True))
    peers = ", ".join(map(str, s.peers))
    marks = (
        f'kind = "{COLLECTIVES[s.kind]}", reduction = "{REDUCTIONS[s.reduction]}",'
        f' axis = "{axis_name(s.axis)}", ranks = {s.ranks} : i64, count = {s.count} : i64,'
        f" peers = array<i64{': ' * bool(peers)}{peers}>, site = {s.site} : i64"
    )
    return [f'{indent}"lir.collective"({values}) {{{marks}}} : ({kinds}) -> () {e.location(s)}']


def _read_collective(r: Reader, op: ir.Operation) -> Collective[Place]:
    attrs = op.attributes
    kind, reduction, axis = (ir.StringAttr(attrs[k]).value for k in ("kind", "reduction", "axis"))
    for what, name, known in (
        ("kind", kind, COLLECTIVES), ("reduction", reduction, REDUCTIONS),
    ):  # fmt: skip
        if name not in known:
            raise IRError(f"{what} is {name!r}, expected one of {', '.join(known)}", place_of(op))
    ranks, count, site = (ir.IntegerAttr(attrs[k]).value for k in ("ranks", "count", "site"))
    try:
        check_axis(axis, ranks)
    except GraphError as e:
        raise IRError(e.message, place_of(op)) from None
    if not isinstance(attrs["peers"], ir.DenseI64ArrayAttr):
        raise IRError(f"peers is {attrs['peers']}, expected an array of i64", place_of(op))
    if len(op.operands) != 1 + (kind != "axis_index"):
        raise IRError(f"{kind} has {len(op.operands)} places", place_of(op))
    *source, target = [r.place(v, f"what {kind} is on", op) for v in op.operands]
    assert target.layout is not None
    dtype = list(DTYPES).index(target.layout.dtype)
    return Collective(
        COLLECTIVES.index(kind), REDUCTIONS.index(reduction), dtype, count, ranks,
        axis_words(axis), tuple(attrs["peers"]), site, source[0] if source else None, target,
        _origin(op),
    )  # fmt: skip


FORMS: dict[type, Form] = {
    If: Form("scf.if", _write_if, _read_if),
    While: Form("scf.while", _write_while, _read_while),
    For: Form("scf.for", _write_for, _read_for),
    Collective: Form("lir.collective", _write_collective, _read_collective),
}
"""The text of each kind of step but launches."""
