"""JAX's modules under their usual names, imported when one is first used.

So a table of what each op is in JAX can be read where JAX is not installed. It computes in 64 bits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["Table", "jax", "jnp", "lax", "nn", "special"]

Table = dict[str, Callable[..., Any]]
"""By the name of an op a function of its node, for the attributes, and of JAX's arrays, None where
an operand is absent: the result, or a tuple of them."""


@cache
def _imported(name: str) -> Any:
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    return importlib.import_module(name)


class _Later:
    """A module that its first use imports."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_imported(self._name), attribute)


jax: Any = _Later("jax")
jnp: Any = _Later("jax.numpy")
lax: Any = _Later("jax.lax")
nn: Any = _Later("jax.nn")
special: Any = _Later("jax.scipy.special")
