"""The kernel that makes the offsets of a window's taps where sizes are not known."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.kernels.conv import layout, planes
from rlx.kernels.conv.plan import ConvShape, Triple
from rlx.types import f32
from support.jit import host
from support.runkernel import run_launch

WINDOWS = [
    ((1, 3, 3), (1, 1, 1), (1, 1, 1)),
    ((2, 3, 5), (1, 2, 3), (2, 1, 2)),
    ((3, 1, 2), (2, 3, 1), (1, 4, 3)),
]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), WINDOWS, ids=str)
def test_they_are_those_of_a_compile_for_the_sizes(
    kernel: Triple, stride: Triple, dilation: Triple, pieces: int
) -> None:
    shape = ConvShape(2, 1, 3, 8, (9, 20, 23), (3, 5, 7), kernel, stride, (0, 0, 0), dilation)
    found = planes.planes(shape, f32, 16, raw=False)
    assert found is not None
    offsets = np.full(shape.taps, -1, np.int64)
    launch = layout.taps_launch(shape, found)
    run_launch(layout, layout.TapsConfig(), launch, [offsets], pieces, host())
    np.testing.assert_array_equal(offsets, found.offsets(shape))
    several = np.full((3, shape.taps), -1, np.int64)
    launch = layout.taps_launch(shape, found, 3)
    run_launch(layout, layout.TapsConfig(), launch, [several], pieces, host())
    np.testing.assert_array_equal(several, [offsets + c * found.channel for c in range(3)])
