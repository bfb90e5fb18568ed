"""Train on as many ranks as were started, and go on from the last checkpoint if there is one.

    rlx launch -n 4 --restarts 3 examples/cluster/train.py --checkpoint run

It tells the points of two spirals apart. Losses are the same, bit for bit, on 1, 2, 4 and 8 ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import rlx

PARTS, ROWS = 8, 64


def make_graph() -> rlx.Graph:
    """The loss on a part of a batch, and how many are right."""
    g, rng = rlx.Graph("spirals"), np.random.default_rng(1)
    x, y = g.input("x", [ROWS // PARTS, 2]), g.input("y", [ROWS // PARTS], "i64")
    for i, (n, m) in enumerate([(2, 64), (64, 64), (64, 2)]):
        w = (rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32)
        x = x.relu() if i else x
        x = x @ g.param(f"w{i}", value=w) + g.param(f"b{i}", value=np.zeros(m, np.float32))
    right = x.argmax(-1).eq(y).cast("f32")
    g.set_outputs([x.softmax_cross_entropy(y).mean(), right.mean()])
    return g


def spirals() -> dict[str, np.ndarray]:
    """2048 points, each of one of two spirals."""
    rng = np.random.default_rng(0)
    turn, kind = rng.uniform(0.5, 2.5, 2048), rng.integers(0, 2, 2048)
    angle = np.pi * (turn + kind)
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
    return {"x": points.astype(np.float32), "y": kind}


def train(
    mesh: rlx.Mesh,
    steps: int,
    checkpoint: str | None,
    on_step: Callable[[rlx.training.TrainStep, rlx.training.StepResult], None] | None = None,
) -> rlx.training.History:
    """Train as a rank of a mesh."""
    step = rlx.compile_training(
        make_graph(), rlx.optim.AdamW(lr=1e-2), metrics=["accuracy"], mesh=mesh, zero=1,
        reproducible=True,
    )  # fmt: skip
    data = rlx.training.Batches(spirals(), ROWS, mesh=mesh)
    every = 10 if checkpoint else 0
    return rlx.fit(step, data, steps=steps, checkpoint=checkpoint, every=every, on_step=on_step)


def main() -> None:
    """Train as the rank that this process is."""
    parser = argparse.ArgumentParser(description="Train on many ranks.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", help="a folder that all ranks see")
    args = parser.parse_args()
    mesh = rlx.Mesh(data=rlx.distributed.world_size())
    history = train(mesh, args.steps, args.checkpoint)
    if mesh.rank == 0 and history.steps:
        last = history.steps[-1]
        accuracy = float(last.metrics["accuracy"])
        print(f"{mesh.size} ranks: loss {last.loss.hex()}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
