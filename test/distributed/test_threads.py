"""Collectives of compiled graphs, whose ranks are threads."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.distributed import connect, current_rank, disconnect, interpret, run_threads
from rlx.errors import FaultError, GraphError, RlxError
from rlx.ops.collective.exchange import AxisIndex
from rlx.ops.pointwise.base import ANY, ARITHMETIC, ORDERED
from rlx.types import DType, bf16, f16
from support.collectives import CASES, RANKS, Array, arrays, graph
from support.sweeps import covering

REDUCED = {
    **dict.fromkeys(("sum", "prod", "scatter", "scatter along 1", "index"), ARITHMETIC),
    **dict.fromkeys(("min", "max"), ORDERED),
}


def on_threads(g: rlx.Graph, mesh: rlx.Mesh, feeds: list[dict[str, Any]]) -> list[list[Array]]:
    """What each rank gives by a compile of its own."""
    session = rlx.Session("cpu")
    return run_threads(mesh, lambda rank: list(session.compile(g).run(feeds[rank])))


@pytest.mark.parametrize(
    ("dt", "n"), covering(itertools.product(ANY, RANKS), lambda c: [c[0], (c[0].kind, c[1])]),
    ids=str,
)  # fmt: skip
def test_every_collective_of_every_type_is_what_it_is_in_numpy(dt: DType, n: int) -> None:
    names = [name for name in CASES if dt in REDUCED.get(name, ANY)]
    g, along = rlx.Graph("all"), rlx.Mesh(data=n)["data"]
    x = g.input("x", [24, 24], dt)
    g.set_outputs([CASES[name][0](x, along) for name in names])
    data = arrays(n, dt.numpy)
    found = on_threads(g, rlx.Mesh(data=n), [{"x": v} for v in data])
    wide = data.astype(np.float32) if dt in (f16, bf16) else data
    for at, name in enumerate(names):
        expected = CASES[name][1](wide).astype(dt.numpy)
        np.testing.assert_array_equal(np.stack([r[at] for r in found]), expected, err_msg=name)


def readable(a: Array) -> Array:
    """As a type of NumPy's own, which knows that nan is nan."""
    return a.astype(np.float32) if a.dtype == ml_dtypes.bfloat16 else a


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-8, 6e4, 1e38, -1.5, 3e-5], np.float64)


@pytest.mark.parametrize("dt", [d for d in ARITHMETIC if not d.is_int], ids=str)
@pytest.mark.parametrize("length", [7, 40000])
def test_sums_have_the_bits_of_the_reference(dt: DType, length: int) -> None:
    """Rounded in the same order, whether the ranks combine parts or the whole, at nan too."""
    n, rng = 4, np.random.default_rng(length)
    g, along = rlx.Graph("sum"), rlx.Mesh(data=n)["data"]
    x = g.input("x", [length], dt)
    outs = [x.all_reduce(along), x.all_reduce(along, "prod")]
    if not dt.is_complex:
        outs += [x.all_reduce(along, "min"), x.all_reduce(along, "max")]
    g.set_outputs(outs)
    data = rng.standard_normal((n, length)) * 10.0 ** rng.integers(-6, 6, (n, length))
    if not dt.is_complex:  # a product of complex infinities is what the formula gives
        data[rng.random(data.shape) < 0.2] = rng.choice(SPECIAL)
        data[:, :7] = rng.choice(SPECIAL, (n, 7))
    with np.errstate(over="ignore"):
        feeds = [{"x": v.astype(dt.numpy)} for v in data]
    found, expected = on_threads(g, rlx.Mesh(data=n), feeds), interpret(g, rlx.Mesh(data=n), feeds)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours[:1] if dt.is_complex else ours, theirs, strict=False):
            np.testing.assert_array_equal(readable(a), readable(b))


