"""Conversions to and from 8-bit floats against ml_dtypes.

    python tools/float8_cases.py                      # 2**24 of f32, all of f16 and bf16, CPU
    python tools/float8_cases.py --count 65536 --device vulkan

prints the number of conversions of each kind that differ, and ends with 1 if any does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.float8 import judged, patterns  # noqa: E402 -- found by the path above


def main() -> int:
    """Compare, in parts of 2**20."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--count", type=int, default=1 << 24, help="random numbers of f32")
    p.add_argument("--device", default="cpu", help="what converts, or interpreter")
    args = p.parse_args()
    part = min(max(args.count, 1 << 16), 1 << 20)
    wrong = dict[str, int]()
    for seed in range(-(-args.count // part)):
        for what, n in judged(args.device, patterns(part, seed)).items():
            wrong[what] = wrong.get(what, 0) + n
    for what, n in wrong.items():
        print(f"{what}: {n} differ")
    total = -(-args.count // part) * part
    print(
        f"{total} numbers of each type, on {args.device}: {sum(wrong.values())} conversions differ"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
