"""Random attributes of ONNX nodes."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from support.random_onnx_nodes import wrong


def test_random_nodes() -> None:
    """``tools/onnx_cases.py --nodes`` makes more, and asks ONNX Runtime where it is installed."""
    found = {seed: what for seed in range(200) if (what := wrong(seed))}
    assert not found, "\n".join(f"seed {seed}: {what}" for seed, what in found.items())
