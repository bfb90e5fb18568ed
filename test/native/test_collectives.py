"""Collectives that the native runtime refuses, whatever their words say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlx.runtime import _native as native
from rlx.schedule.steps import COLLECTIVES, Collective, Place, axis_words
from rlx.types import DTYPES
from support.steps import main_of, prologue_of

ARENA, X = native.BASE_ARENA, 3
F32 = list(DTYPES).index("f32")


def collective(name: str, **others: Any) -> Collective[Place]:
    step = Collective(
        COLLECTIVES.index(name),
        0,
        F32,
        4,
        2,
        axis_words("data"),
        (),
        0,
        False,
        Place(X, 0),
        Place(ARENA, 0),
    )
    return replace(step, **others)


def program(step: Collective[Place]) -> native.Program:
    return native.Program(
        objects=[], inputs=[("x", "f32", (8,))], outputs=[], arena_bytes=32, **main_of([step])
    )


@pytest.mark.parametrize(
    "step",
    [
        collective("all_reduce", count=8), collective("all_gather"), collective("all_to_all"),
        collective("reduce_scatter"), collective("permute", peers=(0, 1)),
        collective("broadcast", peers=(1,)), collective("axis_index", source=None, count=0),
    ],
    ids=lambda s: COLLECTIVES[s.kind],
)  # fmt: skip
def test_what_fits_is_taken(step: Collective[Place]) -> None:
    program(step)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (collective("all_reduce", kind=7), "kind 7"),
        (collective("all_reduce", kind=-1), "kind -1"),
        (collective("all_reduce", reduction=4), "reduction 4"),
        (collective("all_reduce", dtype=len(DTYPES)), f"dtype {len(DTYPES)}"),
        (collective("all_reduce", ranks=0), "ranks 0"),
        (collective("all_reduce", ranks=2**20 + 1), "ranks 1048577"),
        (collective("all_reduce", site=-1), "site -1"),
        (collective("all_reduce", count=-1), "count -1"),
        (collective("all_reduce", count=2**60), f"count {2**60}"),
        (collective("all_reduce", count=9), "36 bytes inside its 32"),
        (collective("all_gather", count=5), "40 bytes inside its 32"),
        (collective("reduce_scatter", count=5), "40 bytes inside its 32"),
        (collective("all_reduce", source=None), "no source"),
        (collective("axis_index"), "a source"),
        (collective("axis_index", source=None, target=Place(ARENA, 28)), "8 bytes inside its 32"),
        (collective("permute", peers=(0,)), "1 peers"),
        (collective("permute", peers=(0, 2)), "peers 2"),
        (collective("broadcast"), "0 peers"),
        (collective("all_reduce", peers=(1,)), "1 peers"),
        (collective("all_reduce", target=Place(9, 0)), "base 9"),
    ],
)
def test_what_does_not_fit_is_refused(step: Collective[Place], says: str) -> None:
    with pytest.raises(native.Error, match=says):
        program(step)


def test_a_prologue_meets_nobody() -> None:
    step = collective(
        "all_reduce", source=Place(native.BASE_PACKED, 0), target=Place(native.BASE_PACKED, 16)
    )
    with pytest.raises(
        native.Error, match=r"prologue\[0\]: found a collective, expected one in main"
    ):
        native.Weights(objects=[], packed_bytes=32, **prologue_of([(step, ())]))
