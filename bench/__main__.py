"""``python -m bench [NAME]``: one benchmark of the table below, or all of them."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {
    "minilm": "bench.minilm",
    "train": "bench.train",
    "gemm": "bench.kernels.gemm",
    "attention": "bench.kernels.attention",
    "linalg": "bench.kernels.linalg",
    "conv": "bench.kernels.conv",
    "overhead": "bench.overhead",
    "loop": "bench.loop",
    "compile": "bench.compile",
    "warm": "bench.warm",
    "memory": "bench.memory",
    "fft": "bench.fft",
}


def main(argv: list[str]) -> int:
    """Run the benchmarks that are named, with the rest of the command line."""
    if argv and argv[0] not in BENCHMARKS:
        print(
            f"no benchmark is called {argv[0]!r}; there are {', '.join(BENCHMARKS)}",
            file=sys.stderr,
        )
        return 2
    for name in argv[:1] or BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        code = importlib.import_module(BENCHMARKS[name]).main(argv[1:])
        if code:
            return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
