"""Index spaces: broadcasting, and how dims merge."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.codegen.strides import (
    Space,
    accesses,
    broadcast_strides,
    collapse,
    order_for_output,
    row_major,
)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (1, 5, 1)])
def test_row_major_is_numpys(shape: tuple[int, ...]) -> None:
    assert row_major(shape) == tuple(s // 4 for s in np.zeros(shape, np.float32).strides)


def test_broadcast_strides() -> None:
    assert broadcast_strides((3, 1, 5), (2, 3, 4, 5)) == (0, 5, 0, 1)
    assert broadcast_strides((), (2, 3)) == (0, 0)


COLLAPSED = [
    (Space((2, 3, 4), ((12, 4, 1),)), Space((24,), ((1,),))),
    (Space((2, 3, 4), ((12, 4, 1), (0, 4, 1))), Space((2, 12), ((12, 1), (0, 1)))),
    (Space((2, 3, 4), ((12, 4, 1), (0, 0, 0))), Space((24,), ((1,), (0,)))),
    (Space((2, 1, 4), ((4, 9, 1),)), Space((8,), ((1,),))),
    (Space((2, 3), ((6, 2),)), Space((6,), ((2,),))),
    (Space((2, 3), ((1, 2),)), Space((2, 3), ((1, 2),))),
    (Space((), ((), ())), Space((1,), ((1,), (1,)))),
    (Space((1, 1), ((7, 7),)), Space((1,), ((1,),))),
    (Space((4, 0, 2), ((0, 2, 1),)), Space((0,), ((1,),))),
]


@pytest.mark.parametrize(("space", "expected"), COLLAPSED)
def test_collapse(space: Space, expected: Space) -> None:
    assert collapse(space) == expected


def test_a_transposed_output_is_walked_in_its_own_order() -> None:
    space = Space((3, 4), ((4, 1), (1, 3)))
    assert order_for_output(space, 1) == Space((4, 3), ((1, 4), (3, 1)))


def test_accesses() -> None:
    assert accesses(Space((3, 4), ((4, 1), (1, 0), (0, 2)))) == (
        ("any", "one"),
        ("any", "zero"),
        ("zero", "any"),
    )