def test_ranks_have_the_same_bits_as_one_another_and_in_every_run() -> None:
    n = 3
    g, along = rlx.Graph("sum"), rlx.Mesh(data=n)["data"]
    g.set_outputs(g.input("x", [5000]).all_reduce(along))
    data = np.random.default_rng(0).standard_normal((n, 5000)).astype(np.float32)
    feeds = [{"x": v} for v in data]
    runs = [on_threads(g, rlx.Mesh(data=n), feeds) for _ in range(3)]
    assert len({a.tobytes() for run in runs for (a,) in run}) == 1


def test_ranks_meet_along_both_axes_of_a_mesh() -> None:
    mesh = rlx.Mesh(data=2, model=3)
    g = rlx.Graph("both")
    x = g.input("x", [4])
    sums = x.all_reduce(mesh["model"]), x.all_gather(mesh["data"])
    g.set_outputs([*sums, g.axis_index(mesh["model"]) * 10 + g.axis_index(mesh["data"])])
    data = np.arange(24, dtype=np.float32).reshape(6, 4)
    found = on_threads(g, mesh, [{"x": v} for v in data])
    grid = data.reshape(2, 3, 4)
    for rank, (total, joined, index) in enumerate(found):
        row, column = divmod(rank, 3)
        np.testing.assert_array_equal(total, grid[row].sum(0))
        np.testing.assert_array_equal(joined, grid[:, column].ravel())
        assert index == column * 10 + row


def test_ranks_meet_in_loops_branches_and_after_params() -> None:
    n = 2
    g, along = rlx.Graph("loop"), rlx.Mesh(data=n)["data"]
    x, w = g.input("x", [2]), g.param("w", value=np.array([1, 2], np.float32))
    total = rlx.fori(4, lambda i, v: v.all_reduce(along) * 0.25, x)
    total = rlx.fori(2, lambda i, v: v + AxisIndex.build(along).cast("f32"), total)
    pick = rlx.cond(total.sum() > 0.0, lambda v: v.all_reduce(along, "max"), lambda v: v, total)
    g.set_outputs(pick + w.all_reduce(along))
    xs = np.arange(4, dtype=np.float32).reshape(2, 2)
    expected = interpret(g, rlx.Mesh(data=n), [{"x": v} for v in xs])
    found = on_threads(g, rlx.Mesh(data=n), [{"x": v} for v in xs])
    for (a,), (b,) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_any_sizes() -> None:
    g, along = rlx.Graph("sizes"), rlx.Mesh(data=2)["data"]
    x = g.input("x", ["n", 3])
    g.set_outputs([x.all_gather(along), x.all_reduce(along) * 2.0])
    session = rlx.Session("cpu")

    def rank(number: int) -> list[list[Array]]:
        f = session.compile(g)
        return [list(f.run({"x": np.full((n, 3), number + 1.0, np.float32)})) for n in (2, 5, 2)]

    for runs in run_threads(rlx.Mesh(data=2), rank):
        for (joined, total), n in zip(runs, (2, 5, 2), strict=True):
            np.testing.assert_array_equal(joined, np.repeat([[1.0], [2.0]], n, 0).repeat(3, 1))
            np.testing.assert_array_equal(total, np.full((n, 3), 6.0))


def test_an_artifact_has_collectives(tmp_path: Path) -> None:
    g = graph(CASES["gather"][0], 2)
    rlx.compile_artifact(g).save(tmp_path / "rank.rlx")
    x = arrays(2)

    def rank(number: int) -> Array:
        f = rlx.Session("cpu").load(tmp_path / "rank.rlx")
        return f.run({"x": x[number]})[0]

    for found in run_threads(rlx.Mesh(data=2), rank):
        np.testing.assert_array_equal(found, x.reshape(48, 24))


def test_a_large_tensor_goes_in_parts() -> None:
    n, length = 3, 700001
    g, along = rlx.Graph("large"), rlx.Mesh(data=n)["data"]
    x = g.input("x", [n, length])
    g.set_outputs([x.all_reduce(along), x.reduce_scatter(along), x.all_to_all(along),
                   x.collective_broadcast(along, 2), x.all_gather(along)])  # fmt: skip
    data = np.random.default_rng(0).integers(-9, 9, (n, n, length)).astype(np.float32)
    found = on_threads(g, rlx.Mesh(data=n), [{"x": v} for v in data])
    for rank, (total, scattered, exchanged, spread, joined) in enumerate(found):
        np.testing.assert_array_equal(total, data.sum(0))
        np.testing.assert_array_equal(scattered, data.sum(0)[rank : rank + 1])
        np.testing.assert_array_equal(exchanged, data[:, rank])
        np.testing.assert_array_equal(spread, data[2])
        np.testing.assert_array_equal(joined, data.reshape(n * n, length))


