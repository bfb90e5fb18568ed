"""The gradient of a depthwise convolution with respect to its weights, through the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.kernels.conv import weights_grad_depthwise as conv_weights_along
from support.compiled import agrees, arrays
from support.runkernel import features_of

CASES: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((2, 5, 7, 9), 1, {"taps": (3, 3), "low": (1, 1)}),
    ((1, 3, 11, 37), 2, {"taps": (3, 3), "stride": (2, 2), "low": (1, 1)}),  # two outputs a group
    ((3, 4, 9, 14), 1, {"taps": (7, 7), "low": (3, 3)}),  # three tiles of taps
    ((2, 3, 8, 50), 1, {"taps": (2, 3), "dilation": (2, 3), "low": (0, 4)}),
    ((4, 3, 3, 5), 1, {"taps": (1, 1)}),  # images side by side
    ((2, 3, 40), 1, {"taps": (4,), "low": (3,)}),
    ((2, 3, 4, 5, 6), 1, {"taps": (2, 3, 2), "low": (1, 0, 1), "stride": (1, 2, 1)}),
]


def gradient(x: tuple[int, ...], many: int, dt: str, **kind: Any) -> rlx.Graph:
    rank = len(x) - 2
    kind = {"stride": (1,) * rank, "low": (0,) * rank, "dilation": (1,) * rank} | kind
    windows = [
        (n + 2 * lo - (k - 1) * d - 1) // s + 1
        for n, k, s, lo, d in zip(
            x[2:], kind["taps"], kind["stride"], kind["low"], kind["dilation"], strict=True
        )
    ]
    g = rlx.Graph()
    at = g.input("g", [x[0], x[1] * many, *windows], dt)
    g.set_outputs([g.input("x", list(x), dt).conv_weights(at, groups=x[1], **kind)])
    return g


def is_along(g: rlx.Graph) -> bool:
    return "ConvWeightsAlongConfig" in rlx.inspect_pipeline(g, "cpu").lir


@pytest.mark.parametrize("case", CASES, ids=str)
def test_geometries(case: Any) -> None:
    features_of("x86-64-v4")
    g = gradient(case[0], case[1], "f32", **case[2])
    assert is_along(g)
    agrees(g)


@pytest.mark.parametrize("dt", ["f16", "bf16", "f64"])
def test_other_floats(dt: str) -> None:
    g = gradient((2, 3, 9, 20), 1, dt, taps=(3, 3), low=(1, 1))
    agrees(g, {n: (a * 0.25).astype(a.dtype) for n, a in arrays(g).items()})


def test_what_is_beside_a_row_is_not_read() -> None:
    """Infinite numbers behind the last column: no tap of a window meets them."""
    g = gradient((1, 2, 5, 22), 1, "f32", taps=(3, 3), stride=(1, 2))
    x = np.ones((1, 2, 5, 22), np.float32)
    x[..., 21] = np.inf
    found = rlx.Session("cpu").compile(g).run_slots(np.ones((1, 2, 3, 10), np.float32), x)
    np.testing.assert_array_equal(found[0], np.full((2, 1, 3, 3), 30, np.float32))


def test_parts_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_weights_along, "LONGEST", 20)
    g = gradient((5, 20, 9, 17), 1, "f32", taps=(3, 3))
    assert 'lir.family = "reduce"' in rlx.inspect_pipeline(g, "cpu").lir or not is_along(g)
    agrees(g, {n: a * 0.05 for n, a in arrays(g).items()})


def test_other_groups_are_left_to_the_other_kernel() -> None:
    g = rlx.Graph()
    x, at = g.input("x", [2, 4, 5, 6]), g.input("g", [2, 6, 3, 4])
    g.set_outputs([x.conv_weights(at, (3, 3), (1, 1), (0, 0), (1, 1), groups=2)])
    assert not is_along(g)
    agrees(g)
