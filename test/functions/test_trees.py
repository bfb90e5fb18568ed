"""What a function takes and gives, as a structure and its arrays in a row."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rlx.errors import GraphError
from rlx.functions.trees import MAX_DEPTH, Static, flatten, rebuild, taker

Pair = namedtuple("Pair", "first second")  # pyright: ignore


@dataclass
class Layer:
    """A dataclass that holds an array and a number."""

    weight: Any
    scale: float = 1.0


A, B, C = (np.full(2, n, np.float32) for n in range(3))
TREES = {
    "array": A,
    "dict": {"b": A, "a": B},
    "dict of one": {"b": A},
    "list": [A, B],
    "tuple": (A, (B, 3), None),
    "named tuple": Pair(A, [B]),
    "dataclass": Layer(A, 2.0),
    "nested": {"layers": [Layer(A), Layer(B, 3.0)], "rest": (C, "name", None, {})},
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_tree_is_built_again_of_its_leaves(tree: Any) -> None:
    leaves: list[Any] = []
    structure = flatten(tree, leaves)
    again = rebuild(structure, iter(leaves))
    assert repr(again) == repr(dict(sorted(tree.items())) if isinstance(tree, dict) else tree)
    assert structure.count == len(leaves)
    for taken in (
        taker([structure], [])([tree], {}),
        taker([], [("x", structure)])([], {"x": tree}),
    ):
        assert taken is not None and [id(a) for a in taken] == [id(a) for a in leaves]
    assert structure == flatten(tree, [])
    assert hash(structure) == hash(flatten(tree, []))


DIFFERENT = {
    "keys": ({"a": A}, {"b": A}),
    "count": ((A,), (A, B)),
    "kind": ([A], (A,)),
    "class": (Layer(A), Pair(A, 1.0)),
    "static": ((A, 1), (A, 2)),
    "types of numbers": ((A, 1), (A, True)),
    "int and float": ((A, 1), (A, 1.0)),
    "signs of zeros": ((A, 0.0), (A, -0.0)),
    "signs of complex zeros": ((A, 0j), (A, -0.0 - 0j)),
    "inside a static tuple": ((A, ((0.0,),)), (A, ((-0.0,),))),
}


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT)
def test_structures_differ(left: Any, right: Any) -> None:
    one, two = flatten(left, []), flatten(right, [])
    assert one != two
    try:
        taken = taker([one], [])([right], {})
    except KeyError:
        taken = None
    assert taken is None


@dataclass(frozen=True)
class Options:
    """A dataclass that is a static value."""

    scale: Any


ALIKE = [(1, 1.0), (1, True), (0.0, -0.0), (2.0, 2 + 0j), (np.float64(0.0), np.float64(-0.0))]
"""Values that Python takes for equal, though functions tell them apart."""
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda x: x,
    "tuple": lambda x: (x,),
    "named tuple": lambda x: Pair(x, 0),
    "frozen set": lambda x: frozenset([x]),
    "dataclass": Options,
    "deep": lambda x: frozenset([(Options((Pair(x, "name"),)),)]),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize(("left", "right"), ALIKE)
def test_static_values_are_told_apart_in_what_holds_them(
    hold: Callable[[Any], Any], left: Any, right: Any
) -> None:
    one, two, again = Static(hold(left)), Static(hold(right)), Static(hold(left))
    assert one != two and not one.is_value(hold(right))
    assert one == again and hash(one) == hash(again) and one.is_value(hold(left))


@pytest.mark.parametrize(("left", "right"), ALIKE)
def test_keys_of_dicts_are_told_apart(left: Any, right: Any) -> None:
    one, two = flatten({left: A}, []), flatten({right: A}, [])
    assert one != two and one == flatten({left: B}, [])
    assert taker([one], [])([{right: A}], {}) is None
    assert taker([one], [])([{left: A}], {}) is not None


def test_nan_is_itself_as_a_static_value() -> None:
    one, two = (flatten((A, float("nan")), []) for _ in range(2))
    assert one == two
    assert taker([one], [])([(A, float("nan"))], {}) is not None


def test_calls_that_are_written_otherwise() -> None:
    take = taker([flatten(A, [])], [("x", flatten([B], []))])
    assert take((A,), {"x": [B]}) is not None
    for args, kwargs in (((A, B), {"x": [B]}), ((), {"x": [B]}), ((A,), {"x": [B, C]}),
                         ((A,), {"x": [B], "y": C})):  # fmt: skip
        assert take(args, kwargs) is None
    with pytest.raises(KeyError):
        take((A,), {"y": [B]})


def test_keys_of_arguments_are_sorted_and_those_of_results_are_not() -> None:
    tree = {"b": A, "a": B}
    assert list(flatten(tree, []).paths("")) == ["a", "b"]
    assert list(flatten(tree, [], sort=False).paths("")) == ["b", "a"]


def test_leaves_are_called_by_their_way() -> None:
    tree = {"layers": [Layer(A), Layer(B)], "pair": Pair(A, B), "n": 3}
    assert list(flatten(tree, []).paths("model")) == [
        "model.layers.0.weight", "model.layers.1.weight", "model.pair.first", "model.pair.second",
    ]  # fmt: skip


def test_bad_trees() -> None:
    deep: Any = A
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(GraphError, match=rf"nested more than {MAX_DEPTH} deep"):
        flatten(deep, [])
    with pytest.raises(GraphError, match=r"keys of dicts are put in order.* complex"):
        flatten({1j: A, 2j: B}, [])
    with pytest.raises(GraphError, match=r"opts.names is .*neither an array, nor .*static"):
        flatten({"names": {1, 2}}, [], "opts")
    with pytest.raises(GraphError, match=r"neither an array"):
        flatten({1, 2}, [])
