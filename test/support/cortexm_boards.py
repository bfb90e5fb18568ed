"""What tests of programs for Cortex-M share: the tools that they take, and params."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import rlx

__all__ = ["MISSING", "needs_board", "needs_cc", "param"]

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="it takes a C compiler, cc")
MISSING = [t for t in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(t) is None]
needs_board = pytest.mark.skipif(bool(MISSING), reason=f"boards take {' and '.join(MISSING)}")


def param(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    """A param whose values its name decides."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return g.param(name, value=(rng.standard_normal(shape) / 3).astype(np.float32))
