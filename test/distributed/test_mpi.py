"""Ranks that MPI starts and connects, where there is an MPI with the standard ABI.

RLX needs none to be built or tested. ``pip install mpich`` brings one; RLX_TEST_MPI names a Python
that has it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed.test_launch import kill_ranks

from support.tiny_llm import write_talker

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(os.environ.get("RLX_TEST_MPI", sys.executable)).parent.parent
LIBRARY, MPIEXEC = PREFIX / "lib" / "libmpi_abi.so.1", PREFIX / "bin" / "mpiexec"

needs_mpi = pytest.mark.skipif(
    not (LIBRARY.exists() and MPIEXEC.exists()),
    reason="there is no MPI with the standard ABI beside this Python (pip install mpich)",
)

EVERY = """
import sys
import ml_dtypes, numpy as np, rlx
from rlx.ops.pointwise.base import ANY, ARITHMETIC, ORDERED
from rlx.types import bf16, f16
from support.collectives import CASES, arrays

n = int(sys.argv[1])
mesh = rlx.Mesh(data=n)
rank = rlx.distributed.connect(mesh)
reduced = {**dict.fromkeys(("sum", "prod", "scatter", "scatter along 1", "index"), ARITHMETIC),
           **dict.fromkeys(("min", "max"), ORDERED)}
for dt in ANY:
    names = [name for name in CASES if dt in reduced.get(name, ANY)]
    g = rlx.Graph("all")
    x = g.input("x", [24, 24], dt)
    g.set_outputs([CASES[name][0](x, mesh["data"]) for name in names])
    data = arrays(n, dt.numpy)
    found = rlx.Session("cpu").compile(g).run({"x": data[rank]})
    wide = data.astype(np.float32) if dt in (f16, bf16) else data
    for name, a in zip(names, found, strict=True):
        np.testing.assert_array_equal(a, CASES[name][1](wide).astype(dt.numpy)[rank], name)
print("all types are right")
"""

LARGE = """
import hashlib
import numpy as np, rlx
from rlx.distributed import run_threads

mesh = rlx.Mesh(data=2, model=2)
rank = rlx.distributed.connect(mesh)
g = rlx.Graph("large")
x = g.input("x", [100003])
total = x.all_reduce(mesh["data"]).all_reduce(mesh["model"], "max")
g.set_outputs([total, x.all_gather(mesh["model"])])
data = np.random.default_rng(0).standard_normal((4, 100003)).astype(np.float32)
found = rlx.Session("cpu").compile(g).run({"x": data[rank]})
def digest(arrays):
    return hashlib.sha1(b"".join(a.tobytes() for a in arrays)).hexdigest()
threads = run_threads(mesh, lambda r: list(rlx.Session("cpu").compile(g).run({"x": data[r]})))
assert digest(found) == digest(threads[rank])
print("the bits of threads")
"""

ANSWERS = """
import sys
import numpy as np, rlx

n, folder = int(sys.argv[1]), sys.argv[2]
mesh = rlx.Mesh(model=n)
rank = rlx.distributed.connect(mesh)
options = {"threads": 1, "context": 128, "sequences": 4, "precision": "f32"}
one, many = rlx.LLM(folder, **options), rlx.LLM(folder, mesh=mesh, **options)
found, wanted = (m.generate("Once upon a time", max_new_tokens=24)[0].ids for m in (many, one))
logits = one.logits(wanted)
error = np.abs(many.logits(wanted) - logits).max() / np.abs(logits).max()
assert found == wanted and error <= 1e-5, (found, wanted, error)
print("the answers of one rank")
"""

STEPS = """
import os, signal, sys, time
import numpy as np, rlx

mesh = rlx.Mesh(data=2)
rank = rlx.distributed.connect(mesh)
g = rlx.Graph("sum")
g.set_outputs(g.input("x", [4]).all_reduce(mesh["data"]))
f = rlx.Session("cpu").compile(g)
f.run({"x": np.ones(4, np.float32)})
if rank == 1:
    if sys.argv[1] == "still":
        time.sleep(30)
    raise ValueError("enough")
try:
    f.run({"x": np.ones(4, np.float32)})
