"""Ranks as actors of Ray, which places them, and starts them again when one is gone.

    python examples/cluster/ray_ranks.py --ranks 4 --checkpoint run

The ranks share memory, so that they are placed on one machine of Ray's cluster. After a failure as
many ranks are started as `--again` says, and go on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class Rank:
    """An actor, which is one rank."""

    def __init__(self, rank: int, ranks: int, folder: str) -> None:
        os.environ |= {
            "RLX_RANK": str(rank), "RLX_RANKS": str(ranks), "RLX_RENDEZVOUS": folder,
            "RLX_NUM_THREADS": "1",
        }  # fmt: skip
        sys.path.insert(0, str(Path(__file__).parent))

    def train(self, steps: int, checkpoint: str, dies_at: int = 0) -> list[float]:
        """Train to the end; the losses. ``dies_at`` is a step in which it kills itself, to try what
        becomes of that."""
        import train

        import rlx

        def note(step: rlx.training.TrainStep, result: rlx.training.StepResult) -> None:
            if step.position == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

        mesh = rlx.Mesh(data=rlx.distributed.world_size())
        return [s.loss for s in train.train(mesh, steps, checkpoint, note).steps]


def attempt(ranks: int, steps: int, checkpoint: str, dies_at: int = 0) -> list[float]:
    """Start ranks and wait for them; RayError if one fails, after which none is left."""
    group = placement_group([{"CPU": 1}] * ranks, strategy="STRICT_PACK")
    ray.get(group.ready())
    folder = tempfile.mkdtemp(prefix="rlx-ray-", dir="/dev/shm")
    where = PlacementGroupSchedulingStrategy(group)
    placed: Any = ray.remote(num_cpus=1, scheduling_strategy=where)(Rank)
    actors = [placed.remote(rank, ranks, folder) for rank in range(ranks)]
    try:
        waiting = [
            actor.train.remote(steps, checkpoint, dies_at if rank == ranks - 1 else 0)
            for rank, actor in enumerate(actors)
        ]
        first = waiting[0]
        while waiting:
            done, waiting = ray.wait(waiting)
            ray.get(done)  # the first that fails, fails all
        return ray.get(first)
    finally:
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Train, with restarts."""
    parser = argparse.ArgumentParser(description="Train on actors of Ray.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--again", type=int, default=0, help="ranks after a failure, as before")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", required=True, help="a folder that all ranks see")
    parser.add_argument("--dies-at", type=int, default=0, help="a step in which the last rank dies")
    args = parser.parse_args()
    ray.init(num_cpus=max(args.ranks, os.cpu_count() or 1), include_dashboard=False,
             log_to_driver=False)  # fmt: skip
    ranks, dies_at = args.ranks, args.dies_at
    for again in range(args.restarts + 1):
        try:
            losses = attempt(ranks, args.steps, os.path.abspath(args.checkpoint), dies_at)
            print(f"{ranks} ranks: {len(losses)} steps, loss {losses[-1].hex()}")
            return
        except RayError as error:
            print(f"a rank failed ({type(error).__name__})", file=sys.stderr)
            if again == args.restarts:
                raise
            ranks, dies_at = args.again or ranks, 0


if __name__ == "__main__":
    main()
