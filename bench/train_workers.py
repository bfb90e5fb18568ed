"""One process a library for ``bench train``; the protocol is that of ``minilm_workers``.

What a step gives is its loss.
"""

from __future__ import annotations

import importlib
import sys

from bench.minilm_workers import Runner, serve
from bench.train_cases import CASES

LIBRARIES = {
    "torch": "bench.train_peers",
    "inductor": "bench.train_peers",
    "jax": "bench.train_peers",
    "rlx": "bench.train_rlx",
}
"""The module that has a library's ``prepare_NAME``."""


def main(name: str, threads: str) -> None:
    """Serve one library."""
    prepare_step = getattr(importlib.import_module(LIBRARIES[name]), f"prepare_{name}")

    def prepare(case: str) -> Runner:
        return prepare_step(CASES[case], int(threads))

    serve(prepare)


if __name__ == "__main__":
    main(*sys.argv[1:])
