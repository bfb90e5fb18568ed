"""The own model of a README's reader: a classifier of rows of 8 numbers, and an input for it.

python test/support/reader_model.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import rlx

__all__ = ["write_model"]


def write_model(folder: Path) -> None:
    """Write ``model.onnx`` and ``x.npy``."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("model")
    w = g.param("w", [8, 3], value=rng.standard_normal((8, 3)).astype(np.float32))
    g.set_outputs({"probabilities": (g.input("x", ["batch", 8]) @ w).softmax(axis=-1)})
    rlx.to_onnx(g, folder / "model.onnx")
    np.save(folder / "x.npy", np.ones((2, 8), np.float32))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