# -- what goes wrong -----------------------------------------------------------------------


def test_without_a_communicator() -> None:
    f = rlx.Session("cpu").compile(graph(CASES["sum"][0], 2))
    with pytest.raises(GraphError, match="over 2 ranks along 'data': found no communicator"):
        f.run({"x": arrays(2)[0]})


def test_along_another_axis_or_with_other_ranks() -> None:
    f = rlx.Session("cpu").compile(graph(CASES["sum"][0], 2))
    for mesh, message in (
        (rlx.Mesh(model=1), "found communicators along model, expected one along 'data'"),
        (rlx.Mesh(data=1), "found a communicator of 1 ranks"),
    ):
        connect(mesh)
        try:
            with pytest.raises(GraphError, match=message):
                f.run({"x": arrays(2)[0]})
        finally:
            disconnect()


def test_other_graphs_are_refused_before_the_first_run() -> None:
    graphs = [graph(CASES["sum"][0], 2), graph(CASES["gather"][0], 2)]

    def rank(number: int) -> Any:
        return rlx.Session("cpu").compile(graphs[number]).run({"x": arrays(2)[number]})

    with pytest.raises(GraphError, match=r"rank [01]: found a program with other collectives"):
        run_threads(rlx.Mesh(data=2), rank)


def test_a_late_rank_is_named_at_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.3")
    g, f = graph(CASES["sum"][0], 3), rlx.Session("cpu")
    done = threading.Event()

    def rank(number: int) -> Any:
        compiled = f.compile(g)
        compiled.run({"x": arrays(3)[number]})
        if number == 1:
            done.wait(20)
            return None
        try:
            with pytest.raises(FaultError) as error:
                compiled.run({"x": arrays(3)[number]})
            return error.value
        finally:
            if number == 0:
                done.set()

    first, _, last = run_threads(rlx.Mesh(data=3), rank)
    texts = [str(first), str(last)]
    assert any("rank 1 of 3 had not come after 300 ms" in text for text in texts)
    for error in (first, last):
        assert error.location[0].endswith("collectives.py")
        assert "all_reduce over the 3 ranks along 'data': rank " in str(error)


def test_the_error_of_a_rank_ends_the_others_at_once() -> None:
    g, session = graph(CASES["sum"][0], 3), rlx.Session("cpu")

    def rank(number: int) -> Any:
        f = session.compile(g)
        f.run({"x": arrays(3)[number]})
        if number == 2:
            raise ValueError("rank 2 has had enough")
        return f.run({"x": arrays(3)[number]})

    with pytest.raises(ValueError, match="rank 2 has had enough"):
        run_threads(rlx.Mesh(data=3), rank)


def test_after_a_failure_ranks_are_out_of_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.2")
    f, x = rlx.Session("cpu").compile(graph(CASES["sum"][0], 2)), arrays(2)

    def rank(number: int) -> list[str]:
        texts: list[str] = []
        if number == 0:
            f.run({"x": x[0]})
            for _ in range(2):
                with pytest.raises(FaultError) as error:
                    f.run({"x": x[0]})
                texts.append(str(error.value))
        else:
            f.run({"x": x[1]})
        return texts

    (late, broken), _ = run_threads(rlx.Mesh(data=2), rank)
    assert "rank 1 of 2 had not come" in late
    assert "an earlier collective of this group failed" in broken


