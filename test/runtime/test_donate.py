"""Donated inputs: outputs written over them, wherever that is safe, and right everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def array(*shape: int) -> Array:
    """Whole numbers: their sums are the same in every order."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def checked(
    g: rlx.Graph, feeds: dict[str, Array], donate: dict[str, int], device: str = "cpu"
) -> Any:
    """Run a graph in every way; all give what the interpreter gives. Returns the compiled graph."""
    names = [str(v.name) for v in g.inputs]
    pairs = tuple((names.index(n), o) for n, o in donate.items())
    want = rlx.interpret(g, feeds)
    f = rlx.Session(device).compile(g, donate=pairs)

    for found, expected in zip(f.run(feeds), want, strict=True):
        np.testing.assert_array_equal(found, expected)
    outs = [np.full_like(a, 7) for a in want]
    f.run_into(feeds, outs)
    for found, expected in zip(outs, want, strict=True):
        np.testing.assert_array_equal(found, expected)

    state = {n: feeds[n].copy() for n in donate}
    rest = f.run_in_place({n: a for n, a in feeds.items() if n not in donate}, state)
    kept = [a for o, a in enumerate(want) if o not in donate.values()]
    for found, expected in zip(rest, kept, strict=True):
        np.testing.assert_array_equal(found, expected)
    for n, o in donate.items():
        np.testing.assert_array_equal(state[n], want[o], err_msg=n)
    state = {n: feeds[n].copy() for n in donate}
    bound = f.bind_state(state)
    for _ in range(3):  # the second is the first that is not checked
        for n, a in state.items():
            a[...] = feeds[n]
        again = bound.run({n: a for n, a in feeds.items() if n not in donate})
        for found, expected in zip(again, kept, strict=True):
            np.testing.assert_array_equal(found, expected)
        for n, o in donate.items():
            np.testing.assert_array_equal(state[n], want[o], err_msg=n)
    return f


def launches(f: Any) -> list[str]:
    return [launch.ops for launch in f._fast.launches]


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize("n", [1, 5, 16, 37, 9001])
def test_an_update_is_written_over_what_it_reads(n: int, device: str) -> None:
    g = rlx.Graph()
    p, m, d = (g.input(name, [n]) for name in "pmd")
    moved = m * 0.9 + d
    g.set_outputs([d.sum() * 0 + 1, p - moved * 0.1, moved])
    f = checked(g, {name: np.arange(n, dtype=np.float32) + i for i, name in enumerate("pmd")},
                {"p": 1, "m": 2}, device)  # fmt: skip
    if device == "cpu":
        assert not any("output" in ops for ops in launches(f)), "nothing is copied"


def test_what_is_still_read_is_written_over_at_the_end() -> None:
    g = rlx.Graph()
    a, b = g.input("a", [4, 4]), g.input("b", [4, 4])
    new = a * 2.0
    g.set_outputs([new, b + a.T, new @ a])
    f = checked(g, {"a": array(4, 4), "b": array(4, 4)}, {"a": 0, "b": 1})
    assert any("donated outputs" in ops for ops in launches(f))


def test_a_product_of_the_old_value_is_no_update_in_place() -> None:
    g = rlx.Graph()
    a = g.input("a", [20, 20])
    g.set_outputs([a @ a])
    checked(g, {"a": array(20, 20)}, {"a": 0})


def test_state_that_changes_places() -> None:
    g = rlx.Graph()
    a, b, c = (g.input(n, [3]) for n in "abc")
    g.set_outputs([b, c, a, a.flip(0)])
    checked(g, {n: array(3) for n in "abc"}, {"a": 0, "b": 1, "c": 2})


def test_one_value_for_two_and_a_view_of_the_old_one_as_a_result() -> None:
    g = rlx.Graph()
    a, b = g.input("a", [4]), g.input("b", [4])
    new = a + b
    g.set_outputs([a.reshape([2, 2]), new, new, b[1:3]])
    checked(g, {"a": array(4), "b": array(4)}, {"a": 1, "b": 2})


def test_state_that_a_loop_carries() -> None:
    g = rlx.Graph()
    a, x = g.input("a", [3, 3]), g.input("x", [5, 3, 3])
    carried, _ = rlx.scan(lambda c, e: (c @ e, c), a, x)
    g.set_outputs([carried, a + 1.0])
    checked(g, {"a": np.eye(3, dtype=np.float32), "x": np.ones((5, 3, 3), np.float32)}, {"a": 0})


