"""What a second rank brings: ranks that are pinned to a core each, in turn with one alone.

    python -m bench.ranks minilm
    python -m bench.ranks train --peer PYTHON

``minilm`` is an encoder of the size of MiniLM-L6, whose layers the ranks share; ``train`` its
fine-tuning, where each rank has a batch of its own. PYTHON is an interpreter with torch, whose
DistributedDataParallel on gloo does the same. A line has the median of the rounds, and how many
times as much one rank does in that time. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from bench.train_cases import CASES, LEARNING_RATE

Step = Callable[[], object]
CASE = CASES["minilm"]


# -- a rank --------------------------------------------------------------------------------


def inference(rank: int, ranks: int) -> Step:
    """A pass of the encoder, of which each rank has some heads and units."""
    import rlx
    from bench.train_rlx import logits
    from rlx import P

    mesh = rlx.Mesh(model=ranks)
    rlx.distributed.connect(mesh)
    g, specs = rlx.Graph("minilm"), dict[str, P]()
    x = CASE.data()[0]
    ids = g.input("x", list(x.shape), "i64")
    w = {n: g.param(n, value=a) for n, a in CASE.weights().items()}
    for name in w:
        part = name.rpartition(".")[2]
        if part in ("wq", "wk", "wv", "w1"):
            specs[name] = P(None, "model")
        elif part in ("wo", "w2"):
            specs[name] = P("model")
    g.set_outputs(logits(CASE, w, ids))
    compiled = rlx.shard(g, mesh, specs).compile(rlx.Session("cpu", threads=1))
    return lambda: compiled.run({"x": x})


def training(rank: int, ranks: int) -> Step:
    """A step on a batch of each rank's own."""
    import rlx
    from bench.train_rlx import logits

    mesh = rlx.Mesh(data=ranks)
    rlx.distributed.connect(mesh)
    g = rlx.Graph("minilm")
    x, y = CASE.data()
    ids, labels = g.input("x", list(x.shape), "i64"), g.input("y", list(y.shape), "i64")
    w = {n: g.param(n, value=a) for n, a in CASE.weights().items()}
    g.set_outputs(logits(CASE, w, ids).softmax_cross_entropy(labels).mean())
    step = rlx.compile_training(
        g, rlx.optim.SGD(lr=LEARNING_RATE), mesh=mesh, session=rlx.Session("cpu", threads=1)
    )
    return lambda: step({"x": x, "y": y})


def peer(rank: int, ranks: int) -> Step:
    """The same by torch."""
    from bench.train_peers import torch_loss

    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    x, y = map(torch.from_numpy, CASE.data())
    weights, model = CASE.weights(), torch.nn.Module()
    values = [torch.nn.Parameter(torch.from_numpy(a)) for a in weights.values()]
    model.own = torch.nn.ParameterList(values)
    model.forward = lambda: torch_loss(CASE, dict(zip(weights, model.own, strict=True)), x, y)
    module = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        loss = module()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


WHATS = {"minilm": inference, "train": training, "torch": peer}


def as_rank(what: str, rank: int, ranks: int, steps: int, path: str) -> None:
    """Time steps; the first rank writes their median."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    step, times = WHATS[what](rank, ranks), list[float]()
    for _ in range(3):
        step()
    for _ in range(steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    if rank == 0:
        Path(path).write_text(json.dumps(median(times)), encoding="utf-8")


# -- all of them ---------------------------------------------------------------------------


def seconds(what: str, ranks: int, steps: int, python: str | None) -> float:
    """A step of so many ranks, in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "seconds.json")
        words = ("-m", "bench.ranks", what, "--steps", str(steps), "--into", path)
        if python is None:
            from rlx.distributed.launcher import Launch

            status = Launch(words, ranks, 1).run()
        else:
            status = _torch_ranks(python, words, ranks, folder)
        if status:
            raise SystemExit(f"{what} on {ranks} ranks ended with status {status}")
        return json.loads(Path(path).read_text(encoding="utf-8"))


def _torch_ranks(python: str, words: tuple[str, ...], ranks: int, folder: str) -> int:
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    each = [
        subprocess.Popen(
            [python, *words],
            env={**os.environ, **store, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
        )
        for rank in range(ranks)
    ]
    return max(abs(p.wait()) for p in each)


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description="What a second rank brings.")
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("--peer", help="a Python that has torch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.into is not None:
        names = ("RANK", "WORLD_SIZE") if args.what == "torch" else ("RLX_RANK", "RLX_RANKS")
        rank, ranks = (int(os.environ[n]) for n in names)
        as_rank(args.what, rank, ranks, args.steps, args.into)
        return 0
    if args.what == "torch" or (args.peer and args.what != "train"):
        parser.error("--peer is for train, and torch is what it runs")
    kinds: list[tuple[str, str | None]] = [(args.what, None)]
    kinds += [("torch", args.peer)] if args.peer else []
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.rounds):
        for kind, python in kinds:
            for ranks in (1, args.ranks):
                found.setdefault((kind, ranks), []).append(seconds(kind, ranks, args.steps, python))
    for kind, _ in kinds:
        one, many = (median(found[kind, n]) for n in (1, args.ranks))
        share = 1 if kind == "minilm" else args.ranks  # of the work that one rank does
        print(f"{kind}: 1 rank {1e3 * one:.1f} ms, {args.ranks} ranks {1e3 * many:.1f} ms a step:"
              f" {share * one / many:.2f} times")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
