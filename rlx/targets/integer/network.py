"""Networks of integers: what microcontrollers and FPGAs compute, and an exact model of it.

A network is a chain of layers on one image, whose elements lie as rows, columns, channels. Codes
are i8; sums are exact; a product's layer ends with a requantization, whose multiplier is of its
output and whose shift is the layer's. Codes may have a zero point, the code of 0.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ShapeError
from rlx.ir.attrs import to_array
from rlx.ir.builders import public
from rlx.targets.integer.arithmetic import requantize_q31

__all__ = ["ArgMax", "Layer", "MaxPool", "MeanPool", "Network", "Product"]

Array = np.ndarray[Any, Any]
Size = tuple[int, int, int]


@frozen
class Product:
    """A dense layer or a convolution: ``weights`` [N, rows, columns, channels] of
    ``weight_bits``, i32 ``bias`` [N], ``multiplier`` [N] of ``multiplier_bits`` and a ``shift`` to
    the right; results within [low, high] (a relu's low is 0). A dense layer is a convolution over
    all of its input. A ``depthwise`` one has a filter [rows, columns, 1] for each channel. ``zero``
    is the zero point of the results, and ``pad_code`` that of the input, which padding has; what it
    adds to sums is in the bias."""

    name: str
    source: Size
    size: Size
    weights: Array
    bias: Array
    multiplier: Array
    shift: int
    low: int
    high: int
    stride: tuple[int, int]
    pad: tuple[int, int]
    weight_bits: int
    multiplier_bits: int
    depthwise: bool = False
    zero: int = 0
    pad_code: int = 0

    @property
    def macs(self) -> int:
        """Products of an image."""
        return prod(self.size[:2]) * self.weights.size

    @property
    def bits(self) -> int:
        """Of a result, with its sign."""
        return 8 if self.high < 128 else 16

    @property
    def sum_bits(self) -> int:
        """Of a sum, with its sign, for any codes."""
        weights = np.abs(self.weights.astype(np.int64)).reshape(len(self.weights), -1).sum(1)
        most = int((weights * 128 + np.abs(self.bias.astype(np.int64))).max(initial=1))
        return most.bit_length() + 1

    def run(self, x: Array) -> Array:
        """Codes [B, rows, columns, channels] in, [B, rows, columns, N] out, exactly."""
        (kh, kw), (sy, sx) = self.weights.shape[1:3], self.stride
        rows, cols, _ = self.size
        py, px = self.pad
        ends = zip((rows, cols), self.stride, (kh, kw), self.pad, self.source[:2], strict=True)
        after = [(o - 1) * s + k - p - d for o, s, k, p, d in ends]
        wide = np.pad(
            x.astype(np.int64),
            ((0, 0), (py, max(after[0], 0)), (px, max(after[1], 0)), (0, 0)),
            constant_values=self.pad_code,
        )
        acc = np.zeros((len(x), *self.size), np.int64) + self.bias
        for dy in range(kh):
            for dx in range(kw):
                part = wide[
                    :, dy : dy + sy * (rows - 1) + 1 : sy, dx : dx + sx * (cols - 1) + 1 : sx
                ]
                w = self.weights[:, dy, dx].astype(np.int64)
                acc += part * w[:, 0] if self.depthwise else part @ w.T
        q31 = self.multiplier.astype(np.int64) << (31 - self.multiplier_bits)
        return requantize_q31(acc, q31, -self.shift, self.zero, self.low, self.high)


@frozen
class MaxPool:
    """The greatest of each window, of codes of so many ``bits``."""

    name: str
    source: Size
    size: Size
    taps: tuple[int, int]
    stride: tuple[int, int]
    bits: int = 8

    def run(self, x: Array) -> Array:
        """The same of arrays."""
        return np.max(_windows(x, self.size, self.taps, self.stride), axis=0)


@frozen
class MeanPool:
    """The mean of each window of codes of ``source_bits``, 16 or 8: their sum, without their zero
    point ``source_zero``, requantized by ``multiplier`` of 31 bits, which holds the number of them,
    and ``shift`` to the right, moved by ``zero``, within [low, high]."""

    name: str
    source: Size
    size: Size
    taps: tuple[int, int]
    stride: tuple[int, int]
    multiplier: int
    shift: int
    low: int
    high: int
    source_bits: int = 16
    source_zero: int = 0
    zero: int = 0

    @property
    def bits(self) -> int:
        """Of a result, with its sign."""
        return 8 if self.high < 128 else 16

    def run(self, x: Array) -> Array:
        """The same of arrays."""
        acc = np.sum(_windows(x, self.size, self.taps, self.stride), axis=0, dtype=np.int64)
        acc = acc - prod(self.taps) * self.source_zero
        return requantize_q31(acc, self.multiplier, -self.shift, self.zero, self.low, self.high)


def _windows(x: Array, size: Size, taps: tuple[int, int], stride: tuple[int, int]) -> list[Array]:
    """For each tap what all windows have there."""
    (rows, cols, _), (kh, kw), (sy, sx) = size, taps, stride
    return [
        x[:, dy : dy + sy * (rows - 1) + 1 : sy, dx : dx + sx * (cols - 1) + 1 : sx]
        for dy in range(kh) for dx in range(kw)
    ]  # fmt: skip


@frozen
class ArgMax:
    """The place of the greatest of all elements, of equal ones the first."""

    name: str
    source: Size
    size: Size

    bits = 16

    def run(self, x: Array) -> Array:
        """The same of arrays."""
        return x.reshape(len(x), -1).argmax(1).reshape(-1, 1, 1, 1)


Layer = Product | MaxPool | MeanPool | ArgMax


@public
@frozen
class Network:
    """Layers, the size of an image (rows, columns, channels), the scale of its codes, that of the
    results (1 for an argmax), and the zero points of both: a number is its code less that, times
    the scale."""

    name: str
    source: Size
    scale: float
    layers: tuple[Layer, ...]
    result_scale: float
    zero: int = 0
    result_zero: int = 0

    def codes(self, images: Any) -> Array:
        """Numbers as the i8 codes that the network takes, [B, rows, columns, channels]. Images are
        given as the graph takes them: [B, channels, rows, columns], or [B, elements]. ShapeError
        for others."""
        x = np.asarray(to_array(images, "codes"), np.float32)
        rows, cols, channels = self.source
        if x.shape[1:] == (channels, rows, cols):
            x = x.transpose(0, 2, 3, 1)
        elif x.shape[1:] != (rows * cols * channels,) or rows * cols != 1:
            raise ShapeError(
                f"{self.name} takes images of {channels} channels, {rows} rows and {cols} columns"
                f" each, found {list(x.shape)}"
            )
        whole = np.rint(x / np.float32(self.scale)) + self.zero
        return np.clip(whole, -128, 127).astype(np.int8).reshape(-1, *self.source)

    def run(self, codes: Any) -> Array:
        """What the device gives for codes, exactly: i64 [B, results]. This is the reference that
        simulations and emulators are held to."""
        x: Array = to_array(codes, "run")
        if x.shape[1:] != self.source or x.dtype != np.int8:
            raise ShapeError(
                f"{self.name} takes codes i8{['B', *self.source]}, found {x.dtype}{list(x.shape)}"
            )
        for layer in self.layers:
            x = layer.run(x)
        return x.reshape(len(x), -1)
