"""First values of weights, drawn by a generator of NumPy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.builders import located

__all__ = ["glorot_uniform", "he_normal", "normal", "zeros"]

Array = np.ndarray[Any, Any]


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs and outputs an element of a weight has: of a matrix ``[inputs, outputs]``,
    or of filters ``[outputs, inputs, ...]``."""
    if len(shape) < 2:
        raise GraphError(f"a weight has 2 axes or more, found the shape {list(shape)}")
    if len(shape) == 2:
        return shape[0], shape[1]
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


@located
def normal(rng: np.random.Generator, shape: Sequence[int], scale: float = 1.0) -> Array:
    """Normal numbers of the standard deviation ``scale``, f32."""
    return rng.standard_normal(tuple(shape), np.float32) * np.float32(scale)


@located
def he_normal(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Normal numbers of variance 2 / inputs, for layers before a rectifier (He et al., 2015)."""
    dims = tuple(shape)
    return normal(rng, dims, math.sqrt(2 / max(_fans(dims)[0], 1)))


@located
def glorot_uniform(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Uniform numbers of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    dims = tuple(shape)
    bound = math.sqrt(6 / max(sum(_fans(dims)), 1))
    return rng.uniform(-bound, bound, dims).astype(np.float32)


@located
def zeros(shape: Sequence[int]) -> Array:
    """Zeros, f32."""
    return np.zeros(shape, np.float32)
