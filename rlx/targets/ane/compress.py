"""Weights of a package in few bits, by Apple's own passes (coremltools.optimize).

Integers have a scale for each output, or with 4 bits one for 32 elements of it, where a weight that
is no whole blocks of those stays as it is. A palette is the numbers that a tensor has, which each
element picks one of: the best ones, by k-means. The program that reads such weights decodes them
itself, and computes as it did.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from math import prod
from typing import Any

from rlx.errors import UnsupportedError
from rlx.targets.ane.features import AneFeatures

__all__ = ["WEIGHTS", "check_weights", "compressed", "counted"]

LEAST = 2048
"""Elements of a tensor from which on it is stored in few bits."""

READERS = ("matmul", "linear", "conv", "conv_transpose", "gather")
"""The ops whose tensors are stored so: biases and scales, which are spread, stay as they are."""

_PALETTE = "palette"
WEIGHTS = ("int8", "int4", *(f"{_PALETTE}{bits}" for bits in (1, 2, 3, 4, 6, 8)))
"""Integers of so many bits, and palettes of 2 to the power of so many numbers."""

_NEWER = ("int4", f"{_PALETTE}3")
"""What only iOS 18's programs have."""


def check_weights(weights: str, features: AneFeatures) -> None:
    """UnsupportedError for weights that there are not, or not on a system."""
    if weights not in WEIGHTS:
        raise UnsupportedError(
            f"a package has no weights {weights!r}; there are {', '.join(WEIGHTS)}, and without one"
            " of them weights have the type that the program computes in"
        )
    if weights in _NEWER and features.system != "iOS18":
        raise UnsupportedError(
            f"weights {weights!r} need iOS18, found {features.system}; give target='ane:iOS18'"
        )


def counted(ops: Sequence[Any]) -> tuple[int, int]:
    """How many of the weights of ``LEAST`` elements or more a function has in few bits, and how
    many as they are."""
    kept = {op.outputs[0].name for op in ops if op.type == "const" and _size(op) >= LEAST}
    read = {
        argument.name
        for op in ops
        if op.type in READERS
        for given in op.inputs.values()
        for argument in given.arguments
    }
    few = sum(op.type.startswith("constexpr_") for op in ops)
    return few, len(kept & read)


def _size(op: Any) -> int:
    return prod(d.constant.size for d in op.outputs[0].type.tensorType.dimensions)


def compressed(model: Any, weights: str) -> Any:
    """The model of coremltools with weights in few bits."""
    tools = importlib.import_module("coremltools.optimize.coreml")
    if weights.startswith(_PALETTE):
        bits = int(weights.removeprefix(_PALETTE))
        how = tools.OpPalettizerConfig(mode="kmeans", nbits=bits, weight_threshold=LEAST)
        return tools.palettize_weights(model, _of_readers(tools, how))
    fine = {"granularity": "per_block", "block_size": 32} if weights == "int4" else {}
    how = tools.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype=weights, weight_threshold=LEAST, **fine
    )
    return tools.linear_quantize_weights(model, _of_readers(tools, how))


def _of_readers(tools: Any, how: Any) -> Any:
    return tools.OptimizationConfig(op_type_configs=dict.fromkeys(READERS, how))
