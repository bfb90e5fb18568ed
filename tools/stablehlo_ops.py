"""Ops of StableHLO in random programs, judged by the reference interpreter of the MLIR package, or
by NumPy where it lacks an op.

    python tools/stablehlo_ops.py --count 200 [--seed N] [--ops NAME ...] [--device cpu]

``--count`` programs of every op that has a generator (``test/support/stablehlo_cases.py``), by
``rlx.interpret`` or on a device. Prints what is different or refused, with the seed that makes it
again, and the counts; the exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

import numpy as np  # noqa: E402 -- support is found by the path above

from rlx.errors import RlxError  # noqa: E402
from support import stablehlo_regions  # noqa: E402
from support.stablehlo import agree, ours, reference  # noqa: E402
from support.stablehlo_cases import GENERATORS, case  # noqa: E402
from support.stablehlo_composed import ORACLES  # noqa: E402

assert stablehlo_regions  # which adds generators


def outcome(name: str, seed: int, device: str) -> tuple[str, str]:
    """What became of a program, and why."""
    text, arrays = case(name, seed)
    try:
        wanted = ORACLES.get(name, reference)(text, arrays)
    except Exception as e:  # of MLIR
        return "not of the interpreter", str(e).splitlines()[0]
    try:
        with np.errstate(all="ignore"):
            found = ours(text, arrays, device)
    except RlxError as e:
        return "refused", str(e).splitlines()[0]
    try:
        agree(found, wanted)
    except AssertionError as e:
        return "different", f"{' '.join(str(e).split())[:300]}\n{text}"
    return "equal", ""


def in_child(name: str, seeds: Iterable[int], device: str) -> Iterator[tuple[str, str]]:
    """Outcomes of programs by another process, up to one that ends it: the interpreter aborts where
    it does not know what to do."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as f:
            for seed in seeds:
                f.write(json.dumps(outcome(name, seed, device)) + "\n")
                f.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        yield from (tuple(json.loads(line)) for line in f)
    if os.waitpid(child, 0)[1]:
        yield "not of the interpreter", "it aborted"


def main() -> int:
    """Run the programs; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="of each op")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--ops", nargs="*", default=None, help="these ops")
    parser.add_argument("--device", default="interpret")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for name in GENERATORS if given.ops is None else given.ops:
        seed = given.seed
        while seed < given.seed + given.count:
            for what, why in in_child(name, range(seed, given.seed + given.count), given.device):
                counts[what] += 1
                if what != "equal":
                    print(f"{what}: {name}, seed {seed}: {why}", flush=True)
                seed += 1
    print(", ".join(f"{what} {n}" for what, n in counts.most_common()))
    return int(counts["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
