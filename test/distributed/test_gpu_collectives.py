"""Collectives in programs of GPUs: ranks are threads on software devices, and meet by way of the
host."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import interpret, run_threads
from rlx.errors import ArtifactError, FaultError, GraphError, UnsupportedError
from rlx.ops.collective.exchange import AxisIndex
from rlx.runtime import _native
from rlx.types import DType, bf16, bool_, f16, f32, i32, u8
from support.collectives import CASES, Array, arrays, graph
from support.device import compiled, session

Feeds = list[dict[str, Any]]
TWO = rlx.Mesh(data=2)


def on_ranks(device: str, g: rlx.Graph, mesh: rlx.Mesh, feeds: Feeds) -> list[list[Array]]:
    """What each rank gives by a compile of its own on one device."""
    with rlx.knobs.nccl.scoped("host"):
        programs = [compiled(device, g) for _ in feeds]
    return run_threads(mesh, lambda rank: list(programs[rank].run(feeds[rank])))


def all_of(cases: list[str], n: int, dt: DType) -> rlx.Graph:
    """A graph of many collectives, with a launch between some."""
    g, along = rlx.Graph("all"), rlx.Mesh(data=n)["data"]
    x = g.input("x", [24, 24], dt)
    g.set_outputs([CASES[name][0](x, along) for name in cases])
    return g


@pytest.mark.parametrize(
    ("device", "dt", "n"),
    [("opencl", f32, 3), ("vulkan", f32, 2), ("gpu", f32, 2), ("cuda", f32, 4),
     ("opencl", i32, 2), ("opencl", u8, 2), ("vulkan", f16, 2), ("opencl", bf16, 2)],
)  # fmt: skip
def test_every_collective_is_what_it_is_in_numpy(device: str, dt: DType, n: int) -> None:
    names = [c for c in CASES if c != "index" or device != "gpu"]  # a number of 64 bits
    g, data = all_of(names, n, dt), arrays(n, dt.numpy)
    found = on_ranks(device, g, rlx.Mesh(data=n), [{"x": v} for v in data])
    wide = data.astype(np.float32) if dt in (f16, bf16) else data
    for at, name in enumerate(names):
        expected = CASES[name][1](wide).astype(dt.numpy)
        np.testing.assert_array_equal(np.stack([r[at] for r in found]), expected, err_msg=name)


def test_bools_move() -> None:
    g = all_of(["gather", "exchange", "shift", "broadcast"], 2, bool_)
    data = arrays(2) > 1
    found = on_ranks("opencl", g, TWO, [{"x": v} for v in data])
    for a, b in zip(found[0], interpret(g, TWO, [{"x": v} for v in data])[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_ranks_meet_in_loops_branches_and_after_params() -> None:
    g, along = rlx.Graph("loop"), TWO["data"]
    x, w = g.input("x", [2]), g.param("w", value=np.array([1, 2], np.float32))
    total = rlx.fori(4, lambda i, v: v.all_reduce(along) * 0.25, x)
    total = rlx.fori(2, lambda i, v: v + AxisIndex.build(along).cast("f32"), total)
    pick = rlx.cond(total.sum() > 0.0, lambda v: v.all_reduce(along, "max"), lambda v: v, total)
    rows = rlx.scan(lambda c, r: (c + r.all_reduce(along), c), x, g.input("rows", [3, 2]))
    g.set_outputs([pick + w.all_reduce(along), *rows])
    feeds: Feeds = [
        {"x": v[:2], "rows": v[2:].reshape(3, 2)}
        for v in np.arange(16, dtype=np.float32).reshape(2, 8)
    ]
    for ours, theirs in zip(
        on_ranks("opencl", g, TWO, feeds), interpret(g, TWO, feeds), strict=True
    ):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_sharded_layer_has_the_values_of_one_rank() -> None:
    """Tensor parallel, on one rank a GPU and on the other a CPU: they run the same collectives."""
    g = rlx.Graph("mlp")
    up, down = g.param("up", [16, 64]), g.param("down", [64, 16])
    g.set_outputs((g.input("x", [8, 16]) @ up).gelu() @ down)
    rng = np.random.default_rng(0)
    x, *weights = (rng.standard_normal(s).astype(np.float32) for s in ((8, 16), (16, 64), (64, 16)))
    mesh = rlx.Mesh(model=2)
    sharded = rlx.shard(g, mesh, {"up": rlx.P(None, "model"), "down": rlx.P("model", None)})
    devices = [session("vulkan"), rlx.Session("cpu")]

    def rank(number: int) -> Array:
        f = sharded.compile(devices[number])
        for name, value in zip(("up", "down"), weights, strict=True):
            f.set_param(name, value)
        return f.run({"x": x})[0]

    expected = rlx.interpret(g, {"x": x}, dict(zip(("up", "down"), weights, strict=True)))[0]
    for found in run_threads(mesh, rank):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_any_sizes_and_artifacts(tmp_path: Path) -> None:
    g, along = rlx.Graph("sizes"), TWO["data"]
    x = g.input("x", ["n", 3])
    g.set_outputs([x.all_gather(along), x.all_reduce(along) * 2.0])
    rlx.compile_artifact(g, "opencl", dims={"n": (1, 8)}).save(tmp_path / "rank.rlx")
    found = session("opencl")

    def rank(number: int) -> list[list[Array]]:
        programs = found.compile(g), found.load(tmp_path / "rank.rlx")
        return [
            list(f.run({"x": np.full((n, 3), number + 1.0, np.float32)}))
            for f in programs
            for n in (2, 5)
        ]

    for runs in run_threads(TWO, rank):
        for (joined, total), n in zip(runs, (2, 5, 2, 5), strict=True):
            np.testing.assert_array_equal(joined, np.repeat([[1.0], [2.0]], n, 0).repeat(3, 1))
            np.testing.assert_array_equal(total, np.full((n, 3), 6.0))


def test_ranks_train_with_slices_of_the_state() -> None:
    def regression(rows: int) -> rlx.Graph:
        g = rlx.Graph("regression")
        x, y = g.input("x", [rows, 3]), g.input("y", [rows, 1])
        w = g.param("w", value=np.ones((3, 1), np.float32))
        g.set_outputs([((x @ w - y) ** 2.0).mean()])
        return g

    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    y, found = x @ np.array([[1], [2], [3]], np.float32), session("opencl")
    alone = rlx.compile_training(regression(8), rlx.optim.Adam(lr=0.1))
    wanted = [alone({"x": x, "y": y}).loss for _ in range(4)]

    def rank(number: int) -> list[float]:
        mine = slice(4 * number, 4 * number + 4)
        step = rlx.compile_training(
            regression(4), rlx.optim.Adam(lr=0.1), mesh=TWO, zero=3, session=found
        )
        return [step({"x": x[mine], "y": y[mine]}).loss for _ in range(4)]

    for losses in run_threads(TWO, rank):
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


def test_the_report_says_that_they_go_by_way_of_the_host() -> None:
    f = session("opencl").compile(graph(CASES["sum"][0], 2))
    native = f.reports[0].compilation.dispatch.native
    assert native["collective by way of the host: all_reduce"] == 1


# -- what goes wrong -----------------------------------------------------------------------


def test_without_a_communicator() -> None:
    f = session("opencl").compile(graph(CASES["sum"][0], 2))
    with pytest.raises(GraphError, match="over 2 ranks along 'data': found no communicator") as e:
        f.run({"x": arrays(2)[0]})
    assert e.value.location is not None and e.value.location[0] == __file__


def test_a_late_rank_is_named_at_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.3")
    found, g = session("opencl"), graph(CASES["sum"][0], 2)

    def rank(number: int) -> Any:
        f = found.compile(g)
        f.run({"x": arrays(2)[number]})
        if number == 1:
            return None
        with pytest.raises(FaultError) as error:
            f.run({"x": arrays(2)[number]})
        return error.value

    error = run_threads(TWO, rank)[0]
    assert error.location[0].endswith("collectives.py")
    assert "all_reduce over the 2 ranks along 'data': rank 1 of 2 had not come" in str(error)


def test_ctrl_c_ends_a_wait() -> None:
    f = session("opencl").compile(graph(CASES["sum"][0], 2))
    alone, _ = _native.team_of_threads(2)
    _native.bind_communicators(["data"], [alone], False)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            f.run({"x": arrays(2)[0]})
        assert time.monotonic() - began < 20
    finally:
        timer.join()
        _native.bind_communicators([], [], False)


def test_ranks_that_share_an_executable_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "5")
    f = session("opencl").compile(graph(CASES["sum"][0], 2))
    with pytest.raises(GraphError, match="compile it once for each rank"):
        run_threads(TWO, lambda rank: f.run({"x": arrays(2)[rank]}))


def test_targets_without_ranks() -> None:
    g = graph(CASES["sum"][0], 2)
    with pytest.raises(
        UnsupportedError, match="over the 2 ranks along 'data' run on CPUs and GPUs"
    ):
        rlx.compile_artifact(g, target="mlx")
    from rlx.runtime.web import write_bundle

    with pytest.raises(ArtifactError, match="a page has no ranks to meet"):
        write_bundle(rlx.compile_artifact(g, target="webgpu"), "never")