def test_ranks_that_run_other_programs_later_are_told() -> None:
    session, x = rlx.Session("cpu"), arrays(2)
    sums, joins = (session.compile(graph(CASES[name][0], 2)) for name in ("sum", "gather"))

    def rank(number: int) -> str:
        for f in (sums, joins):
            f.run({"x": x[number]})
        with pytest.raises(FaultError) as error:
            (sums, joins)[number].run({"x": x[number]})
        return str(error.value)

    texts = run_threads(rlx.Mesh(data=2), rank)
    assert any("is at all_gather of 2304 bytes" in text for text in texts)


def test_a_process_of_one_rank_needs_no_connection() -> None:
    mesh = rlx.Mesh(data=1)
    assert mesh.rank == 0
    try:
        assert current_rank(mesh) == 0
        with pytest.raises(
            GraphError, match=r"of Mesh\(data=1\), expected one of Mesh\(a=1\); connect it by"
        ):
            _ = rlx.Mesh(a=1).rank
    finally:
        disconnect()


def test_ranks_know_their_number_before_they_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob, value in (("RLX_RENDEZVOUS", "/nowhere"), ("RLX_RANK", "2"), ("RLX_RANKS", "6")):
        monkeypatch.setenv(knob, value)
    assert rlx.Mesh(data=2, model=3).rank == 2
    with pytest.raises(GraphError, match=r"started as one of 6 ranks, expected one of .*-n 8"):
        _ = rlx.Mesh(data=8).rank


REFUSED: dict[str, tuple[Callable[[], object], type[RlxError], str]] = {
    "no rank": (lambda: connect(rlx.Mesh(data=2)), GraphError, "`rlx launch -n 2`"),
    "no mesh": (lambda: connect(2), GraphError, "mesh is 2, expected a Mesh"),  # type: ignore[arg-type]
    "no function": (
        lambda: run_threads(rlx.Mesh(data=2), 3),  # type: ignore[arg-type]
        GraphError,
        "function is 3, expected a function",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


def launched(monkeypatch: pytest.MonkeyPatch, folder: Path, ranks: str) -> None:
    for name, value in (("RANK", "0"), ("RANKS", ranks), ("RENDEZVOUS", str(folder))):
        monkeypatch.setenv(f"RLX_{name}", value)


def test_another_number_of_ranks_was_launched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launched(monkeypatch, tmp_path, "3")
    with pytest.raises(GraphError, match="has 2 ranks, and `rlx launch` started 3"):
        connect(rlx.Mesh(data=2))


def test_a_rendezvous_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launched(monkeypatch, tmp_path / "gone", "2")
    with pytest.raises(GraphError, match=r"data.0'.*No such file"):
        connect(rlx.Mesh(data=2))


@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_a_timeout_that_is_no_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    f = rlx.Session("cpu").compile(graph(CASES["sum"][0], 2))
    monkeypatch.setenv("RLX_COMM_TIMEOUT", text)
    with pytest.raises(GraphError, match="RLX_COMM_TIMEOUT"):
        f.run({"x": arrays(2)[0]})


def test_bad_numbers_of_ranks() -> None:
    from rlx.runtime import _native

    with pytest.raises(_native.Error, match=r"found 2000, expected 1\.\.1024"):
        _native.team_of_threads(2000)
    with pytest.raises(_native.Error, match="found 2, expected one below 2"):
        _native.team_of_processes(os.devnull, 2, 2)


def test_narrow_floats_are_rounded_as_ml_dtypes_does() -> None:
    """Every f16 and bf16 goes through f32 and back, and every sum of two is rounded to even."""
    for dt in (f16, bf16):
        g, along = rlx.Graph("pair"), rlx.Mesh(data=2)["data"]
        g.set_outputs(g.input("x", [65536], dt).all_reduce(along))
        every = np.arange(65536, dtype=np.uint16).view(dt.numpy)
        other = np.random.default_rng(0).permutation(every)
        found = on_threads(g, rlx.Mesh(data=2), [{"x": every}, {"x": other}])
        with np.errstate(all="ignore"):
            total = every.astype(np.float32) + other.astype(np.float32)
            expected = total.astype(dt.numpy)
        assert dt.numpy in (np.float16, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(readable(found[0][0]), readable(expected))
