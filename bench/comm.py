"""All-reduces between two ranks: RLX inside a graph, mpi4py, and gloo by torch, in turn.

    python -m bench.comm [--peer PYTHON] [--rounds 3]

A line has the median for a size, of the fastest round. mpi4py (``pip install mpich mpi4py``) is
that of this Python; PYTHON has torch. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlx.base.units import bytes_text
from rlx.distributed.measure import LARGER, MORE, SIZES, SMALL, measured

Times = Mapping[int, float]

TIMED = """
import json, sys, time
from statistics import median
def timed(reduce, sizes, small, many, few):
    found = {}
    for size in sizes:
        times = []
        for _ in range(many if size < small else few):
            began = time.perf_counter()
            reduce(size)
            times.append(time.perf_counter() - began)
        found[size] = median(times)
    return found
sizes, small, many, few, path = json.loads(sys.argv[1])
"""

MPI = """
import numpy as np
from mpi4py import MPI
x, y = np.ones(sizes[-1] // 4, np.float32), np.empty(sizes[-1] // 4, np.float32)
found = timed(lambda n: MPI.COMM_WORLD.Allreduce(x[: n // 4], y[: n // 4]), sizes, small, many, few)
if MPI.COMM_WORLD.rank == 0:
    open(path, "w").write(json.dumps(found))
"""

GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
x = {n: torch.ones(n // 4) for n in sizes}
found = timed(lambda n: dist.all_reduce(x[n]), sizes, small, many, few)
if dist.get_rank() == 0:
    open(path, "w").write(json.dumps(found))
dist.destroy_process_group()
"""


def run(commands: Sequence[Sequence[str]], code: str, repeat: int) -> Times:
    """What a rank wrote, of processes that run the code behind each command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        given = json.dumps([SIZES, SMALL, MORE * repeat, LARGER * repeat, str(path)])
        started = [
            subprocess.Popen(
                [*command, "-c", TIMED + code, given],
                env={**os.environ, "RANK": str(n), "WORLD_SIZE": str(len(commands)),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)},
            )
            for n, command in enumerate(commands)
        ]  # fmt: skip
        if any([p.wait() for p in started]):
            raise SystemExit(f"{commands[0][0]} failed")
        return {int(n): t for n, t in json.loads(path.read_text(encoding="utf-8")).items()}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time all-reduces beside mpi4py and gloo.")
    parser.add_argument("--peer", help="an interpreter with torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    found: dict[str, list[Times]] = {}
    for _ in range(args.rounds):
        found.setdefault("rlx", []).append(measured(2, args.repeat).seconds)
        if mpiexec is not None:
            command = [mpiexec, "-n", "2", sys.executable]
            found.setdefault("mpi4py", []).append(run([command], MPI, args.repeat))
        if args.peer:
            found.setdefault("gloo", []).append(run([[args.peer]] * 2, GLOO, args.repeat))
    print(f"{'us':>10}" + "".join(f"{name:>10}" for name in found))
    for size in SIZES:
        least = {name: min(t[size] for t in times) for name, times in found.items()}
        print(f"{bytes_text(size):>10}" + "".join(f"{1e6 * t:10.1f}" for t in least.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
