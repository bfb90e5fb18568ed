"""Inputs of matrices scaled so that the weights that matter most lose least when they are rounded.

An input that is large as a rule makes errors of its column large. ``w * s`` is rounded in place of
``w``, and what makes the inputs is divided by ``s``, with ``s = mean(abs(x)) ** a``: AWQ (Lin et
al. 2023, "AWQ: activation-aware weight quantization", section 3.2). ``a`` is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx.ptq.feedback import loss
from rlx.quant.bits import Array

__all__ = ["input_scales"]

STEPS = 10
"""So many exponents from 0 to 1 are tried."""


def input_scales(
    weights: Sequence[Array], size: Array, hessian: Array, rounded: Callable[[Array], Array]
) -> Array:
    """The scales ``[inputs]`` of the inputs that matrices share, whose mean sizes are ``size``;
    ``rounded`` gives what a matrix becomes. They are 1 where none loses less."""
    best, least = np.ones(len(size), np.float32), np.inf
    for n in range(STEPS):
        s = np.maximum(size, 1e-4).astype(np.float64) ** (n / STEPS)
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        lost = sum(loss(rounded(w * s) / s - w, hessian) for w in weights)
        if lost < least:
            best, least = s, lost
    return best