def test_state_of_halves_and_scalars() -> None:
    g = rlx.Graph()
    h, n = g.input("h", [9], "bf16"), g.input("n", [], "i64")
    g.set_outputs([h + h, n + 1])
    h_value = np.arange(9).astype(rlx.bf16.numpy)
    checked(g, {"h": h_value, "n": np.asarray(4, np.int64)}, {"h": 0, "n": 1})


def cache(n: int = 64) -> tuple[rlx.Graph, rlx.Value, rlx.Value, rlx.Value, dict[str, Array]]:
    """A cache of ``n`` rows in 4 heads, two new rows, and the place of the first of them."""
    g = rlx.Graph()
    old, new = g.input("cache", [4, n, 8]), g.input("new", [1, 2, 8])
    at = g.input("at", [], "i64")
    feeds = {"cache": array(4, n, 8), "new": array(1, 2, 8), "at": np.asarray(5)}
    return g, old, new, at, feeds


WRITES = ("dynamic_update_slice", "scatter")


@pytest.mark.parametrize("way", ["update", "scatter"])
def test_rows_written_into_state_copy_nothing_else(way: str) -> None:
    """Of many writes in a row each writes its rows, though values in between are read."""
    g, kept, new, at, feeds = cache()
    sums: list[rlx.Value] = []
    for head in range(4):
        rows = new * float(head + 1)
        if way == "update":
            kept = kept.dynamic_update_slice(rows, [head, at, 0])
        else:
            kept = kept.scatter(at + np.arange(2), rows.expand([4, 2, 8]), axis=1)
        sums.append(kept[head].sum())
    g.set_outputs([kept, *sums])
    f = checked(g, feeds, {"cache": 0})
    assert not any("outputs" in ops for ops in launches(f))
    written = [launch.bytes for launch in f._fast.launches if launch.ops in WRITES]
    assert len(written) >= 4 and max(written) < 3 * 4 * 2 * 8 * 4, "no launch moves the cache"


def test_an_old_value_that_is_read_behind_the_update_stays() -> None:
    g, old, new, at, feeds = cache()
    once = old.dynamic_update_slice(new, [0, at, 0])
    twice = once.dynamic_update_slice(new, [1, at, 0])
    g.set_outputs([twice, once.sum(), old[:, 5].sum(), once * 2.0])
    f = checked(g, feeds, {"cache": 0})
    assert "dynamic_update_slice" in launches(f)


@pytest.mark.parametrize("way", ["update", "scatter"])
def test_rows_that_are_read_from_the_state_they_are_written_to(way: str) -> None:
    g, old, _, at, feeds = cache()
    if way == "update":
        g.set_outputs([old.dynamic_update_slice(old[1:3], [at, at, at])])
    else:
        g.set_outputs([old.scatter(at - np.arange(2), old[:, 5:7], axis=1)])
    checked(g, feeds, {"cache": 0})


@pytest.mark.parametrize("way", ["scan", "while"])
def test_a_loop_writes_rows_into_what_it_carries(way: str) -> None:
    g = rlx.Graph()
    kept, rows = g.input("cache", [64, 8]), g.input("rows", [10, 1, 8])

    def step(i: rlx.Value, carried: rlx.Value, row: rlx.Value) -> rlx.Value:
        once = carried.dynamic_update_slice(row, [i, 0])
        return once.dynamic_update_slice(row * 2.0, [i + 20, 0])

    n = g.input("n", [], "i64")
    if way == "scan":
        (_, out), _ = rlx.scan(lambda c, e: ((c[0] + 1, step(c[0], c[1], e)), ()), (n, kept), rows)
    else:
        _, out = rlx.while_loop(
            lambda i, c: i < 10,
            lambda i, c: (i + 1, step(i, c, rows[0] + i.cast("f32"))),
            (n, kept),
        )
    g.set_outputs([out])
    feeds = {"cache": array(64, 8), "rows": array(10, 1, 8), "n": np.asarray(0)}
    f = checked(g, feeds, {"cache": 0})
    inside = [launch.bytes for launch in f._fast.launches if launch.ops in WRITES]
    assert inside and max(inside) < 64 * 8 * 4, "no round moves it all"


def test_symbolic_sizes_share_one_state() -> None:
    g = rlx.Graph()
    w, x = g.input("w", [3]), g.input("x", ["n", 3])
    g.set_outputs([x.sum(), w + x.sum(axis=0)])
    f = rlx.Session("cpu").compile(g, donate=((0, 1),))
    state = {"w": np.zeros(3, np.float32)}
    for n in (2, 5):
        f.run_in_place({"x": np.ones((n, 3), np.float32)}, state)
    np.testing.assert_array_equal(state["w"], np.full(3, 7))


