"""Graphs with symbolic dims, compiled for many sizes at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import RlxError, ShapeError
from rlx.runtime import bindings
from rlx.runtime.background import waited
from rlx.runtime.sized import OWN

Array = np.ndarray[Any, Any]


def _layers() -> rlx.Graph:
    g = rlx.Graph("layers")
    x = g.input("x", [rlx.Dim("batch", 1, 64), "tokens", 32])
    w = g.param("w", [32, 48], value=np.linspace(-1, 1, 32 * 48, dtype=np.float32).reshape(32, 48))
    y = (x @ w).gelu().softmax(-1)
    g.set_outputs([y, y.sum(axes=1), y.transpose((1, 0, 2)).max(axes=0)])
    return g


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _bits(found: list[Array]) -> list[bytes]:
    return [a.tobytes() for a in found]


SIZES = [(3, 9), (5, 14), (1, 7), (64, 100), (3, 9), (2, 1), (17, 33), (8, 8), (1, 1), (30, 77)]


def test_every_size_has_the_bits_of_its_own_compile() -> None:
    f = rlx.Session("cpu").compile(_layers())
    with knobs.sizes.scoped("bound"):
        own = rlx.Session("cpu").compile(_layers())
    for batch, tokens in SIZES:
        x = _numbers(batch, tokens, 32)
        assert _bits(f.run({"x": x})) == _bits(own.run({"x": x}))
    waited()
    assert 1 < len(f.reports) <= len(f.variants) <= 16 and not own.variants


def test_a_param_that_is_set_anew_reaches_all_sizes() -> None:
    f = rlx.Session("cpu").compile(_layers())
    given = [_numbers(b, t, 32) for b, t in SIZES[:4]]
    for x in given:
        f.run({"x": x})
    w = _numbers(32, 48)
    f.set_param("w", w)
    g = _layers()
    g.param_values["w"] = w
    with knobs.sizes.scoped("bound"):
        own = rlx.Session("cpu").compile(g)
    for x in [*given, _numbers(7, 21, 32)]:
        assert _bits(f.run({"x": x})) == _bits(own.run({"x": x}))


def test_a_size_outside_its_range() -> None:
    f = rlx.Session("cpu").compile(_layers())
    f.run({"x": _numbers(9, 9, 32)})
    with pytest.raises(ShapeError, match="'batch' is from 1 to 64, found 65"):
        f.run({"x": _numbers(65, 9, 32)})


def test_sizes_that_no_memory_holds() -> None:
    g = rlx.Graph("large")
    x = g.input("x", ["n"])
    g.set_outputs((x.reshape(["n", 1, 1, 1]) + x.reshape([1, "n", 1, 1])).expand(["n"] * 4))
    f = rlx.Session("cpu").compile(g)
    assert f.run({"x": _numbers(3)})[0].shape == (3, 3, 3, 3)
    with pytest.raises(
        ShapeError, match=r"more than 2\*\*56|at most 72057594037927936 bytes|2\*\*60"
    ):
        f.run({"x": np.zeros(100_000, np.float32)})


def test_a_size_beyond_what_a_schedule_counts() -> None:
    """The variant that serves the most rows is there before there are too many."""
    g = rlx.Graph("rows")
    g.set_outputs((g.input("x", ["n", 4]) * 2).sum(axis=0))
    f = rlx.Session("cpu").compile(g)
    for rows, says in ((2**40, "no.* copy of 17592186044416 bytes"), (2**58, r"beyond 2\*\*60")):
        with pytest.raises(RlxError, match=says):
            f.run({"x": np.broadcast_to(np.float32(1), (rows, 4))})


def test_params_of_symbolic_dims_are_bound(capsys: pytest.CaptureFixture[str]) -> None:
    g = rlx.Graph("rows")
    g.set_outputs(g.input("x", [4, "n"]) @ g.param("w", ["n", 8]))
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", _numbers(16, 8))
    with knobs.log.scoped(frozenset({"compile"})):
        assert f.run({"x": _numbers(4, 16)})[0].shape == (4, 8)
    assert not f.variants
    said = capsys.readouterr().err
    assert "'rows' at n=16: it is compiled for these sizes alone: a graph whose params" in said


def test_what_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    f = rlx.Session("cpu").compile(_layers())
    with knobs.log.scoped(frozenset({"compile"})):
        for batch, tokens in SIZES[:2]:
            f.run({"x": _numbers(batch, tokens, 32)})
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("rlx: compile: 'layers' at batch=3, tokens=9: no variant of 0 serves")
    assert "batch >= 2" in f.variants[0]


def test_a_donated_input() -> None:
    g = rlx.Graph("step")
    x = g.input("x", ["n", 8])
    g.set_outputs([x * 0.5 + 1, x.sum(axes=1)])
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    for n in (4, 9, 5):
        state = _numbers(n, 8)
        wanted, total = state * np.float32(0.5) + 1, state.sum(axis=1)
        (found,) = f.run_in_place({}, {"x": state})
        np.testing.assert_array_equal(state, wanted)
        np.testing.assert_allclose(found, total, rtol=1e-5, atol=1e-6)
    assert len(f.reports) == 1, "one variant serves them"


def test_where_a_fault_is() -> None:
    g = rlx.Graph("rows")
    g.set_outputs(g.input("table", ["n", 4]).gather(g.input("i", ["m"], "i64"), mode="fault"))
    f = rlx.Session("cpu").compile(g)
    for n in (5, 9):
        table, i = _numbers(n, 4), np.array([0, n - 1, 2])
        np.testing.assert_array_equal(f.run({"table": table, "i": i})[0], table[i])
        with pytest.raises(rlx.errors.FaultError, match="index out of range"):
            f.run({"table": table, "i": i + 1})


def test_statistics_over_a_symbolic_axis() -> None:
    def graph() -> rlx.Graph:
        g = rlx.Graph("statistics")
        x = g.input("x", ["n", 24])
        g.set_outputs([x.mean(axes=0), x.mean(), (x - x.mean(axes=0)) * 2])
        return g

    f = rlx.Session("cpu").compile(graph())
    with knobs.sizes.scoped("bound"):
        own = rlx.Session("cpu").compile(graph())
    for n in (3, 7, 5, 100, 64, 1, 33):
        x = _numbers(n, 24)
        assert _bits(f.run({"x": x})) == _bits(own.run({"x": x}))


def test_what_is_made_of_params_by_a_dim() -> None:
    """It is no part of the prologue, which all sizes share."""
    g = rlx.Graph("table")
    x = g.input("x", ["rows", 4])
    table = g.param("table", [8, 4])
    g.set_outputs(
        [x + table.slice((0, 0), (x.shape[0], 4)) * 2.0, table.exp() @ x.transpose((1, 0))]
    )
    f = rlx.Session("cpu").compile(g)
    with knobs.sizes.scoped("bound"):
        own = rlx.Session("cpu").compile(g)
    for n in (3, 8, 5):
        value, x = _numbers(8, 4) * n, _numbers(n, 4)
        for compiled in (f, own):
            compiled.set_param("table", value)
        assert _bits(f.run({"x": x})) == _bits(own.run({"x": x}))
    assert len(f.reports) == 1, "one variant serves them"


def test_dims_in_the_order_of_their_names() -> None:
    """With its range a dim is spelled otherwise, and would come behind the other one."""
    g = rlx.Graph("order")
    a, b = g.input("a", [rlx.Dim("n", 1, 9), 4]), g.input("b", ["nB", 4])
    g.set_outputs(g.concat([a, b], axis=0) * 2)
    f = rlx.Session("cpu").compile(g)
    for n, other in ((2, 5), (3, 8), (4, 7)):
        given = {"a": _numbers(n, 4), "b": _numbers(other, 4)}
        np.testing.assert_array_equal(f.run(given)[0], np.concatenate([*given.values()]) * 2)
    assert len(f.reports) == 1, "one variant serves them"


def test_new_sizes_of_a_variant_are_bound_natively() -> None:
    """A size that a variant serves costs neither a lowering nor a program of Python's making."""
    f = rlx.Session("cpu").compile(_layers())
    f.run({"x": _numbers(3, 9, 32)})
    (first,) = f._variants.found  # type: ignore[union-attr]
    assert f._short.find({"x": _numbers(5, 11, 32)}) is not None
    assert f._short.find({"x": _numbers(65, 11, 32)}) is None
    assert f._short.find({"x": [1.0]}) is None and f._short.find(None) is None
    bound = f._executable({"batch": 5, "tokens": 11})
    assert bound.weights is first.code.weights  # type: ignore[union-attr]
    assert [n for _, _, n in bound.artifact.inputs] == [(5, 11, 32)]
    assert bound.launches[0].range < f._executable({"batch": 9, "tokens": 60}).launches[0].range