except Exception as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(3)
"""


def mpiexec(
    folder: Path, n: int, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The script as so many ranks."""
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    return subprocess.run(
        [str(MPIEXEC), "-n", str(n), sys.executable, str(path), *arguments],
        env={
            **os.environ, "RLX_MPI": str(LIBRARY), "PYTHONPATH": str(ROOT / "test"),
            "RLX_NUM_THREADS": "1", **environment,
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@needs_mpi
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_every_collective_of_every_type_is_what_it_is_in_numpy(n: int, tmp_path: Path) -> None:
    done = mpiexec(tmp_path, n, EVERY, str(n))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all types are right") == n


@needs_mpi
def test_groups_of_a_mesh_have_the_bits_of_threads(tmp_path: Path) -> None:
    done = mpiexec(tmp_path, 4, LARGE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the bits of threads") == 4


@needs_mpi
@pytest.mark.parametrize("n", [2, 4])
def test_a_language_model(n: int, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    done = mpiexec(tmp_path, n, ANSWERS, str(n), str(write_talker(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the answers of one rank") == n


@needs_mpi
def test_a_rank_that_stands_still_is_named(tmp_path: Path) -> None:
    began = time.monotonic()
    done = mpiexec(tmp_path, 2, STEPS, "still", RLX_COMM_TIMEOUT="2")
    assert done.returncode != 0
    assert (
        "script.py:8: all_reduce over the 2 ranks along 'data': rank 1 of 2 had not" in done.stderr
    )
    assert time.monotonic() - began < 29


ONE_THREAD = """
import ctypes, os, sys
import rlx

mpi = ctypes.CDLL(os.environ["RLX_MPI"], ctypes.RTLD_GLOBAL)
mpi.MPI_Init_thread(None, None, int(sys.argv[1]), ctypes.byref(ctypes.c_int()))
rlx.distributed.connect(rlx.Mesh(data=2))
print("connected")
mpi.MPI_Finalize()
"""


@needs_mpi
@pytest.mark.parametrize(("level", "beside"), [(1024, "on"), (1024, "off"), (2048, "on")])
def test_no_thread_of_rlx_calls_mpi_that_is_for_one(
    tmp_path: Path, level: int, beside: str
) -> None:
    """It was started by somebody else, with MPI_THREAD_FUNNELED or MPI_THREAD_SERIALIZED."""
    done = mpiexec(tmp_path, 2, ONE_THREAD, str(level), RLX_COMM_BESIDE=beside)
    if (level, beside) == (1024, "on"):
        assert "found MPI for one thread alone, expected MPI_THREAD_SERIALIZED" in done.stderr
    else:
        assert done.stdout.count("connected") == 2, done.stderr


@needs_mpi
def test_a_mesh_of_another_size(tmp_path: Path) -> None:
    script = "import rlx; rlx.distributed.connect(rlx.Mesh(data=3))"
    done = mpiexec(tmp_path, 2, script)
    assert "Mesh(data=3) has 3 ranks, and MPI started 2" in done.stderr


@needs_mpi
def test_ranks_that_are_killed_go_on_with_the_same_losses() -> None:
    """Started by ``rlx launch --over mpi``."""
    assert kill_ranks(["--rounds", "1", "--steps", "12", "--over", "mpi", "--seed", "3"]) == 0


def test_a_world_of_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with no MPI."""
    import rlx
    from rlx.errors import GraphError
    from rlx.runtime import _native

    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr(_native, "mpi_world", lambda paths: _native.team_of_threads(1)[0])
    with pytest.raises(GraphError, match=r"Mesh\(data=2\) has 2 ranks, and MPI started 1"):
        rlx.distributed.connect(rlx.Mesh(data=2))


def test_without_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import rlx
    from rlx.errors import GraphError
    from rlx.runtime import _native

    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("RLX_MPI", str(tmp_path / "none.so"))
    with pytest.raises(GraphError, match=r"MPI: found no library .*none.so.*pip install mpich"):
        rlx.distributed.connect(rlx.Mesh(data=2))
    monkeypatch.setenv("RLX_MPI", _native.__file__)
    with pytest.raises(GraphError, match="found no MPI_Initialized, expected the standard ABI"):
        rlx.distributed.connect(rlx.Mesh(data=2))
    with pytest.raises(_native.Error, match="found a communicator of threads, expected one of MPI"):
        _native.team_of_threads(1)[0].split(0, 0)
