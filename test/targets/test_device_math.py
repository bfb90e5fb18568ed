"""The elementary functions on GPU devices keep the bounds that the processor's do.

A device's compiler may join or reorder products and sums, and its multiply-add may round twice:
what the kernels say, and what tests of kernels on the processor show, does not tell of that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import rlx
from rlx.codegen.math import BOUNDS, CPU_MATH
from rlx.targets import find_target
from rlx.types import DType, f32, f64
from support import web
from support.conformance import facts, gpu_targets, need
from support.device import device_of
from support.functions import (
    BINARY,
    DECIMALS,
    EXTENDED,
    Array,
    decimal_error,
    decimal_points,
    pairs,
    points,
    powers,
    reference,
    worst,
)

METHODS = {"rem": "fmod"}
"""What a function is called in a graph, where that is something else."""

ROUNDED_TWICE = 0.5
"""By how many units a device may go beyond the bounds: by half of one if its multiply-add rounds
twice, as ``test_math_narrow`` shows."""

QUOTIENT, INVERSE_ROOT = 2.5, 2.0
"""Units that a division and an inverse square root may be off by: the tables of accuracy of Vulkan
and WGSL say so, and that a square root is as good as the quotient of 1 and its inverse. OpenCL's
allows 2.5 and 3, of a root, and GLSL says less. Rounded right, either is off by half a unit."""

FEW = {web.NAME: ("exp", "log2", "sin", "pow", "rem")}
"""The functions that stand for the others where a driver takes long."""

ANGLES = [255.0, 32767.0, 12345.678, 99999.9, 1e9, 1e30]
REMAINDERS = [
    (9.3e18, 127.0), (3.3e38, 1e5), (3.3e38, 1.2e38), (2.0**60, 3.0), (7e20, 2.9e-30),
    (7506.534, 2.0685724e-38),
]  # fmt: skip


def operands(name: str, dt: DType) -> list[Array]:
    """Some thousands of numbers to take a function at."""
    if dt is f64 and name in DECIMALS:
        return [decimal_points(name)]
    if name not in BINARY:
        return [np.concatenate([points(dt, 1 << 9), np.array(ANGLES).astype(dt.numpy)])]
    found = zip(pairs(dt), powers(dt), np.array(REMAINDERS).astype(dt.numpy).T, strict=True)
    return [np.concatenate([a[::40], b[::40], c]) for a, b, c in found]


def ulps(name: str, xs: list[Array], y: Array) -> float:
    """The largest error where nothing is subnormal, which a device may take for 0."""
    if xs[0].dtype == np.float64 and name in DECIMALS:
        return decimal_error(name, xs[0], y)
    exact = reference(name, *xs)
    least = np.finfo(y.dtype).tiny
    with np.errstate(all="ignore"):
        normal = [(np.abs(v) >= least) | (v == 0) | np.isnan(v) for v in (*xs, exact)]
    kept = np.logical_and.reduce(normal)
    return worst(y[kept], exact[kept])


def slack_of(target: str) -> float:
    """By how many units a device of a target may go beyond the bounds. A processor rounds quotients
    right; hardware need not in the languages that leave it open, and a function then is off by what
    a quotient and a root are."""
    rounds = find_target(target).kernels.rounded_quotients
    if rounds or facts(target).evidence != "hardware":
        return ROUNDED_TWICE
    return ROUNDED_TWICE + (QUOTIENT - 0.5) + (INVERSE_ROOT + QUOTIENT - 0.5)


@pytest.mark.parametrize("dt", [f32, f64], ids=str)
@pytest.mark.parametrize("target", gpu_targets())
def test_functions_keep_their_bounds(target: str, dt: DType) -> None:
    need(target)
    if not facts(target).runs:
        pytest.skip(f"{target}: {facts(target).why}")
    if dt in find_target(target).kernels.lacks:
        pytest.skip(f"{target} has no {dt}")
    if dt is f64 and not EXTENDED:
        pytest.skip("long double is no wider than f64 here")
    names = FEW.get(target, tuple(CPU_MATH))
    given = {name: operands(name, dt) for name in names}
    g = rlx.Graph("functions")
    feeds: dict[str, Array] = {}
    results: list[rlx.Value] = []
    for name, xs in given.items():
        feeds |= {f"{name}{n}": x for n, x in enumerate(xs)}
        inputs = [g.input(f"{name}{n}", x.shape, dt) for n, x in enumerate(xs)]
        results.append(getattr(g, METHODS.get(name, name))(*inputs))
    g.set_outputs(results)
    found = rlx.Session(device_of(target)).compile(g).run(feeds)
    slack = slack_of(target)
    errors = {name: ulps(name, given[name], y) for name, y in zip(names, found, strict=True)}
    wrong = {
        name: error
        for name, error in errors.items()
        if math.isnan(error) or error > BOUNDS[name][dt is f64] + (slack if name != "rem" else 0)
    }
    assert not wrong
