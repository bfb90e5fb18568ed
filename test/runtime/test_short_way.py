"""The short way of ``run`` and ``run_into``: dicts of arrays that are exactly as declared."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, FaultError, GraphError, NameError, OutOfMemoryError, ShapeError
from rlx.runtime import _native
from rlx.runtime.executable import Executable
from rlx.runtime.short_way import ShortWay

Array = np.ndarray[Any, Any]


def compiled() -> rlx.CompiledGraph:
    g = rlx.Graph("short")
    x, y = g.input("x", [4], "f32"), g.input("y", [4], "f32")
    g.set_outputs([x + y, x * y])
    return rlx.Session().compile(g)


def executable(f: rlx.CompiledGraph) -> Executable:
    assert isinstance(f._fast, Executable)
    return f._fast


def feeds() -> dict[str, Array]:
    return {"x": np.arange(4, dtype=np.float32), "y": np.full(4, 3, np.float32)}


class Own(np.ndarray[Any, Any]):
    """A subclass, which may mean something else by its elements."""


def others() -> dict[str, Any]:
    """What is no dict of arrays as declared."""
    f = feeds()
    return {
        "none": None,
        "a list": [f["x"], f["y"]],
        "one missing": {"x": f["x"]},
        "one too many": {**f, "z": f["x"]},
        "another name": {"x": f["x"], "z": f["y"]},
        "another type": {**f, "x": f["x"].astype(np.float64)},
        "another shape": {**f, "x": f["x"][:3]},
        "apart": {**f, "x": np.arange(8, dtype=np.float32)[::2]},
        "numbers": {**f, "x": [0.0, 1.0, 2.0, 3.0]},
        "a subclass": {**f, "x": f["x"].view(Own)},
        "a subclass of dict": type("Feeds", (dict,), {})(f),
    }


def test_it_gives_what_the_long_way_gives() -> None:
    f = compiled()
    want = f.run_slots(*feeds().values())
    found = executable(f).run_named(feeds())
    assert found is not None and all(map(np.array_equal, found, want))
    for make in (list, tuple):
        outs = [np.zeros(4, np.float32) for _ in range(2)]
        assert executable(f).run_named_into(feeds(), make(outs))
        assert all(map(np.array_equal, outs, want))


@pytest.mark.parametrize("what", others())
def test_other_inputs_are_left_to_the_long_way(what: str) -> None:
    f, given = compiled(), others()[what]
    outs = [np.full(4, 7, np.float32) for _ in range(2)]
    assert executable(f).run_named(given) is None
    assert not executable(f).run_named_into(given, outs)
    assert all((out == 7).all() for out in outs)
    if what in ("apart", "numbers", "a subclass", "a subclass of dict"):
        x = np.asarray(given["x"], np.float32)
        assert np.array_equal(f.run(given)[0], x + 3)
    else:
        with pytest.raises((GraphError, NameError, DTypeError, ShapeError)):
            f.run(given)


def test_other_outputs_are_left_to_the_long_way() -> None:
    f, given = compiled(), feeds()
    good = np.zeros(4, np.float32)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    both = np.zeros(7, np.float32)
    around = np.zeros(12, np.float32)
    given["x"] = around[4:8]
    bad: dict[str, Any] = {
        "one": [good],
        "frozen": [good, frozen],
        "wide": [good, np.zeros(4)],
        "over one another": [both[:4], both[3:]],
        "over an input": [good, around[7:11]],
        "over an input's begin": [around[1:5], good],
        "the input": [good, given["x"]],
        "no arrays": [good, [0.0] * 4],
        "no list": iter([good, good]),
    }
    for what, outs in bad.items():
        assert not executable(f).run_named_into(given, outs), what
        with pytest.raises((GraphError, DTypeError, ShapeError)):
            f.run_into(given, outs)
    assert executable(f).run_named_into(given, [around[:4], around[8:]])  # beside it


def test_a_param_of_memory_that_others_write_is_a_copy() -> None:
    g = rlx.Graph("param")
    g.set_outputs([g.input("x", [4], "f32") + g.param("w", [4], "f32")])
    f, memory = rlx.Session().compile(g), np.ones(4, np.float32)
    view = memory.view()
    view.flags.writeable = False
    x = np.ones(4, np.float32)
    for given in (view, memory):
        f.set_param("w", given)
        for _ in range(2):
            f.run_into({"x": x}, [memory])
            assert (memory == 2).all()
        memory[:] = 1


def test_a_param_that_was_not_set_is_named() -> None:
    g = rlx.Graph("param")
    g.set_outputs([g.input("x", [4], "f32") + g.param("w", [4], "f32")])
    f, x = rlx.Session().compile(g), np.zeros(4, np.float32)
    for call in (lambda: f.run({"x": x}), lambda: f.run_into({"x": x}, [np.zeros(4, np.float32)])):
        with pytest.raises(NameError, match="'w'"):
            call()


def test_a_value_that_was_set_takes_part() -> None:
    f = compiled()
    f.set_input("y", np.full(4, 5, np.float32))
    assert np.array_equal(f.run({"x": feeds()["x"]})[0], feeds()["x"] + 5)
    assert np.array_equal(f.run(feeds())[0], feeds()["x"] + 3)


def test_nothing_is_kept() -> None:
    f, given = compiled(), feeds()
    outs = [np.zeros(4, np.float32) for _ in range(2)]
    held = [given["x"], given["y"], *outs]
    f.run_into(given, outs)
    before = [sys.getrefcount(a) for a in held]
    for _ in range(10):
        f.run(given)
        f.run_into(given, outs)
        executable(f).run_named({**given, "y": None})
    assert [sys.getrefcount(a) for a in held] == before


def test_what_the_runtime_has_no_memory_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        error = _native.Error("arena: found no memory, expected 64 bytes")
        error.found, error.partly_run = "no memory", False
        raise error

    f = compiled()
    monkeypatch.setattr(f._short, "program", SimpleNamespace(run_named=fails))
    with pytest.raises(OutOfMemoryError, match=r"test_short_way\.py.*no memory, expected 64 bytes"):
        f.run(feeds())


def test_faults_of_a_graph_for_many_sizes() -> None:
    """A call at a size that has a variant takes the short way; its faults are those of any call."""
    g = rlx.Graph("sizes")
    x, at = g.input("x", ["n"]), g.input("at", ["n"], "i64")
    g.set_outputs(x.gather(at, axis=0))
    f = rlx.Session().compile(g)
    x_array, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    right, wrong = np.array([3, 0, 1, 2]), np.array([3, 0, 1, 9])
    f.run({"x": x_array, "at": right})
    for call in (f.run, lambda given: f.run_into(given, [out])):
        with pytest.raises(FaultError, match=r"test_short_way.py:\d+: .*out of range"):
            call({"x": x_array, "at": wrong})
        call({"x": x_array, "at": right})
    np.testing.assert_array_equal(out, [3, 0, 1, 2])


def test_sizes_of_the_call_before_are_not_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a better variant may serve them now, or inputs were set meanwhile."""
    g = rlx.Graph("sizes")
    n = rlx.Dim("n", 1, 8)
    g.set_outputs(g.input("x", [n]) * 2.0 + g.input("y", [n]))
    f, told = rlx.Session().compile(g), list[int]()
    find = ShortWay.find

    def noted(self: ShortWay, inputs: Any) -> Any:
        told.append(len(inputs["x"]))
        return find(self, inputs)

    def call(size: int) -> None:
        x, y = np.arange(size, dtype=np.float32), np.full(size, 3, np.float32)
        np.testing.assert_array_equal(f.run({"x": x, "y": y})[0], x * 2 + 3)
        f.run_into({"x": x, "y": y}, [out := np.zeros(size, np.float32)])
        np.testing.assert_array_equal(out, x * 2 + 3)

    for size in (4, 5):
        call(size)
    monkeypatch.setattr(ShortWay, "find", noted)
    for size in (5, 4, 4, 5):
        call(size)
    assert told == [4, 5]
    f._variants.changes += 1  # type: ignore[union-attr]
    call(5)
    assert told == [4, 5, 5]
    f.set_input("y", np.zeros(5, np.float32))
    np.testing.assert_array_equal(f.run({"x": np.ones(5, np.float32)})[0], np.full(5, 2))


def test_a_missing_input_is_told_with_the_call_to_write() -> None:
    """Of many inputs with the first, and without those that are set."""
    g = rlx.Graph("many")
    names = [f"x{n}" for n in range(12)]
    g.set_outputs([g.concat([g.input(name, [1]) for name in names], axis=0)])
    f = rlx.Session("cpu").compile(g)
    one = np.ones(1, np.float32)
    with pytest.raises(NameError, match=r"'x0'; write run\({'x0': array, .*'x7': array, \.\.\.}\)"):
        f.run(dict.fromkeys(names[1:], one))
    for name in names[2:]:
        f.set_input(name, one)
    with pytest.raises(NameError, match=r"'x1'; write run\({'x0': array, 'x1': array}\)"):
        f.run({"x0": one})
