"""MiniLM-L6 in f32: RLX and its peers in turn, one worker process each.

    python -m bench minilm [--threads 1,2] [--cases 1x16,1x128,8x128] [--rounds 12] [--json FILE]

A case is batch x tokens. Rounds go through the workers in turn, so that drift of the machine hits
all alike. The ratio is the best peer's median over RLX's; every worker's vectors are compared with
the first peer's before its times count.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CASES = "1x16,1x128,8x128,3x61,5x37"
PEERS = ("torch", "inductor", "ort", "openvino")
TOLERANCE = 1e-5


@dataclass
class Row:
    """One library at one case."""

    case: str
    threads: int
    library: str
    median_ms: float
    min_ms: float
    first_s: float
    error: float


class Worker:
    """A library in a process of its own, pinned to one CPU when it may use one thread."""

    def __init__(self, name: str, python: str, module: str, args: Sequence[str], threads: int):
        env = dict(
            os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads),
            RLX_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE", TOKENIZERS_PARALLELISM="false",
        )  # fmt: skip
        command = [python, "-m", module, name, *args, str(threads)]
        if threads == 1:
            command = ["taskset", "-c", "0", *command]
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=env, cwd=Path(__file__).resolve().parent.parent,
        )  # fmt: skip

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": "the worker died"}

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def time_case(
    case: str, threads: int, workers: list[Worker], rounds: int, tolerance: float = TOLERANCE
) -> list[Row]:
    """Prepare a case everywhere, then time it in rounds."""
    ready = {w.name: w.ask(f"case {case}") for w in workers}
    alive = [w for w in workers if "error" not in ready[w.name]]
    for w in workers:
        if w not in alive:
            print(f"{case} {threads}T {w.name}: {ready[w.name]['error']}", file=sys.stderr)
    times: dict[str, list[float]] = {w.name: [] for w in alive}
    for _ in range(rounds):
        for w in alive:
            w.ask("run")
            times[w.name].append(statistics.median(w.ask("run")["ms"] for _ in range(3)))
    reference = ready[alive[0].name]["vectors"]
    rows: list[Row] = []
    for w in alive:
        found = ready[w.name]["vectors"]
        error = max(
            abs(a - b)
            for x, y in zip(found, reference, strict=True)
            for a, b in zip(x, y, strict=True)
        )
        own = times[w.name]
        row = Row(
            case, threads, w.name, statistics.median(own), min(own), ready[w.name]["first_s"], error
        )
        rows.append(row)
        if not error <= tolerance:
            raise SystemExit(f"{w.name} disagrees with {alive[0].name} at {case}: {error:.1e}")
    return rows


def ratios(rows: list[Row]) -> dict[str, tuple[float, str]]:
    """Best peer's median over RLX's by case and threads, and which peer that was."""
    out: dict[str, tuple[float, str]] = {}
    for ours in rows:
        if ours.library != "rlx":
            continue
        peers = [
            r
            for r in rows
            if (r.case, r.threads) == (ours.case, ours.threads) and r.library != "rlx"
        ]
        if peers:
            best = min(peers, key=lambda r: r.median_ms)
            out[f"{ours.case} {ours.threads}T"] = (best.median_ms / ours.median_ms, best.library)
    return out


def table(rows: list[Row]) -> str:
    """A Markdown table: a line a case, a column a library, the ratio last."""
    names = list(dict.fromkeys(r.library for r in rows))
    lines = [
        "| case | " + " | ".join(names) + " | best peer / rlx |",
        "|---" * (len(names) + 2) + "|",
    ]
    for key, (ratio, peer) in ratios(rows).items():
        case, threads = key.split()
        cells = {
            r.library: f"{r.median_ms:.2f}"
            for r in rows
            if r.case == case and f"{r.threads}T" == threads
        }
        lines.append(
            f"| {key} | "
            + " | ".join(cells.get(n, "-") for n in names)
            + f" | {ratio:.2f} ({peer}) |"
        )
    values = [r for r, _ in ratios(rows).values()]
    mean = math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
    return "\n".join([*lines, "", f"medians in ms; geometric mean of the ratios {mean:.2f}"])


def main(argv: list[str]) -> int:
    """Run the cases and print the table."""
    p = argparse.ArgumentParser("bench minilm")
    p.add_argument("--model", help="model directory; by default that of the installed package")
    p.add_argument("--ours", default=sys.executable, help="the interpreter that has rlx")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--cases", default=CASES)
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--json", type=Path, help="write the rows here too")
    a = p.parse_args(argv)
    model = (
        a.model
        or subprocess.check_output([sys.executable, "tools/find_model.py"], text=True).strip()
    )
    rows: list[Row] = []
    for threads in map(int, a.threads.split(",")):
        pythons = {n: sys.executable for n in a.peers.split(",") if n} | {"rlx": a.ours}
        workers = [
            Worker(n, python, "bench.minilm_workers", [model], threads)
            for n, python in pythons.items()
        ]
        for case in a.cases.split(","):
            rows += time_case(case, threads, workers, a.rounds)
        for w in workers:
            w.close()
    print(table(rows))
    if a.json:
        a.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return 0
