"""Training steps in f32: RLX and its peers in turn, one worker process each.

    python -m bench train [--threads 2] [--cases mlp,cnn,decoder,minilm] [--rounds 8] [--json FILE]

A step is the loss, all gradients and an update by SGD (``train_cases`` has the models). Rounds go
through the workers in turn. The losses of the first four steps must agree with those of the first
peer before times count. The ratio is the best peer's median over RLX's.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.minilm import Row, Worker, table, time_case
from bench.train_cases import CASES

PEERS = ("torch", "inductor", "jax")
TOLERANCE = 1e-3
"""Of losses near 1 to 10, after steps that differ in the order of sums."""


def main(argv: list[str]) -> int:
    """Run the cases and print the table."""
    p = argparse.ArgumentParser("bench train")
    p.add_argument("--ours", default=sys.executable, help="the interpreter that has rlx")
    p.add_argument("--threads", default="2")
    p.add_argument("--cases", default=",".join(CASES))
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--json", type=Path, help="write the rows here too")
    a = p.parse_args(argv)
    pythons = {n: sys.executable for n in a.peers.split(",") if n} | {"rlx": a.ours}
    rows: list[Row] = []
    for threads in map(int, a.threads.split(",")):
        workers = [Worker(n, py, "bench.train_workers", [], threads) for n, py in pythons.items()]
        for case in a.cases.split(","):
            rows += time_case(case, threads, workers, a.rounds, TOLERANCE)
        for w in workers:
            w.close()
    print(table(rows))
    if a.json:
        a.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return 0
