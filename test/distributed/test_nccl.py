"""Ranks on CUDA GPUs, connected by NCCL: emulated devices, and a stand-in for the library, which
notes what is called and computes."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import interpret, run_threads
from rlx.errors import FaultError, GraphError, RlxError
from rlx.types import DType, bool_, f32, i8, i16, i64, u8
from support import cuda_emulator
from support.collectives import CASES, Array, arrays, graph

SOURCE = Path(__file__).parent / "fixtures" / "mock_nccl.c"
TWO = rlx.Mesh(data=2)
MOVING = ["gather", "exchange", "shift", "broadcast"]
REDUCING = ["sum", "prod", "max", "min", "scatter"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the stand-in of NCCL")
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    command = ["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def nccl(built: ctypes.CDLL) -> Generator[ctypes.CDLL]:
    """The stand-in, with nothing noted."""
    log = ctypes.c_char.in_dll(built, "mock_log")
    ctypes.memset(ctypes.addressof(log), 0, 1)
    with rlx.knobs.nccl.scoped(built._name):
        yield built
    gc.collect()  # what an error's frames hold
    assert ctypes.c_int.in_dll(built, "mock_live").value == 0, "communicators are left"


def noted(library: ctypes.CDLL, rank: int) -> list[str]:
    """What a rank has called."""
    text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "mock_log"))).decode()
    return [line[2:] for line in text.splitlines() if line.startswith(f"{rank} ")]


def on_gpus(
    library: ctypes.CDLL, g: rlx.Graph, feeds: list[dict[str, Any]], mesh: rlx.Mesh = TWO
) -> list[list[Array]]:
    """What each rank gives on a device of its own."""
    programs = [cuda_emulator.compiled(g, rank) for rank in range(mesh.size)]

    def run(rank: int) -> list[Array]:
        library.mock_stream(cuda_emulator.driver(rank).library.library.cuStreamSynchronize)
        return list(programs[rank].run(feeds[rank]))

    return run_threads(mesh, run)


def variable(library: ctypes.CDLL, name: str, value: int) -> None:
    ctypes.c_int.in_dll(library, name).value = value


@pytest.mark.parametrize(
    ("dt", "names", "n"),
    [(f32, MOVING + REDUCING, 2), (f32, MOVING + REDUCING, 4), (i64, REDUCING, 2),
     (i8, REDUCING, 2), (u8, REDUCING, 2), (i16, MOVING, 2), (bool_, [*MOVING, "max", "min"], 2)],
)  # fmt: skip
def test_every_collective(nccl: ctypes.CDLL, dt: DType, names: list[str], n: int) -> None:
    g, mesh = rlx.Graph("all"), rlx.Mesh(data=n)
    x, along = g.input("x", [24, 24], dt), mesh["data"]
    g.set_outputs([CASES[name][0](x, along) for name in names] + [g.axis_index(along)])
    data = (arrays(n) > 1 if dt is bool_ else arrays(n)).astype(dt.numpy)
    found = on_gpus(nccl, g, [{"x": v} for v in data], mesh)
    for at, name in enumerate(names):
        expected = CASES[name][1](data).astype(dt.numpy)
        np.testing.assert_array_equal(np.stack([r[at] for r in found]), expected, err_msg=name)
    assert [int(r[-1]) for r in found] == list(range(n))


def test_what_is_called(nccl: ctypes.CDLL) -> None:
    """Counts, types and reductions are those of nccl.h, in the order of the graph."""
    g, along = rlx.Graph("called"), TWO["data"]
    x, z = g.input("x", [4, 6]), g.input("z", [5], "c64")
    g.set_outputs([x.cast("i32").all_reduce(along, "max"), x.reduce_scatter(along),
                   x.all_gather(along), x.collective_broadcast(along, 1), z.all_reduce(along),
                   x.collective_permute(along, [(0, 1)])])  # fmt: skip
    data = arrays(2)[:, :4, :6]
    zs = np.array([1 + 2j, 3, 4, 5j, -1], np.complex64)
    outs = on_gpus(nccl, g, [{"x": v, "z": zs * n} for n, v in enumerate(data)])
    np.testing.assert_array_equal(outs[1][4], zs)
    called = [noted(nccl, rank) for rank in range(2)]
    assert called[0][0] == "init n=2 type=0 op=0"
    shared = [[line for line in c if "send" not in line and "recv" not in line] for c in called]
    assert shared[0] == shared[1]
    assert sorted(shared[0][1:]) == [
        "all_gather n=96 type=0 op=0", "all_reduce n=10 type=7 op=0", "all_reduce n=24 type=2 op=2",
        "broadcast n=96 type=0 op=1", "reduce_scatter n=12 type=7 op=0",
    ]  # fmt: skip
    assert [line for c in called for line in c if line not in shared[0]] == [
        "send n=96 type=1 op=0", "recv n=96 type=0 op=0",
    ]  # fmt: skip


@pytest.mark.parametrize("dt", ["f32", "f64", "f16"])
def test_nan_is_the_least_and_the_largest(nccl: ctypes.CDLL, dt: str) -> None:
    g, along = rlx.Graph("nan"), TWO["data"]
    x = g.input("x", [3], dt)
    g.set_outputs([x.all_reduce(along, "max"), x.all_reduce(along, "min")])
    feeds = [{"x": np.array(v, g.inputs[0].dtype.numpy)} for v in ([np.nan, 1, 2], [3, 5, np.nan])]
    for largest, least in on_gpus(nccl, g, feeds):
        np.testing.assert_array_equal(largest, [np.nan, 5, np.nan])
        np.testing.assert_array_equal(least, [np.nan, 1, np.nan])
    said = [line for line in noted(nccl, 0) if not line.startswith("init")]
    assert not said, "NCCL's would be 3 and 2"


def test_kernels_run_before_and_after(nccl: ctypes.CDLL) -> None:
    """The stream has to be done with what a collective reads, and its readers wait for it; one
    communicator serves all programs."""
    g, along = rlx.Graph("layer"), TWO["data"]
    x = g.input("x", [8, 16])
    h = (x.exp() * 2.0).all_reduce(along)
    g.set_outputs(rlx.fori(3, lambda i, v: (v * 0.5).all_reduce(along) + 1.0, h))
    feeds = [{"x": v} for v in np.random.default_rng(0).random((2, 8, 16), np.float32)]
    for _ in range(2):
        found, expected = on_gpus(nccl, g, feeds), interpret(g, TWO, feeds)
        for (a,), (b,) in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


# -- what goes wrong -----------------------------------------------------------------------


def refused(library: ctypes.CDLL, error: type[RlxError], message: str, name: str = "sum",
            dt: DType = f32) -> None:  # fmt: skip
    g = graph(CASES[name][0], 2, dt.name)
    with pytest.raises(error, match=message):
        on_gpus(library, g, [{"x": v.astype(dt.numpy)} for v in arrays(2)])


def test_without_a_library(nccl: ctypes.CDLL, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "libnccl.so.2", "NCCL: found no library .*No such file"),
                      (cuda_emulator.driver().libraries[0], "no ncclGetUniqueId")):  # fmt: skip
        with rlx.knobs.nccl.scoped(str(path)):
            refused(nccl, GraphError, why)
    with rlx.knobs.nccl.scoped(str(tmp_path / "none")):
        refused(
            nccl, GraphError, "pip install nvidia-nccl-cu12`, name it in RLX_NCCL, or set RLX_N"
        )


def test_a_group_that_is_not_connected(nccl: ctypes.CDLL) -> None:
    variable(nccl, "mock_init", 5)
    try:
        refused(nccl, GraphError, "NCCL: found invalid, expected a group of 2 ranks")
    finally:
        variable(nccl, "mock_init", 0)


def test_a_reduction_that_nccl_lacks(nccl: ctypes.CDLL) -> None:
    refused(nccl, FaultError, "NCCL has no such reduction of i16; RLX_NCCL=host", dt=i16)
    refused(nccl, FaultError, "NCCL has no such reduction of i16", "scatter", i16)


def test_a_late_rank_is_named(nccl: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.5")
    programs = [cuda_emulator.compiled(graph(CASES["sum"][0], 2), rank) for rank in range(2)]

    def run(rank: int) -> str:
        nccl.mock_stream(cuda_emulator.driver(rank).library.library.cuStreamSynchronize)
        programs[rank].run({"x": arrays(2)[rank]})
        if rank == 1:
            return ""
        texts: list[str] = []
        for _ in range(2):
            with pytest.raises(FaultError) as error:
                programs[rank].run({"x": arrays(2)[rank]})
            texts.append(str(error.value))
        assert "an earlier collective of this group failed" in texts[1]
        return texts[0]

    assert "rank 1 of 2 had not come after 500 ms" in run_threads(TWO, run)[0]


@pytest.mark.parametrize(
    ("state", "message"), [(0, "another rank had not come"), (6, "NCCL: remote process exited")]
)
def test_a_rank_that_ends_in_a_collective(
    nccl: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, state: int, message: str
) -> None:
    """The stream is not done: after the limit that is told, and at once what NCCL reports."""
    monkeypatch.setenv("RLX_COMM_TIMEOUT", "0.5" if state == 0 else "20")
    libraries = [cuda_emulator.driver(rank).library.library for rank in range(2)]
    programs = [cuda_emulator.compiled(graph(CASES["sum"][0], 2), rank) for rank in range(2)]
    variable(nccl, "mock_async", state)
    for library in libraries:
        variable(library, "mock_busy", 1)

    def run(rank: int) -> list[str]:
        nccl.mock_stream(libraries[rank].cuStreamSynchronize)
        with pytest.raises(FaultError, match=message):
            programs[rank].run({"x": arrays(2)[rank]})
        return noted(nccl, rank)  # while the group is there

    try:
        for called in run_threads(TWO, run):
            assert called[-1] == "abort n=0 type=0 op=0", "the stream is never done"
    finally:
        variable(nccl, "mock_async", 0)
        for library in libraries:
            variable(library, "mock_busy", 0)


def test_a_run_that_does_not_begin_keeps_no_group(nccl: ctypes.CDLL) -> None:
    """Else what connects the ranks lasts as long as the program that could not meet."""
    mesh, g, more = rlx.Mesh(a=2, b=2), rlx.Graph("one"), rlx.Graph("two")
    g.set_outputs([g.input("x", [3]).all_reduce(mesh["a"])])
    more.set_outputs([more.input("x", [3]).all_reduce(mesh["a"]).all_reduce(mesh["b"])])
    programs = [[cuda_emulator.compiled(f, rank) for f in (g, more)] for rank in range(4)]
    began = threading.Barrier(4)

    def run(rank: int) -> None:
        nccl.mock_stream(cuda_emulator.driver(rank).library.library.cuStreamSynchronize)
        x = {"x": np.ones(3, np.float32)}
        programs[rank][0].run(x)
        began.wait()
        variable(nccl, "mock_init", 5)
        with pytest.raises(GraphError, match="NCCL: found invalid"):
            programs[rank][1].run(x)

    try:
        run_threads(mesh, run)
    finally:
        variable(nccl, "mock_init", 0)
    gc.collect()  # what the errors' frames hold
    assert programs and ctypes.c_int.in_dll(nccl, "mock_live").value == 0


def test_a_gpu_that_fails(nccl: ctypes.CDLL) -> None:
    library = cuda_emulator.driver(0).library.library
    variable(library, "mock_busy", 700)
    try:
        refused(nccl, FaultError, "the GPU's driver reports error 700")
    finally:
        variable(library, "mock_busy", 0)


def test_ranks_on_cpus_are_no_ranks_on_gpus(nccl: ctypes.CDLL) -> None:
    g = graph(CASES["sum"][0], 2)
    programs = [cuda_emulator.compiled(g), rlx.Session("cpu").compile(g)]
    with pytest.raises(GraphError, match="a program with other collectives"):
        run_threads(TWO, lambda rank: programs[rank].run({"x": arrays(2)[rank]}))
