"""Many processes use one compile cache at once, while others clear it and some are killed.

    python tools/cache_stress.py --rounds 500

In each round, processes forked from one warm parent compile the same and other small graphs against
one directory and compare what they compute with NumPy; some clear the directory or trim it again
and again; some are killed by SIGKILL at a random time. In every fourth round, one more damages
entries. After each round every entry must be whole, and the directory within its limit once a
writer that lives has trimmed it. Failures are printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RLX_NUM_THREADS"] = "1"

import numpy as np

import rlx
from rlx import knobs
from rlx.runtime.cache import artifacts, objects, shared
from rlx.runtime.cache import store as stores
from rlx.runtime.cache.entry import Damaged, Entry
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.cache.store import Store, load

GRAPHS = 6
SECONDS = 0.1
"""How long those who clear, damage and are killed go on."""

Outcome = Counter[str]


def graph(n: int) -> tuple[rlx.Graph, dict[str, Any], Any]:
    """A small graph with its inputs and what it should give; graphs differ in kernel and size."""
    g = rlx.Graph(f"g{n}")
    x = g.input("x", [n + 1, 8])
    g.set_outputs(x * float(1 + n % 3) + float(n // 3))
    a = np.arange(8 * (n + 1), dtype=np.float32).reshape(n + 1, 8)
    return g, {"x": a}, a * np.float32(1 + n % 3) + np.float32(n // 3)


def compile_one(n: int, outcome: Outcome) -> None:
    """Compile a graph as a new process would, and run it."""
    artifacts.in_memory.clear()
    objects.in_memory.clear()
    g, feeds, expected = graph(n)
    f = rlx.Session("cpu").compile(g)
    (report,) = f.reports
    outcome[report.cache.split(" (")[0]] += 1
    outcome["damaged entries met"] += "damaged" in report.cache
    if not np.array_equal(f.run(feeds)[0], expected):
        raise AssertionError(f"graph {n} gave a wrong result ({report.cache})")


def compiler(rng: random.Random, store: Store, outcome: Outcome) -> None:
    for _ in range(2):
        compile_one(rng.randrange(GRAPHS), outcome)


def victim(rng: random.Random, store: Store, outcome: Outcome) -> None:
    while True:
        compile_one(rng.randrange(GRAPHS), outcome)


def cleaner(rng: random.Random, store: Store, outcome: Outcome) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        outcome["files cleared"] += store.clear() if rng.random() < 0.3 else store.trim()
        time.sleep(rng.random() * 0.02)


def vandal(rng: random.Random, store: Store, outcome: Outcome) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for found in store.entries():
            try:
                data = bytearray(found.path.read_bytes())
                if rng.random() < 0.5:
                    del data[rng.randrange(len(data)) :]
                else:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                with found.path.open("r+b") as f:
                    f.truncate(len(data))
                    f.write(data)
                outcome["entries damaged"] += 1
            except (OSError, ValueError):
                pass
        time.sleep(rng.random() * 0.02)


def forked(role: Callable[..., None], seed: int, store: Store, reports: Path) -> int:
    """Start a process in a role; it reports its outcome, or its failure, in a file."""
    pid = os.fork()
    if pid:
        return pid
    code, outcome = 0, Counter[str]()
    text = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            role(random.Random(seed), store, outcome)
    except BaseException:
        code, text = 1, traceback.format_exc()
    lines = [f"{k}\t{n}" for k, n in outcome.items()]
    (reports / f"{os.getpid()}.{code}").write_text(text or "\n".join(lines))
    os._exit(code)


def one_round(
    rng: random.Random, processes: int, root: Path, limit: int, *, damaging: bool
) -> tuple[Outcome, list[str]]:
    """Run a round in a directory that earlier rounds have left as it is."""
    store = Store(root / "cache", limit)
    reports = Path(tempfile.mkdtemp(dir=root))
    some = processes // 8
    roles = [*[vandal] * damaging, *[cleaner] * some, *[compiler] * (processes - 2 * some)]
    victims = [forked(victim, rng.random(), store, reports) for _ in range(some)]
    pids = [forked(role, rng.random(), store, reports) for role in roles]
    for pid in victims:
        time.sleep(rng.random() * SECONDS / len(victims))
        os.kill(pid, signal.SIGKILL)
    total, failures = Counter[str](), list[str]()
    for pid in victims:
        os.waitpid(pid, 0)
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            failures.append(f"a process died of signal {os.WTERMSIG(status)}")
    for report in reports.iterdir():
        text = report.read_text()
        if report.suffix == ".1":
            failures.append(text)
        else:
            for line in text.splitlines():
                name, _, n = line.partition("\t")
                total[name] += int(n)
        report.unlink()
    reports.rmdir()
    total["processes killed"] += len(victims)
    return total, failures + ([] if damaging else partial(store)) + leftover(store)


def partial(store: Store) -> list[str]:
    """The entries that are not whole, where nobody has damaged any."""
    found: list[str] = []
    for f in store.entries():
        try:
            load(f.path)
        except Damaged as e:
            found.append(f"{f.path} is not whole: {e}")
    return found


def leftover(store: Store) -> list[str]:
    """What is beyond the limit once a writer has trimmed, or staged by the dead once it is old."""
    key = Key("settle", (Part("time", str(time.time_ns())),))
    store.write((key, Entry.of(key, b"")))
    size = sum(p.stat().st_size for p in store.folder.rglob("*") if p.is_file())
    over = [f"{size} bytes are left, with a limit of {store.limit}"] if size > store.limit else []
    for p in (store.folder / "staging").iterdir():
        then = p.stat().st_mtime - stores.STALE_SECONDS - 1
        os.utime(p, (then, then))
    store.trim()
    return over + [f"{p} is left" for p in (store.folder / "staging").iterdir()]


def main(argv: list[str]) -> int:
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    args.add_argument("--rounds", type=int, default=20)
    args.add_argument("--processes", type=int, default=32)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--limit", type=int, default=30_000, help="bytes; about half of all graphs")
    chosen = args.parse_args(argv)
    rng = random.Random(chosen.seed)
    with knobs.cache.scoped(False):  # all that compiling imports is there before the first fork
        compile_one(0, Counter())
    total, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="rlx-stress-") as root:
        knobs.cache_dir.set(str(Path(root) / "cache"))
        knobs.cache_size.set(chosen.limit)
        assert shared.store() is not None
        for n in range(chosen.rounds):
            damaging = n % 4 == 3
            outcome, failures = one_round(
                rng, chosen.processes, Path(root), chosen.limit, damaging=damaging
            )
            total += outcome
            failed += len(failures)
            for text in failures:
                print(f"round {n}: {text}", flush=True)
            if n % 25 == 24:
                print(f"{n + 1} rounds, {failed} failures, {dict(total)}", flush=True)
    print(f"{chosen.rounds} rounds of {chosen.processes} processes: {failed} failures")
    print(", ".join(f"{name} {n}" for name, n in sorted(total.items())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
