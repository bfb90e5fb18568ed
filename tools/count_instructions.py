"""How many instructions a product takes on AArch64, by the width of its vectors: all that QEMU runs
of a program with one thread, less those of the same program with a smaller K.

    . .drivers/env && PYTHONPATH=test python tools/count_instructions.py

QEMU counts; it says nothing of cycles. The second operand is packed in the same run.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

import rlx
from rlx.ops.matmul.quantized import matmul_integer
from support import emulated

M, N, LEAST_K, MOST_K = 64, 256, 32, 160

EXTRAS = {"f32": "", "bf16": "+bf16", "i8": "+dotprod+i8mm"}
LEVELS = {"aarch64": "max", "aarch64-sve256": "max,sve256=on", "aarch64-sve512": "max"}
"""The levels of CPUs, and what QEMU is asked to emulate."""


def product(dtype: str, k: int) -> rlx.Graph:
    """A product of two inputs."""
    g = rlx.Graph("product")
    x, w = g.input("x", [M, k], dtype), g.input("w", [k, N], dtype)
    g.set_outputs([matmul_integer(x, w) if dtype == "i8" else x @ w])
    return g


def counted(target: str, cpu: str, graph: rlx.Graph) -> int:
    """Instructions of a run: QEMU writes a line for each."""
    artifact = rlx.compile_artifact(graph, target)
    feeds = {v.name: np.ones(v.type.static_shape, v.dtype.numpy) for v in graph.inputs}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        log = Path(folder, "log")
        os.mkfifo(log)
        lines = pool.submit(_lines, log)
        says = {"QEMU_SINGLESTEP": "1", "QEMU_LOG": "exec,nochain", "QEMU_LOG_FILENAME": str(log)}
        with patch.dict(os.environ, says):
            emulated.run(artifact, target, feeds, cpu=cpu, threads=1)
        return lines.result()


def _lines(file: Path) -> int:
    with file.open("rb") as log:
        return sum(block.count(b"\n") for block in iter(partial(log.read, 1 << 20), b""))


def main() -> None:
    """Print a row of Markdown for each element type: thousands of instructions."""
    for dtype, extra in EXTRAS.items():
        row = [dtype]
        for level, cpu in LEVELS.items():
            ran = [
                counted(f"cpu:{level}{extra}", cpu, product(dtype, k)) for k in (LEAST_K, MOST_K)
            ]
            row.append(f"{(ran[1] - ran[0]) / 1000:.0f}")
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
