"""Which ops of a package would leave the neural engine: by Apple's guidance, unverified.

Apple publishes no list. What its documents and talks say is here as rules: the engine computes in
f16, on tensors of up to four axes and 16384 elements along each; it has no integer arithmetic, and
gathers and scatters by computed indices go to the processor ("Deploying Transformers on the Apple
Neural Engine", machinelearning.apple.com, 2022; coremltools' guide, "ML Programs"). On a Mac,
``MLComputePlan`` says what runs where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["leaving", "report"]

MOST_AXES, MOST_ELEMENTS = 4, 16384
_BY_INDEX = frozenset(["gather", "gather_nd", "scatter", "scatter_nd", "gather_along_axis"])
_FLOAT16 = 10
"""MILSpec.DataType FLOAT16."""


def leaving(operations: Iterable[Any]) -> list[tuple[str, str]]:
    """The ops of a function, and why, in its order."""
    return [
        (op.type, why)
        for op in operations
        if op.type != "const" and not op.type.startswith("constexpr_") and (why := _why(op))
    ]


def _why(op: Any) -> str:
    if op.type in _BY_INDEX:
        return "it reads or writes by index"
    for output in op.outputs:
        kind = output.type.tensorType
        sizes = [d.constant.size for d in kind.dimensions]
        if kind.dataType != _FLOAT16:
            return "it gives no f16"
        if len(sizes) > MOST_AXES:
            return f"it gives {len(sizes)} axes"
        if any(n > MOST_ELEMENTS for n in sizes):
            return f"an axis of {max(sizes)} elements"
    return ""


def report(functions: Mapping[str, Iterable[Any]]) -> str:
    """The ops of each function by kind, as people read them."""
    lines = ["would leave the neural engine, by Apple's guidance, unverified:"]
    for name, operations in functions.items():
        indent = "  "
        if len(functions) > 1:
            lines.append(f"  {name}:")
            indent = "    "
        counts = Counter(leaving(operations))
        found = [f"{indent}{op} x {n}: {why}" for (op, why), n in counts.items()]
        lines += found or [f"{indent}none"]
    return "\n".join(lines) + "\n"