OPS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "matmul": lambda a, b: a @ b,
    "transpose": lambda a, b: a.T,
    "relu": lambda a, b: a.relu(),
    "update": lambda a, b: a.dynamic_update_slice(b[1:3], [b[0, 0].cast("i64"), 0]),
    "rows": lambda a, b: a.scatter(b[0].cast("i64"), b, mode="wrap"),
}


@settings(max_examples=50)
@given(st.data())
def test_any_graph_of_updates(data: st.DataObject) -> None:
    """Random wirings of elementwise ops, products and transposes; some inputs are donated."""
    g = rlx.Graph()
    values = [g.input(f"x{i}", [3, 3]) for i in range(3)]
    for _ in range(data.draw(st.integers(1, 6))):
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        kind = data.draw(st.sampled_from(list(OPS)))
        values.append(OPS[kind](a, b))
    outs = [data.draw(st.sampled_from(values)) for _ in range(4)]
    g.set_outputs(outs)
    names = data.draw(st.lists(st.sampled_from(["x0", "x1", "x2"]), unique=True))
    places = data.draw(st.permutations(range(4)))
    feeds = {f"x{i}": RNG.integers(-3, 4, (3, 3)).astype(np.float32) for i in range(3)}
    checked(g, feeds, dict(zip(names, places, strict=False)))


@pytest.mark.parametrize(
    ("donate", "message"),
    [
        (((0, 5),), "pairs input 0 with output 5; there are 2 inputs and 2 outputs"),
        (((1, 0),), "input 'n' is i64, and output 0, which donate would write over it, is 3xf32"),
        ((("a", 0),), r"each by its position, such as \(\(0, 1\),\); found \(\('a', 0\),\)"),
        ((0, 0), r"takes pairs .* found \(0, 0\)"),
        (3, "takes pairs .* found 3"),
        (((0, 0), (0, 1)), "donate names an input or an output twice"),
    ],
)
def test_donations_that_cannot_be_are_refused(donate: Any, message: str) -> None:
    g = rlx.Graph()
    a, _ = g.input("a", [3]), g.input("n", [], "i64")
    g.set_outputs([a + 1.0, a + 2.0])
    with pytest.raises(rlx.RlxError, match=message):
        rlx.Session("cpu").compile(g, donate=donate)


def test_state_that_cannot_be_written_and_artifacts_are_refused() -> None:
    g = rlx.Graph()
    a = g.input("a", [3])
    g.set_outputs([a + 1.0])
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    with pytest.raises(rlx.RlxError, match="state 'a' must be contiguous and writable"):
        f.run_in_place({}, {"a": frozen})
    with pytest.raises(rlx.RlxError, match="an artifact has no donated inputs"):
        rlx.compile_artifact(g, donate=((0, 0),))


def shared_and_apart() -> tuple[rlx.Graph, Array]:
    g = rlx.Graph()
    a, b, c = (g.input(n, [8]) for n in "abc")
    g.set_outputs([a + b.flip(0), b * 2.0 + c])
    return g, np.arange(32, dtype=np.float32)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_state_that_is_read_as_another_input_too_is_refused(device: str) -> None:
    g, room = shared_and_apart()
    one = rlx.Session(device).compile(g, donate=((0, 0),))
    both = rlx.Session(device).compile(g, donate=((0, 0), (1, 1)))
    a, b, c = room[:8], room[8:16], room[16:24]
    shared = "state 'a' shares memory with input 'b', and is written while"
    with pytest.raises(rlx.RlxError, match=shared):
        one.run_in_place({"b": a, "c": c}, {"a": a})
    with pytest.raises(rlx.RlxError, match="state 'a' shares memory with input 'c'"):
        one.run_in_place({"b": room[:8], "c": room[7:15]}, {"a": room[14:22]})
    with pytest.raises(rlx.RlxError, match="state 'b' shares memory with input 'a'"):
        both.run_in_place({"c": c}, {"a": a, "b": room[4:12]})
    np.testing.assert_array_equal(room, np.arange(32))
    expected = rlx.interpret(g, {"a": b, "b": a, "c": a})
    (rest,) = one.run_in_place({"b": a, "c": a}, {"a": b})  # both are only read
    np.testing.assert_array_equal(b, expected[0])
    np.testing.assert_array_equal(rest, expected[1])


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_state_that_would_be_written_as_a_copy_is_refused(device: str) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("a", []) + 1.0)
    number = rlx.Session(device).compile(g, donate=((0, 0),))
    g.set_outputs(g.input("b", [3]) + 1.0)
    row = rlx.Session(device).compile(g, donate=((1, 0),))
    for f, state in ((number, {"a": 1.0}), (number, {"a": np.float32(1)}), (row, {"b": [1, 2, 3]})):
        inputs = {"a": np.float32(0)} if "b" in state else {}
        with pytest.raises(rlx.RlxError, match=r"state '.' is a \w+, expected an array, which"):
            f.run_in_place(inputs, state)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer of bench/")
    feeds = {"a": np.float32(0)}
    with pytest.raises(rlx.RlxError, match="state 'b' must be contiguous and writable"):
        row.run_in_place(feeds, {"b": torch.zeros(6)[::2]})
    kept = torch.zeros(3)
    row.run_in_place(feeds, {"b": kept})
    assert kept.tolist() == [1, 1, 1]