def _power() -> rlx.Graph:
    g = rlx.Graph("power")
    x = g.input("x", ["n"])
    w = g.param("w", [1], value=np.ones(1, np.float32))
    g.set_outputs((x.reshape(["n", 1, 1, 1]) + x.reshape([1, "n", 1, 1])).expand(["n"] * 4) * w)
    return g


def test_sizes_too_large_for_a_variant_that_is_there() -> None:
    """They are refused wherever a variant is asked first; the weights stay as they were set."""
    wide = np.broadcast_to(np.float32(1), 1 << 20)
    for loaded in (False, True):
        f = rlx.Session("cpu").compile(_power())
        f.prepare(dims={"n": (2, 9)}) if loaded else f._variants.prepare({"n": 9})  # type: ignore
        for call in (lambda f=f: f.run({"x": wide}), lambda f=f: f.prepare(dims={"n": 1 << 20})):
            with pytest.raises(ShapeError, match=r"2\*\*60|more than 2\*\*56 bytes"):
                call()
        assert f.run({"x": _numbers(3)})[0].shape == (3, 3, 3, 3)
    with pytest.raises(ShapeError, match=r"2\*\*60"):
        f._variants._improve((1 << 20,), OWN) or f._variants.provide({"n": 1 << 20})  # type: ignore


