"""Convolutions of images of any size: their tiles at all sizes, and the kernels that are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import Dim
from rlx.base.dim_bounds import bounds
from rlx.base.dim_text import without_ranges
from rlx.base.dims import SymDim
from rlx.base.guards import Deciding
from rlx.kernels.conv.channels_any import AnyTiles, Ends
from rlx.kernels.conv.channels_plan import ConvChannelsConfig, suits
from rlx.kernels.conv.plan import ConvShape
from rlx.lowering.select import builder
from rlx.runtime import sized
from rlx.runtime.background import waited
from rlx.runtime.sized import EVERY, SOON, Variants
from rlx.targets.cpu.target import kernel_target
from rlx.types import f32
from support.jit import host

Array = np.ndarray[Any, Any]
BY_CHANNELS = pytest.mark.skipif(
    kernel_target(host()).vector_bytes < 32, reason="vectors of 16 bytes"
)


def _layer(taps: int, stride: int, low: int, channels: int = 24) -> rlx.Graph:
    g = rlx.Graph()
    x = g.input("x", [Dim("batch", 1, 2), channels, Dim("height", 1, 4), Dim("width", 1, 20)])
    draw = np.random.default_rng(1)
    w = draw.integers(-2, 3, (32, channels, taps, taps)).astype(np.float32)
    pads = [(low, low)] * 2
    g.set_outputs([x.conv(g.param("w", w.shape, value=w), stride=[stride] * 2, padding=pads)])
    return g


def _general(g: rlx.Graph, sizes: dict[str, int]) -> rlx.CompiledGraph:
    """A graph with its general variant alone."""
    f = rlx.Session("cpu", threads=2).compile(g)
    variants: Any = f._variants
    assert isinstance(variants, Variants)
    variants._compiled(sizes, EVERY, "asked")
    variants._enough = True
    return f


def _convolved(x: Array, w: Array, stride: int, low: int) -> Array:
    """By NumPy: of small integers, whose sums are exact in any order."""
    padded = np.pad(x, ((0, 0), (0, 0), (low, low), (low, low)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwyx,ocyx->nohw", windows[:, :, ::stride, ::stride], w, optimize=True)


@pytest.mark.parametrize(
    ("taps", "stride", "low"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (1, 2, 0), (5, 1, 2)]
)
def test_every_size_is_served(taps: int, stride: int, low: int) -> None:
    g = _layer(taps, stride, low)
    f = _general(g, {"batch": 2, "height": 3, "width": 20})
    draw, w = np.random.default_rng(0), g.param_values["w"]
    for height, width in [*((2 + n % 3, n) for n in range(2, 21)), (4, 3), (2, 3)]:
        x = draw.integers(-3, 4, (2, w.shape[1], height, width)).astype(np.float32)
        found = f.run({"x": x})[0]
        np.testing.assert_array_equal(found, _convolved(x, w, stride, low), f"{height} {width}")
    assert all(v.general for v in f._variants.found)  # pyright: ignore


@pytest.mark.parametrize(
    ("channels", "groups", "sizes"),
    [(300, 1, [(40, 60), (60, 5)]), (200, 2, [(40, 60)]), (8, 1, [(200, 90), (200, 3)])],
)
def test_many_tiles_and_parts_of_channels(
    channels: int, groups: int, sizes: list[tuple[int, int]]
) -> None:
    """More sums than a task keeps, channels in parts, and a last block with one vector."""
    g = rlx.Graph()
    x = g.input("x", [1, channels * groups, Dim("height", 2, 200), Dim("width", 2, 90)])
    draw = np.random.default_rng(1)
    w = draw.integers(-2, 3, (70 * groups, channels, 3, 3)).astype(np.float32)
    g.set_outputs([x.conv(g.param("w", w.shape, value=w), padding=1, groups=groups)])
    f = _general(g, dict(zip(("height", "width"), sizes[0], strict=True)))
    for size in sizes:
        image = draw.integers(-3, 4, (1, channels * groups, *size)).astype(np.float32)
        pairs = zip(np.split(image, groups, 1), np.split(w, groups), strict=True)
        want = np.concatenate([_convolved(*pair, 1, 1) for pair in pairs], 1)
        np.testing.assert_array_equal(f.run({"x": image})[0], want, f"{size}")


@BY_CHANNELS
def test_no_call_waits_for_kernels_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A general variant without them is there first, and the one with them takes over, also from
    the cache; a program that is prepared has it alone."""
    g = _layer(3, 1, 1, channels=64)
    f = rlx.Session("cpu").compile(g)

    def kinds(f: Any) -> list[tuple[bool, bool]]:
        return [(v.general, v.hasty) for v in f._variants.found]

    def x(height: int, width: int) -> dict[str, Array]:
        draw = np.random.default_rng(width)
        return {"x": draw.standard_normal((2, 64, height, width)).astype(np.float32)}

    with monkeypatch.context() as m:
        m.setattr(sized, "later", lambda _: False)
        f.run(x(4, 19))
        first = f.run(x(3, 11))[0]
    assert kinds(f) == [(False, False), (True, True)]
    f.run(x(2, 12))
    waited()
    assert kinds(f) == [(False, False), (True, False), (True, True)]
    assert f.run(x(3, 11))[0].tobytes() == first.tobytes()
    again = rlx.Session("cpu").compile(g)
    for sizes in ((4, 19), (3, 11), (2, 12)):
        again.run(x(*sizes))
        waited()
    assert kinds(again) == kinds(f)
    prepared = rlx.Session("cpu").compile(g)
    prepared.prepare(dims={"batch": 2, "height": (3, 4), "width": (11, 20)})
    assert (True, False) in kinds(prepared)
    taken: Any = prepared._executable({"batch": 2, "height": 3, "width": 12})
    assert not taken.report.hasty


