"""Conversions of 8-bit floats by a device, and by ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import rlx
from rlx.types import DTYPES, FLOAT8

__all__ = ["KINDS", "judged", "patterns"]

Array = np.ndarray[Any, Any]

KINDS = tuple(d.name for d in FLOAT8)


def patterns(count: int, seed: int) -> dict[str, Array]:
    """All numbers of f16 and bf16, over and over, and ``count`` random bits of f32, of which the
    first are those of bf16 and some lie near the ties of 8-bit floats."""
    rng, short = np.random.default_rng(seed), np.arange(1 << 16, dtype=np.uint16)
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    words[: 1 << 16] = short.astype(np.uint32) << 16
    near = words[1 << 16 :: 3]
    # The range of the types, cut to few digits, and a little more or less.
    exponent = rng.integers(127 - 18, 127 + 17, near.size, dtype=np.uint32)
    near[:] = (
        (near & 0x80F80000 | exponent << 23) + rng.integers(0, 3, near.size, dtype=np.uint32) - 1
    )
    again = np.resize(short, count)
    return {
        "f32": words.view(np.float32), "f16": again.view(np.float16),
        "bf16": again.view(ml_dtypes.bfloat16),
    }  # fmt: skip


def judged(device: str, given: dict[str, Array]) -> dict[str, int]:
    """How many conversions a device makes otherwise than ml_dtypes, by what they are, where any
    is; nan are equal."""
    g, wanted = rlx.Graph(), dict[str, Array]()
    size = next(iter(given.values())).size
    xs = {name: g.input(name, [size], name) for name in given}
    outputs = {}
    with np.errstate(all="ignore"):
        for name, x in xs.items():
            for kind in KINDS:
                small, most = DTYPES[kind].numpy, float(ml_dtypes.finfo(DTYPES[kind].numpy).max)
                values = given[name].astype(np.float32)
                for saturate in (True, False):
                    what = f"{name} to {kind}, saturate={saturate}"
                    outputs[what] = x.cast(kind, saturate=saturate)
                    cut = np.clip(values, -most, most) if saturate else values
                    wanted[what] = cut.astype(small)
                back = f"{name} to {kind} and back"
                outputs[back] = x.cast(kind, saturate=False).cast(name)
                wanted[back] = values.astype(small).astype(DTYPES[name].numpy)
    g.set_outputs(outputs)
    feeds = dict(given)
    if device == "interpreter":
        found = dict(zip(outputs, rlx.interpret(g, feeds), strict=True))
    else:
        results = rlx.Session(device).compile(g).run(feeds)
        found = {name: results[name] for name in outputs}
    counts = {name: _differ(np.asarray(found[name]), want) for name, want in wanted.items()}
    return {name: n for name, n in counts.items() if n}


def _differ(found: Array, want: Array) -> int:
    assert found.dtype == want.dtype
    bits = f"u{want.dtype.itemsize}"
    nans = [np.isnan(a.astype(np.float32)) for a in (found, want)]
    same = (nans[0] & nans[1]) | (found.view(bits) == want.view(bits))
    return int((~same).sum())
