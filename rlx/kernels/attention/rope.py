"""Rotary embedding: the pairs of every head turned, halves of a head side by side in vectors.

A task is a row of x, of all heads: cosines and sines are read once for a vector of pairs of a head.
"""

from __future__ import annotations

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.kernels.attention.args import Strides
from rlx.types import DType, f32, f64

__all__ = ["RopeConfig", "RopeSizes", "emit", "launch", "name"]

name = "rope"

GRAIN = 1 << 13
"""Elements that are worth waking a thread."""


@frozen
class RopeConfig:
    """The types of x and of the tables; ``rest``: a head has elements that do not turn."""

    dtype: DType
    table: DType
    rest: bool

    @property
    def compute(self) -> DType:
        """The type of products and sums."""
        return f64 if self.dtype is f64 else f32


@frozen
class RopeSizes:
    """One call: x [batch, heads, rows, dim], of which ``turned`` elements of a head turn; tables of
    ``rows``, so far apart."""

    batch: int
    heads: int
    rows: int
    dim: int
    turned: int
    x: Strides
    out: Strides
    cos_row: int
    sin_row: int


_NAMES = (
    "heads", "rows", "dim", "half", "x_batch", "x_head", "x_row", "out_batch", "out_head",
    "out_row", "cos_row", "sin_row",
)  # fmt: skip


def launch(s: RopeSizes) -> Launch:
    """One call of the kernel."""
    sizes = (s.heads, s.rows, s.dim, s.turned // 2, *s.x, *s.out, s.cos_row, s.sin_row)
    return Launch(s.batch * s.rows, maximum(1, GRAIN // (s.heads * s.dim)), sizes)


def emit(name: str, config: RopeConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config. Buffers: x, cos, sin, out."""
    k = Kernel(name, target)
    x, cos, sin = (
        k.buffer("x", config.dtype),
        k.buffer("cos", config.table),
        k.buffer("sin", config.table),
    )
    out = k.buffer("out", config.dtype)
    s = {n: k.size(n) for n in _NAMES}
    dt, half = config.compute, s["half"]

    def task(t: Reg) -> None:
        batch, row = t // s["rows"], t % s["rows"]

        def head(h: Reg) -> None:
            source = batch * s["x_batch"] + h * s["x_head"] + row * s["x_row"]
            to = batch * s["out_batch"] + h * s["out_head"] + row * s["out_row"]

            def pairs(i: Reg, lanes: int) -> None:
                a, b = (k.load(x, source + i + at, lanes) for at in (k.index(0), half))
                c = k.cast(k.load(cos, row * s["cos_row"] + i, lanes), dt)
                d = k.cast(k.load(sin, row * s["sin_row"] + i, lanes), dt)
                k.store(a * c - b * d, out, to + i)
                k.store(b * c + a * d, out, to + half + i)

            k.vector_loop(half, target.lanes(config.dtype), pairs)
            if config.rest:
                first = half * 2
                k.vector_loop(
                    s["dim"] - first,
                    target.lanes(config.dtype),
                    lambda i, n: k.store(k.load(x, source + first + i, n), out, to + first + i),
                )

        k.loop(0, s["heads"], 1, head)

    k.parallel(task)
    return k.text()