@BY_CHANNELS
def test_the_kernels_are_those_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """On images as they lie, and with no tiles of one size."""
    configs: list[Any] = []
    launch = builder.Lowering.launch

    def noted(self: Any, family: str, config: Any, *rest: Any, **named: Any) -> Any:
        configs.append(config)
        return launch(self, family, config, *rest, **named)

    monkeypatch.setattr(builder.Lowering, "launch", noted)
    sizes = {"batch": 2, "height": 4, "width": 19}
    for stride in (1, 2):
        g = _layer(3, stride, 1, channels=64)
        found: list[ConvChannelsConfig] = []
        for compiled in (False, True):
            configs.clear()
            if compiled:
                _general(g, sizes)
            else:
                rlx.Session("cpu").compile(g, dims=sizes)
            found += [c for c in configs if isinstance(c, ConvChannelsConfig)]
            assert not any(type(c).__name__ == "PlanesConfig" for c in configs)
        own, every = found
        assert own.images and every.images
        assert own.any is None and every.any is not None and not every.tiles


@BY_CHANNELS
@pytest.mark.parametrize(
    ("channels", "outputs", "told"),
    [(32, 16, "width <= 14"), (4, 32, "width <= 7"), (64, 64, ""), (3, 16, "")],
)
def test_narrow_images_are_told_apart_where_another_kernel_is_for_them(
    channels: int, outputs: int, told: str
) -> None:
    target = kernel_target(host())
    if target.registers < 32:
        pytest.skip("tiles of fewer windows")
    height, width = SymDim.symbol("height", 32, 200), SymDim.symbol("width", 1, 200)
    shape = ConvShape(
        1, 1, channels, outputs, (1, height, width), (1, height, width), (1, 3, 3), (1, 1, 1),
        (0, 1, 1), (1, 1, 1),
    )  # fmt: skip
    sizes = {"height": 40, "width": 6}
    with Deciding(sizes, general=True) as narrow:
        found = suits(target, shape, f32)
    with Deciding({**sizes, "width": 40}, general=True) as wide:
        other = suits(target, shape, f32)
    assert without_ranges(", ".join(map(str, narrow.guards))) == told
    assert bool(wide.guards) == bool(told) == (found != other)


def test_images_of_one_size_leave_nothing_out() -> None:
    """What is hasty of a graph with a named batch alone has all of its kernels."""
    g = rlx.Graph()
    x = g.input("x", [Dim("batch", 1, 8), 64, 28, 28])
    g.set_outputs([x.conv(g.param("w", value=np.ones((64, 64, 3, 3), np.float32)), padding=1)])
    variants: Any = rlx.Session("cpu").compile(g)._variants
    assert isinstance(variants, Variants)
    made = variants._compiled({"batch": 2}, SOON, "asked")
    assert made.general and not made.hasty


def test_tiles_leave_out_the_taps_on_the_padding() -> None:
    ends = Ends(taps=3, step=1, gap=1, low=1, high=(1, 2))
    assert ends.across(4, True, 0) == ((1, 4), (0, 4), (0, 4))
    assert ends.across(4, False, 1) == ((0, 4), (0, 4), (0, 3))
    assert ends.across(1, True, 1) == ((0, 0), (0, 1), (0, 0))
    tiles = list(AnyTiles(6, (3, 7), (1, 4), 4, ends).in_rows())
    assert [(t.rows, t.columns) for t in tiles] == [
        (1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2), (1, 3), (2, 3),
    ]  # fmt: skip


def test_what_a_quotient_of_a_quotient_leaves_has_bounds() -> None:
    n = SymDim.symbol("n", 1, 100)
    half = (n - 1) // 2 + 1
    assert bounds(half - 2 * ((half - 1) // 2) - 1) == (0, 1)
    assert bounds(n // 2 - 3 * (n // 6)) == (0, 2)
