"""Benchmark patterns: small graphs with the arrays that they run on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rlx.base.frozen import frozen
from rlx.ir.graph import Graph

__all__ = [
    "BenchmarkPattern", "FftPattern", "LayerNormPattern", "MatmulBiasReluPattern", "MatmulPattern",
    "Tier",
]  # fmt: skip

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Tier(StrEnum):
    """How large a pattern is: L1 one op, L2 a few that may fuse."""

    L1 = "l1"
    L2 = "l2"


@runtime_checkable
class BenchmarkPattern(Protocol):
    """A graph to time, and what it runs on."""

    @property
    def tier(self) -> Tier:
        """How large it is."""
        ...

    def name(self) -> str:
        """What it is called, sizes included."""
        ...

    def build(self) -> Graph:
        """The graph, with the values of its params."""
        ...

    def inputs(self) -> Arrays:
        """The arrays of a run, by name."""
        ...


def _numbers(*shape: int) -> np.ndarray[Any, Any]:
    """The same numbers every time, about normal."""
    return np.random.default_rng(7).standard_normal(shape, np.float32)


@frozen
class MatmulPattern:
    """A product of [m, k] and a param of [k, n]."""

    m: int
    k: int
    n: int
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes."""
        return f"matmul_{self.m}x{self.k}x{self.n}"

    def build(self) -> Graph:
        """``x @ w``."""
        g = Graph(self.name())
        g.set_outputs(g.input("x", [self.m, self.k]) @ g.param("w", value=_numbers(self.k, self.n)))
        return g

    def inputs(self) -> Arrays:
        """The left operand."""
        return {"x": _numbers(self.m, self.k)}


@frozen
class LayerNormPattern:
    """A layer norm over the last of [rows, hidden]."""

    rows: int
    hidden: int
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes."""
        return f"layer_norm_{self.rows}x{self.hidden}"

    def build(self) -> Graph:
        """The norm with its scale and shift as params."""
        g = Graph(self.name())
        x = g.input("x", [self.rows, self.hidden])
        scale = g.param("scale", value=np.ones(self.hidden, np.float32))
        g.set_outputs(g.layer_norm(x, scale, g.param("shift", value=_numbers(self.hidden))))
        return g

    def inputs(self) -> Arrays:
        """What is normalised."""
        return {"x": _numbers(self.rows, self.hidden)}


@frozen
class MatmulBiasReluPattern:
    """A product, a bias and a relu, which fuse."""

    m: int
    k: int
    n: int
    tier = Tier.L2

    def name(self) -> str:
        """Its sizes."""
        return f"matmul_bias_relu_{self.m}x{self.k}x{self.n}"

    def build(self) -> Graph:
        """``relu(x @ w + b)``."""
        g = Graph(self.name())
        y = g.input("x", [self.m, self.k]) @ g.param("w", value=_numbers(self.k, self.n))
        g.set_outputs((y + g.param("b", value=_numbers(self.n))).relu())
        return g

    def inputs(self) -> Arrays:
        """The left operand."""
        return {"x": _numbers(self.m, self.k)}


@frozen
class FftPattern:
    """Complex Fourier transforms of ``batch`` rows of ``n``."""

    batch: int
    n: int
    inverse: bool = False
    tier = Tier.L1

    def name(self) -> str:
        """Its sizes and direction."""
        return f"{'ifft' if self.inverse else 'fft'}_{self.batch}x{self.n}"

    def build(self) -> Graph:
        """The transform of the last axis."""
        g = Graph(self.name())
        x = g.input("x", [self.batch, self.n], "c64")
        g.set_outputs(x.ifft() if self.inverse else x.fft())
        return g

    def inputs(self) -> Arrays:
        """What is transformed."""
        parts = _numbers(2, self.batch, self.n)
        return {"x": (parts[0] + 1j * parts[1]).astype(np.complex64)}
