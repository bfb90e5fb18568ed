"""Records beside the dataclasses that they stand for."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx.base.frozen import frozen, record
from rlx.types import TensorType


def _classes(decorate: Any) -> tuple[type, type, type, type]:
    @decorate
    class Empty:
        """No fields."""

    @decorate
    class One:
        a: int

    @decorate
    class Many:
        """Defaults of every kind."""

        a: int
        b: tuple[int, ...] = ()
        c: list[int] = field(default_factory=list[int], compare=False)
        d: str = field(default="x", repr=False, kw_only=True)
        e: int = field(default=3, init=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @decorate
    class Child(Many):
        """Fields of its own, and a repr."""

        f: float = 0.5

        def __repr__(self) -> str:
            return "a child"

    for cls in (Empty, One, Many, Child):
        cls.__qualname__ = cls.__name__
    return Empty, One, Many, Child


OURS, STANDARD = _classes(frozen), _classes(dataclass(frozen=True))
CALLS: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = [
    (0, (), {}), (0, (1,), {}), (1, (1,), {}), (1, (2,), {}), (1, (), {}), (1, (), {"a": 1}),
    (2, (1,), {}), (2, (1, (2,)), {}), (2, (1,), {"c": [1]}), (2, (1,), {"d": "y"}),
    (2, (1, (), [], "y"), {}), (2, (1,), {"e": 4}), (2, (-1,), {}), (3, (1,), {}),
    (3, (1,), {"f": 2.0}), (3, (1, (), [], 2.0), {}),
]  # fmt: skip


def _made(classes: tuple[type, ...], call: tuple[int, tuple[Any, ...], dict[str, Any]]) -> Any:
    number, args, named = call
    try:
        return classes[number](*args, **named)
    except (TypeError, ValueError) as e:
        return type(e)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_they_are_made_and_shown_as_dataclasses_are(call: Any) -> None:
    own, standard = _made(OURS, call), _made(STANDARD, call)
    assert isinstance(own, type) == isinstance(standard, type)
    if isinstance(own, type):
        assert own is standard
        return
    assert is_dataclass(own)
    assert repr(own) == repr(standard)
    names = [f.name for f in fields(own)]
    assert names == [f.name for f in fields(standard)]
    assert [getattr(own, n) for n in names] == [getattr(standard, n) for n in names]
    assert hash(own) == hash(standard)
    assert copy.copy(own) == own


@given(st.sampled_from(CALLS), st.sampled_from(CALLS))
def test_they_compare_as_dataclasses_do(first: Any, second: Any) -> None:
    pairs = [[_made(classes, call) for call in (first, second)] for classes in (OURS, STANDARD)]
    (a, b), (c, d) = pairs
    assert (a == b) == (c == d)


def test_they_stay_as_they_are() -> None:
    one = OURS[2](1)
    for change in (
        lambda: setattr(one, "a", 2),
        lambda: setattr(one, "z", 2),
        lambda: delattr(one, "a"),
    ):
        with pytest.raises(FrozenInstanceError, match="cannot"):
            change()
    assert replace(one, a=2).a == 2 and one.a == 1
    assert OURS[2](1).c is not OURS[2](1).c


def test_records_change_as_dataclasses_do() -> None:
    ours, standard = _classes(record), _classes(dataclass)
    for call in CALLS:
        own, other = _made(ours, call), _made(standard, call)
        assert own is other if isinstance(own, type) else repr(own) == repr(other)
    one, same = ours[2](1), ours[2](1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert one == same and one is not same and one.c is not same.c
    one.a, one.c = 2, [3]
    assert one != same and (one.a, one.c) == (2, [3])
    assert replace(one, a=1) == same, "c is not compared"


def test_what_a_record_has_of_its_own_stays() -> None:
    @record
    class Own:
        a: int
        __eq__ = object.__eq__
        __hash__ = object.__hash__

    one = same = Own(1)
    assert one == same and one != Own(1) and {one: 2}[same] == 2


@frozen
class Kept:
    """At the top of a module, where pickle finds it."""

    a: int
    b: str = "x"


def test_they_are_pickled() -> None:
    with_slots = TensorType.of([2, "n"], "bf16")
    for one in (Kept(1), with_slots):
        assert pickle.loads(pickle.dumps(one)) == copy.copy(one) == copy.deepcopy(one) == one
    assert not hasattr(with_slots, "__dict__")