def test_a_size_beyond_2_to_the_60() -> None:
    g = rlx.Graph("product")
    n, m = rlx.Dim("n"), rlx.Dim("m")
    g.set_outputs([g.input("x", [n * m]).exp(), g.input("y", [m])])
    f = rlx.Session("cpu").compile(g)
    for large in ((1 << 60) + 1, 1 << 70):
        with pytest.raises(ShapeError, match=r"'n' is at most 2\*\*60, found|the range of the dim"):
            f.prepare(dims={"n": large, "m": 0})


def test_dims_without_a_limit_are_prepared_as_far_as_memory_goes() -> None:
    g = rlx.Graph("image")
    g.set_outputs(g.input("x", ["n", 3, "height", "width"]).exp())
    f = rlx.Session("cpu").compile(g)
    f.prepare(dims={"n": (1, 2)})
    count = len(f.variants)
    assert f.run({"x": _numbers(2, 3, 17, 33)})[0].shape == (2, 3, 17, 33)
    waited()
    assert len(f.variants) == count


def test_what_is_kept_takes_no_more_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that were used last stay, whether a variant or a compile of their own serves them."""
    for how in ("symbolic", "bound"):
        with knobs.sizes.scoped(how):
            f = rlx.Session("cpu").compile(_layers())
        f.run({"x": _numbers(3, 9, 32)})
        (one,) = f._bound.values()
        monkeypatch.setattr(bindings, "LIMIT", 3 * one.held_bytes)
        for tokens in (10, 11, 12):
            f.run({"x": _numbers(3, tokens, 32)})
            f.run({"x": _numbers(3, 9, 32)})
        assert (3, 9) in f._bound and (3, 10) not in f._bound and len(f._bound) <= 4
        monkeypatch.setattr(bindings, "LIMIT", 1)
        f.run({"x": _numbers(3, 14, 32)})
        assert [*f._bound] == [(3, 14)], "the last one stays"
