"""Cases on a GPU or another device of RLX: what a library makes there, and what of its result is
checked.

    python -m bench.device cuda rocm              fails, and says why, unless both are here
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.case import Array, Case, Tensor

SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Element types as the tables name them."""

TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
"""Differences from the reference on the same rounded operands, as a part of its largest element."""

BLOCK = 0.02
"""Seconds of a block of calls, beside which a wait for the device is short."""


@dataclass(frozen=True)
class Started:
    """A computation whose operands lie on a device: ``call`` starts it and does not wait for it,
    ``wait`` waits for all that was started, ``fetch`` copies a result of ``call`` to the host."""

    call: Callable[[], Any]
    wait: Callable[[], None]
    fetch: Callable[[Any], Array]


def in_type(case: Case, dtype: str, **changes: Any) -> Case:
    """A case on float tensors of another type."""

    def cast(t: Tensor) -> Tensor:
        return t if t.kind == "ids" else replace(t, dtype=dtype)

    return replace(
        case,
        name=f"{case.name} {SHORT[dtype]}",
        inputs={name: cast(t) for name, t in case.inputs.items()},
        params={name: cast(t) for name, t in case.params.items()},
        tolerance=TOLERANCE[dtype],
        dtype=SHORT[dtype],
        **changes,
    )


def some_rows(n: int) -> Array:
    """Rows of n that stand for all in a check: the first, the last, and some between."""
    at = [np.arange(start, min(start + 16, n)) for start in (0, n // 2, max(0, n - 16))]
    return np.unique(np.concatenate(at))


def missing(device: str) -> str:
    """Why no case can run on a device, in a line; empty if it can."""
    from rlx.targets.gpu.drivers import DRIVERS, probe

    if device not in DRIVERS:
        return f"no device is called {device!r}; there are {', '.join(DRIVERS)}"
    found = probe(device)
    return "" if found.found else f"no {device} device here: {found.why}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if reason := missing(name):
            sys.exit(reason)
