"""Bad calls of every op of the library, made from its own samples, and of its builder methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

import rlx
from rlx.errors import GraphError, RlxError
from rlx.ir.op import REQUIRED, Op
from rlx.ir.value import Value
from rlx.ops import BUILDERS
from support.samples import Case, cases, op_classes

FIRST: dict[type[Op], Case] = {}
for _case in cases():
    FIRST.setdefault(_case.op, _case)

Change = tuple[str, str, Callable[[list[Any], dict[str, Any]], None]]


def wrong_ways(op: type[Op]) -> Iterator[Change]:
    """What to do to a right call's operands and attributes, and what the refusal must say."""

    def put(i: int, value: Any) -> Callable[[list[Any], dict[str, Any]], None]:
        return lambda operands, attrs: operands.__setitem__(i, value)

    def drop(name: str) -> Callable[[list[Any], dict[str, Any]], None]:
        return lambda operands, attrs: attrs.__delitem__(name)

    for i, f in enumerate(op.operand_fields):
        yield f"{f.name} is text", f"operand {f.name!r} is a str", put(i, "text")
        if not f.optional:
            yield f"no {f.name}", f"needs its operand {f.name!r}", put(i, None)
    for a in op.attr_fields:
        wrong: Any = 3 if a.kind == "str" else {}
        yield (
            f"{a.name} is of another kind",
            "",
            lambda operands, attrs, name=a.name, wrong=wrong: attrs.update({name: wrong}),
        )
        if a.default is REQUIRED:
            yield f"no {a.name}", f"needs its attribute {a.name!r}", drop(a.name)
    yield (
        "an unknown argument",
        "has no argument 'colour'",
        lambda operands, attrs: attrs.update(colour=1),
    )
    yield (
        "too many arguments",
        "arguments, found",
        lambda operands, attrs: operands.extend([None] * 20),
    )


@pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.name)
def test_bad_calls_of_an_op(op: type[Op]) -> None:
    for what, says, change in wrong_ways(op):
        try:
            check(op, what, says, change)
        except (Exception, pytest.fail.Exception) as e:
            e.add_note(f"the call is bad in that: {what}")
            raise


def check(op: type[Op], what: str, says: str, change: Any) -> None:
    node = FIRST[op].node()
    operands, attrs = list(node.operands), dict(FIRST[op].sample.attrs)
    if what.startswith("no ") and what[3:] in {a.name for a in op.attr_fields}:
        attrs = dict(node.attrs)
    change(operands, attrs)
    with pytest.raises(RlxError) as caught:
        op(*operands, **attrs)
    error = caught.value
    assert isinstance(error, GraphError) and says in error.message
    assert node.short in error.message or "dtype" in error.message or "dim" in error.message
    assert error.location is not None and error.location[0] == __file__


@pytest.mark.parametrize("method", sorted(BUILDERS))
def test_a_builder_method_refuses_what_it_cannot_take(method: str) -> None:
    """Every argument of a method the same wrong thing: whatever it says, it says it itself."""
    for wrong in ("text", None, 1.5, [], {}, (), b"x", object(), Value):
        g = rlx.Graph("bad")
        x = g.input("x", [2, 3])
        given = x if wrong is Value else wrong
        for owner, count in product((g, x), range(5)):
            try:
                getattr(owner, method)(*[given] * count)
            except RlxError as error:
                assert isinstance(error, GraphError), error
                assert error.location is not None and error.location[0] == __file__
                assert error.message
            except Exception as e:
                e.add_note(f"of {owner!r}, given {[given] * count}")
                raise
