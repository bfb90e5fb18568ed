"""JAX: the case jitted by XLA, with params as arguments that stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bench.case import Case, Run
from bench.runtimes.base import Formulas


class JaxOps(Formulas):
    """The formulas on JAX's functions, and jax.nn's where there is one."""

    xp = jnp

    def take(self, x: Any, ids: Any, axis: int) -> Any:
        return jnp.take(x, ids, axis, mode="clip")

    def scatter_add(self, x: Any, ids: Any) -> Any:
        return jnp.zeros_like(x).at[ids].add(x)

    def topk(self, x: Any, k: int) -> Any:
        return jax.lax.top_k(x, k)[0]

    def resize(self, x: Any, sizes: tuple[int, int]) -> Any:
        return jax.image.resize(x, (*x.shape[:2], *sizes), "linear", antialias=False)

    def mean_pool(self, x: Any, size: int, stride: int) -> Any:
        window, steps = (1, 1, size, size), (1, 1, stride, stride)
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, "VALID") / size**2

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    def gelu_tanh(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)

    def silu(self, x: Any) -> Any:
        return jax.nn.silu(x)

    def softmax(self, x: Any) -> Any:
        return jax.nn.softmax(x, -1)

    def conv2d(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        edge = [(padding, padding)] * 2
        y = jax.lax.conv_general_dilated(x, w, (stride, stride), edge, feature_group_count=groups)
        return y + b[:, None, None]


def function(case: Case) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The case as a function to be jitted, and its arguments: inputs, then params."""
    wide = any(t.dtype in ("float64", "complex128") for t in case.inputs.values())
    jax.config.update("jax_enable_x64", wide)
    values = {**case.feeds(), **case.values()}

    def f(*arguments: Any) -> Any:
        return case.build(JaxOps(), **dict(zip(values, arguments, strict=True)))

    return f, tuple(values.values())


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The jitted function; how many threads it uses follows from the process's CPUs."""
    f, arguments = function(case)
    jitted, given = jax.jit(f), tuple(jnp.asarray(a) for a in arguments)
    return lambda: jax.block_until_ready(jitted(*given))
