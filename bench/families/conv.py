"""Convolutions with bias and relu: of ResNet-50, and depthwise ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bench.case import Case, Tensor


@dataclass(frozen=True)
class Layer:
    """A convolution of square images."""

    channels: int
    outputs: int
    kernel: int
    stride: int
    size: int
    groups: int = 1

    def __str__(self) -> str:
        what = f"{self.kernel}x{self.kernel}" + (f"/{self.stride}" if self.stride > 1 else "")
        groups = " depthwise" if self.groups > 1 else ""
        return f"{what} {self.channels}->{self.outputs} @{self.size}{groups}"

    @property
    def padding(self) -> int:
        """At each edge."""
        return self.kernel // 2

    @property
    def flops(self) -> int:
        """Of one image."""
        out = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        return 2 * self.outputs * self.channels // self.groups * (self.kernel * out) ** 2


def resnet50() -> list[Layer]:
    """The distinct convolutions, in order: bottlenecks whose 3x3 has the stride."""
    found = [Layer(3, 64, 7, 2, 224)]
    channels, size = 64, 56
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        inner = size // stride
        found += [
            Layer(channels, width, 1, 1, size),
            Layer(width, width, 3, stride, size),
            Layer(width, 4 * width, 1, 1, inner),
            Layer(channels, 4 * width, 1, stride, size),
            Layer(4 * width, width, 1, 1, inner),
            Layer(width, width, 3, 1, inner),
        ]
        channels, size = 4 * width, inner
    return list(dict.fromkeys(found))


DEPTHWISE = [
    Layer(channels, channels, kernel, stride, size, channels)
    for channels, kernel, stride, size in (
        (32, 3, 1, 112), (96, 3, 2, 112), (144, 3, 1, 56), (144, 3, 2, 56), (384, 3, 1, 14),
        (576, 3, 2, 14), (960, 3, 1, 7), (72, 5, 2, 56), (120, 5, 1, 28), (672, 5, 1, 14),
        (960, 5, 1, 7), (96, 7, 1, 56), (192, 7, 1, 28), (384, 7, 1, 14), (768, 7, 1, 7),
    )
]  # fmt: skip
"""Of MobileNet (3x3 and 5x5) and ConvNeXt (7x7)."""


def case(layer: Layer, batch: int) -> Case:
    """A layer on some images."""
    depth = layer.channels // layer.groups
    scale = 1 / (math.sqrt(depth) * layer.kernel)

    def build(f: Any, x: Any, w: Any, b: Any) -> Any:
        return f.relu(f.conv2d(x, w, b, layer.stride, layer.padding, layer.groups))

    return Case(
        f"{layer} b{batch}", build,
        {"x": Tensor((batch, layer.channels, layer.size, layer.size))},
        {
            "w": Tensor((layer.outputs, depth, layer.kernel, layer.kernel), scale=scale),
            "b": Tensor((layer.outputs,)),
        },
        flops=batch * layer.flops,
        quick=batch == 1 and str(layer) in ("3x3 64->64 @56", "1x1 1024->256 @14"),
    )  # fmt: skip


def cases() -> list[Case]:
    """Every layer for one image and for eight."""
    return [case(layer, batch) for batch in (1, 8) for layer in (*resnet50(), *DEPTHWISE)]
