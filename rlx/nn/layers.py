"""Layers: dataclasses of arrays that are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.ir.builders import public
from rlx.nn.initial import glorot_uniform, he_normal, normal, zeros

__all__ = ["Conv2d", "Embedding", "LayerNorm", "Linear", "RMSNorm", "Sequential"]

Generator = np.random.Generator


@public
@frozen
class Linear:
    """``x @ weight + bias``, with the weight [inputs, outputs]."""

    weight: Any
    bias: Any = None

    @staticmethod
    def of(rng: Generator, inputs: int, outputs: int, bias: bool = True) -> Linear:
        """A layer with first values: uniform weights, and a bias of zeros unless there is none."""
        weight = glorot_uniform(rng, (inputs, outputs))
        return Linear(weight, zeros((outputs,)) if bias else None)

    def __call__(self, x: Any) -> Any:
        """The layer's result for x [..., inputs]."""
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


@public
@frozen
class Embedding:
    """The rows of a table [count, width] at indices."""

    table: Any

    @staticmethod
    def of(rng: Generator, count: int, width: int) -> Embedding:
        """A table of normal numbers of standard deviation 0.02."""
        return Embedding(normal(rng, (count, width), 0.02))

    def __call__(self, indices: Any) -> Any:
        """The rows, [*indices, width]."""
        return self.table.gather(indices, axis=0)


@public
@frozen
class LayerNorm:
    """The last axis with mean 0 and variance 1, times ``gain``, plus ``bias``."""

    gain: Any
    bias: Any
    eps: float = 1e-5

    @staticmethod
    def of(width: int, eps: float = 1e-5) -> LayerNorm:
        """A layer with a gain of ones and a bias of zeros."""
        return LayerNorm(np.ones(width, np.float32), zeros((width,)), eps)

    def __call__(self, x: Any) -> Any:
        """The layer's result, in the shape of x [..., width]."""
        return x.layer_norm(self.gain, self.bias, eps=self.eps)


@public
@frozen
class RMSNorm:
    """The last axis with a mean square of 1, times ``gain``."""

    gain: Any
    eps: float = 1e-6

    @staticmethod
    def of(width: int, eps: float = 1e-6) -> RMSNorm:
        """A layer with a gain of ones."""
        return RMSNorm(np.ones(width, np.float32), eps)

    def __call__(self, x: Any) -> Any:
        """The layer's result, in the shape of x [..., width]."""
        return x.rms_norm(self.gain, eps=self.eps)


@public
@frozen
class Conv2d:
    """A convolution of images [N, C, H, W] by filters [outputs, inputs, height, width]."""

    weight: Any
    bias: Any = None
    stride: int = 1
    padding: int = 0

    @staticmethod
    def of(
        rng: Generator, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0
    ) -> Conv2d:
        """A layer with normal filters of ``size`` x ``size``, and a bias of zeros."""
        weight = he_normal(rng, (outputs, inputs, size, size))
        return Conv2d(weight, zeros((outputs,)), stride, padding)

    def __call__(self, x: Any) -> Any:
        """The layer's result, [N, outputs, H', W']."""
        return x.conv2d(self.weight, self.bias, stride=self.stride, padding=self.padding)


@public
@frozen
class Sequential:
    """Layers one after the other; a function such as ``rlx.xp.tanh`` is a layer too."""

    layers: tuple[Callable[[Any], Any], ...]

    def __call__(self, x: Any) -> Any:
        """The last layer's result."""
        for layer in self.layers:
            x = layer(x)
        return x
