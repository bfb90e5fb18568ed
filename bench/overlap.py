"""Whether a reduction that runs beside launches would pay: ranks of a core each.

    rlx launch -n 2 --threads 1 bench/overlap.py --mib 4

A collective ends before the next step of its graph begins. Here one of the size of a bucket of
gradients runs after some launches, and then on a thread beside them, as it would if its start and
its end were steps apart.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable

import numpy as np

import rlx


def launches(session: rlx.Session) -> Callable[[], object]:
    """Layers of products, with nothing to exchange."""
    g, rows = rlx.Graph("launches"), np.ones((256, 768), np.float32)
    x = g.input("x", [256, 768])
    for n in range(6):
        x = (x @ g.param(f"w{n}", value=np.eye(768, dtype=np.float32))).gelu()
    g.set_outputs(x)
    f = session.compile(g)
    for name, value in g.param_values.items():
        f.set_param(name, value)
    return lambda: f.run({"x": rows})


def reduction(session: rlx.Session, mesh: rlx.Mesh, mib: int) -> Callable[[], object]:
    """The sum over the ranks of so many MiB."""
    g, given = rlx.Graph("reduction"), np.ones(mib << 18, np.float32)
    g.set_outputs(g.input("x", [mib << 18]).all_reduce(mesh["data"]))
    f = session.compile(g)
    return lambda: f.run({"x": given})


def beside(first: Callable[[], object], other: Callable[[], object]) -> Callable[[], object]:
    """Both at once: the other on a thread of its own."""

    def both() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        first()
        thread.join()

    return both


def main() -> None:
    """Time them, in turns."""
    parser = argparse.ArgumentParser(description="Time a reduction after launches, and beside.")
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    mesh = rlx.Mesh(data=rlx.distributed.world_size())
    rank, session = rlx.distributed.connect(mesh), rlx.Session("cpu")
    compute, reduce = launches(session), reduction(session, mesh, args.mib)
    rows: dict[str, Callable[[], object]] = {
        "launches": compute,
        "reduction": reduce,
        "one after the other": lambda: (compute(), reduce()),
        "beside": beside(compute, reduce),
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(args.runs):
        for name, run in rows.items():
            began = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - began))
    if rank == 0:
        for name, found in times.items():
            print(
                f"{name:20} {min(found):8.2f} ms at best, {np.median(found):8.2f} ms in the middle"
            )


if __name__ == "__main__":
    main()
