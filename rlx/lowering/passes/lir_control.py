"""The text of branches, loops and collectives in lir, there and back.

There is a row of ``FORMS`` for each kind of step that holds others; the text of the rest follows
from ``KINDS``. A test stands right before what it decides, and a loop's count at the head of its
body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.base.mesh import check_axis
from rlx.dialects.bridge import place_of, trail_of
from rlx.dialects.lir import PLAIN, flags_of, places_of, words_of
from rlx.errors import GraphError, IRError, UnsupportedError
from rlx.schedule.steps import (
    COLLECTIVES,
    KINDS,
    Collective,
    Field,
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


# -- steps that hold no others -------------------------------------------------------------


def _write_plain(e: Entry, s: Any, indent: str) -> list[str]:
    kind, op = type(s), f'"lir.{type(s).__name__.lower()}"'
    there = [p for f in places_of(kind) if (p := getattr(s, f.name)) is not None]
    values, kinds = (", ".join([e.named(p)[n] for p in there]) for n in (0, 1))
    marks = [f"{f.name} = {_word_text(f, getattr(s, f.name))}" for f in words_of(kind)]
    marks += [mark for mark, name in flags_of(kind).items() if getattr(s, name)]
    return [f"{indent}{op}({values}) {{{', '.join(marks)}}} : ({kinds}) -> () {e.location(s)}"]


def _word_text(f: Field, value: Any) -> str:
    if f.names:
        return f'"{f.names[value]}"'
    if f.unit == "letters":
        return f'"{axis_name(value)}"'
    if f.kind == "words":
        return f"array<i64{': ' * bool(value)}{', '.join(map(str, value))}>"
    return f"{value} : i64"


def _read_plain(r: Reader, op: ir.Operation) -> Any:
    kind = PLAIN[op.name]
    places = places_of(kind)
    if len(op.operands) < len(places):
        places = [f for f in places if f.kind == "place"]
    found: dict[str, Any] = {f.name: None for f in KINDS[kind]}
    for f, v in zip(places, op.operands, strict=True):
        found[f.name] = r.place(v, f"the {f.name} of {op.name}", op)
    found |= {f.name: _read_word(f, op) for f in words_of(kind)}
    found |= {name: mark in op.attributes for mark, name in flags_of(kind).items()}
    for f in KINDS[kind]:
        if f.unit == "element type":
            found[f.name] = list(DTYPES).index(found[places[-1].name].layout.dtype)
    step = kind(**found, origin=_origin(op))
    if isinstance(step, Collective):
        _check_collective(step, op)
    return step


def _read_word(f: Field, op: ir.Operation) -> Any:
    attr = op.attributes[f.name]
    if f.names:
        name = ir.StringAttr(attr).value
        if name not in f.names:
            listed = ", ".join(f.names)
            raise IRError(f"{f.name} is {name!r}, expected one of {listed}", place_of(op))
        return f.names.index(name)
    if f.unit == "letters":
        text = ir.StringAttr(attr).value
        if not text.isascii():
            raise IRError(f"{f.name} is {text!r}, expected ASCII", place_of(op))
        return axis_words(text)
    if f.kind == "words":
        if not isinstance(attr, ir.DenseI64ArrayAttr):
            raise IRError(f"{f.name} is {attr}, expected an array of i64", place_of(op))
        return tuple(attr)
    return ir.IntegerAttr(attr).value


def _check_collective(step: Collective[Place], op: ir.Operation) -> None:
    try:
        check_axis(axis_name(step.axis), step.ranks)
    except GraphError as e:
        raise IRError(e.message, place_of(op)) from None
    kind = COLLECTIVES[step.kind]
    if (step.source is None) != (kind == "axis_index"):
        raise IRError(f"{kind} has {len(op.operands)} places", place_of(op))


FORMS: dict[type, Form] = {
    If: Form("scf.if", _write_if, _read_if),
    While: Form("scf.while", _write_while, _read_while),
    For: Form("scf.for", _write_for, _read_for),
    **{kind: Form(op, _write_plain, _read_plain) for op, kind in PLAIN.items()},
}
"""The text of each kind of step but launches."""
