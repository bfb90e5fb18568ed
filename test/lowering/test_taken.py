"""Gathers inside pointwise regions: which are fused, and that they read what they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.base.giving_way import compiles
from rlx.compiler.driver import lowered
from rlx.lowering.compilation import Compilation
from rlx.targets import find_target
from rlx.types import DTYPES

Array = np.ndarray[Any, Any]


def run(say: Any, feeds: dict[str, Array], **options: Any) -> tuple[Array, list[str]]:
    """The result of ``say(graph, **inputs)``, and the regions that ran natively."""
    names = {d.numpy: n for n, d in DTYPES.items()}
    g = rlx.Graph("taken")
    leaves = {n: g.input(n, a.shape, names[a.dtype]) for n, a in feeds.items()}
    g.set_outputs([say(g, **leaves)])
    f = rlx.Session("cpu").compile(g, **options)
    return f.run(feeds)[0], list(f.reports[0].compilation.dispatch.native)


def numbers(name: str, *shape: int) -> Array:
    return np.random.default_rng(4).standard_normal(shape).astype(DTYPES[name].numpy)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "i32"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_every_axis(axis: int, name: str) -> None:
    x = (numbers("f32", 7, 9, 45) * 50).astype(DTYPES[name].numpy)
    i = np.random.default_rng(1).integers(0, x.shape[axis], 50)
    want = np.take(x, i, axis)
    got, native = run(lambda g, x, i: x.gather(i, axis, "clip") + x.gather(i, axis, "clip"),
                      {"x": x, "i": i})  # fmt: skip
    assert native == ["elementwise: gather+add"], "the two are one, and fused"
    np.testing.assert_array_equal(got, (want + want).astype(x.dtype))


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
def test_modes_and_broadcast_operands(mode: str) -> None:
    x, w = numbers("f32", 5, 30), numbers("f32", 70)
    i = np.random.default_rng(2).integers(-70, 70, 70)
    j = np.random.default_rng(3).integers(0, 30, 70).astype(np.int16)

    def say(g: Any, x: Any, w: Any, i: Any, j: Any) -> Any:
        return x.gather(i, 1, mode) * w + x.gather(j, 1, mode) * (1.0 - w)

    got, native = run(say, {"x": x, "w": w, "i": i, "j": j})
    assert native[-1].count("gather") == 2
    place = np.clip(i, 0, 29) if mode == "clip" else i % 30
    first = x[:, place]
    if mode == "fill":
        first[:, (i < -30) | (i >= 30)] = 0
    np.testing.assert_allclose(got, first * w + x[:, j] * (1 - w), rtol=1e-5, atol=1e-6)
    apart, _ = run(say, {"x": x, "w": w, "i": i, "j": j}, fuse=False)
    np.testing.assert_array_equal(got, apart)


def test_strided_tables_and_batches() -> None:
    x, i = numbers("f32", 6, 40, 8), np.random.default_rng(5).integers(0, 6, (8, 40, 3))
    got, native = run(lambda g, x, i: -x.transpose((2, 1, 0)).take_along_axis(i, 2, "clip"),
                      {"x": x, "i": i})  # fmt: skip
    assert native == ["elementwise: gather+neg"]
    np.testing.assert_array_equal(got, -np.take_along_axis(x.transpose(2, 1, 0), i, 2))
    got, _ = run(lambda g, x, i: -x[::2, 1::3].gather(i[:, 0, 0], 0, "clip"), {"x": x, "i": i})
    np.testing.assert_array_equal(got, -x[::2, 1::3][np.clip(i[:, 0, 0], 0, 2)])


def test_a_fault_stays_at_its_own_line() -> None:
    x, i = numbers("f32", 5, 30), np.zeros(70, np.int64)
    _, native = run(lambda g, x, i: -x.gather(i, 1), {"x": x, "i": i})
    assert native == ["gather: gather", "elementwise: neg"]


def test_a_table_is_not_written_over() -> None:
    """A value that is read by index and element by element, large enough to be written over."""
    x = numbers("f32", 300, 300)
    i = np.arange(299, -1, -1)

    def say(g: Any, x: Any, i: Any) -> Any:
        y = x @ x
        return (y + y.gather(i, 1, "clip")) * 2.0

    got, _ = run(say, {"x": x, "i": i})
    y = x @ x
    np.testing.assert_allclose(got, (y + y[:, ::-1]) * 2, rtol=1e-4, atol=1e-2)


def test_a_carried_table_is_not_written_over() -> None:
    x, i = numbers("f32", 64, 64), np.arange(63, -1, -1)

    def say(g: Any, x: Any, i: Any) -> Any:
        return rlx.fori(3, lambda n, v: v + v.gather(i, 1, "clip") * 0.5, x)

    got, _ = run(say, {"x": x, "i": i})
    want = x
    for _ in range(3):
        want = want + want[:, ::-1] * np.float32(0.5)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "times", "length"), [
    ("f32", 2, 100), ("f32", 4, 24), ("f32", 8, 5), ("f64", 2, 33), ("f16", 2, 40), ("bf16", 4, 7),
    ("i8", 2, 150), ("i64", 8, 16),
])  # fmt: skip
def test_an_axis_that_grows_by_a_whole_factor(name: str, times: int, length: int) -> None:
    """Constant indices in phases, which vectors do not look at: in the middle, at both ends, and
    where a vector begins inside an element."""
    x = (numbers("f32", 3, length) * 50).astype(DTYPES[name].numpy)
    o = np.arange(times * length)
    phases = np.random.default_rng(times).integers(-1, 2, times)
    taps = [np.clip(o // times + phases[o % times] + tap, 0, length - 1) for tap in (0, 1)]

    def say(g: Any, x: Any) -> Any:
        return x.gather(taps[0], 1, "clip") + x.gather(taps[1], 1, "clip")

    got, _ = run(say, {"x": x})
    np.testing.assert_array_equal(got, (x[:, taps[0]] + x[:, taps[1]]).astype(x.dtype))
    g = rlx.Graph("phases")
    g.set_outputs([say(g, g.input("x", x.shape, name))])
    with compiles:
        (kernel,) = lowered(g, Compilation(find_target("cpu"))).kernels
    first, second = (take.phases for take in kernel.config.taken)
    assert first == (*phases,), "they were found"
    assert second == (*phases + 1,)


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_resize_agrees_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = numbers(name, 2, 3, 13, 22)
    for sizes in ((26, 44), (9, 15), (13, 50), (40, 7)):
        for mode, peer in (("linear", "bilinear"), ("cubic", "bicubic")):
            got, _ = run(lambda g, x, m=mode, s=sizes: x.resize(s, m), {"x": x})
            want = torch.nn.functional.interpolate(
                torch.from_numpy(x.astype(np.float64)), sizes, mode=peer
            )
            eps = 1e-5 if name == "f32" else 4e-3
            np.testing.assert_allclose(got.astype(np.float64), want.numpy(), rtol=eps, atol=eps)