def test_state_that_was_given_for_a_param_leaves_it_as_it_was() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("a", [8]) + g.param("w", [8]))
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    room = np.arange(8, dtype=np.float32)
    frozen = room.view()
    frozen.flags.writeable = False
    for value in (frozen, room):
        f.set_param("w", value)
        w = room.copy()
        f.run_in_place({}, {"a": room})
        np.testing.assert_array_equal(room, 2 * w)


@pytest.mark.parametrize("state", [(), ("a", "b")])
def test_state_is_what_was_donated(state: tuple[str, ...]) -> None:
    g, room = shared_and_apart()
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    feeds = {"a": room[:8], "b": room[8:16], "c": room[16:24]}
    given = {n: feeds.pop(n) for n in state}
    with pytest.raises(rlx.RlxError, match=r"the donated inputs are 'a'; found .* as state"):
        f.run_in_place(feeds, given)


def test_nothing_lies_over_an_empty_array() -> None:
    g = rlx.Graph()
    a, b = g.input("a", [0]), g.input("b", [0])
    g.set_outputs([a + b])
    x = np.empty(0, np.float32)
    assert rlx.Session("cpu").compile(g, donate=((0, 0),)).run_in_place({"b": x}, {"a": x}) == []


def test_a_bound_state_refuses_what_does_not_fit_in_later_runs_too() -> None:
    g = rlx.Graph()
    p, d = g.input("p", ["n"]), g.input("d", ["n"])
    g.set_outputs({"p": p + d, "sum": d.sum()})
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    memory = np.zeros(8, np.float32)
    bound = f.bind_state({"p": memory[2:6]})
    ones = np.ones(4, np.float32)
    for _ in range(3):
        assert bound.run({"d": ones}) == [4.0]
        with pytest.raises(rlx.RlxError, match="shares memory"):
            bound.run({"d": memory[:4]})
        with pytest.raises(rlx.RlxError, match="shares memory"):
            bound.run({"d": memory[4:]})
        with pytest.raises(rlx.RlxError, match="is f32, found int64"):
            bound.run({"d": np.ones(4, np.int64)})
        with pytest.raises(rlx.RlxError, match="nothing was given for the input 'd'"):
            bound.run({})
        with pytest.raises(rlx.RlxError, match="'q'"):
            bound.run({"q": ones})
        with pytest.raises(rlx.RlxError, match="n is 3, another"):
            bound.run({"d": np.ones(3, np.float32)})
    assert memory.tolist() == [0, 0, 3, 3, 3, 3, 0, 0]


def test_an_empty_state_hides_no_other() -> None:
    """In the middle of another one it has nothing to share."""
    g = rlx.Graph()
    p, q, x = g.input("p", [8]), g.input("q", [0]), g.input("x", [2])
    g.set_outputs([p + x.sum(), q * 2.0, x * 2.0])
    f = rlx.Session("cpu").compile(g, donate=((0, 0), (1, 1)))
    memory = np.zeros(8, np.float32)
    bound = f.bind_state({"p": memory, "q": memory[2:][:0]})
    bound.run({"x": np.ones(2, np.float32)})
    bound.run({"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(memory, np.full(8, 4, np.float32))
    with pytest.raises(rlx.RlxError, match="'p' shares memory with input 'x'"):
        bound.run({"x": memory[4:6]})
    np.testing.assert_array_equal(memory, np.full(8, 4, np.float32))
