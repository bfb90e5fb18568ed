"""The convolutions of ResNet-50 in f32 against torch, in turn in one process.

    python -m bench conv --threads 2 --rounds 7

Every distinct layer with its bias and relu, compiled by RLX (weights packed once) and run eagerly
by torch (oneDNN); the numbers are compared first. Prints GFLOP/s of RLX, and torch's time over
RLX's time in their medians and in their best rounds: above 1, RLX is faster. The last line is the
geometric mean over the layers. ``--depthwise`` adds layers of MobileNet.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.kernels.gemm import measure

Array = np.ndarray[Any, Any]
Run = Callable[[], object]


@dataclass(frozen=True)
class Layer:
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
        return self.kernel // 2

    @property
    def flops(self) -> int:
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
    Layer(32, 32, 3, 1, 112, 32),
    Layer(96, 96, 3, 2, 112, 96),
    Layer(144, 144, 3, 1, 56, 144),
    Layer(384, 384, 3, 1, 14, 384),
    Layer(960, 960, 3, 1, 7, 960),
]


def rlx_runner(layer: Layer, x: Array, w: Array, b: Array, threads: int) -> tuple[Run, Array]:
    import rlx

    g = rlx.Graph("layer")
    y = g.input("x", x.shape).conv2d(
        g.param("w", w.shape), g.param("b", b.shape), layer.stride, layer.padding,
        groups=layer.groups,
    )  # fmt: skip
    g.set_outputs([y.relu()])
    compiled = rlx.Session("cpu", threads=threads).compile(g)
    compiled.set_param("w", w)
    compiled.set_param("b", b)
    out = np.empty(y.type.static_shape, np.float32)
    return lambda: compiled.run_into({"x": x}, [out]), out


def torch_runner(layer: Layer, x: Array, w: Array, b: Array, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tx, tw, tb = (torch.from_numpy(v) for v in (x, w, b))
    conv = torch.nn.functional.conv2d
    return lambda: conv(tx, tw, tb, layer.stride, layer.padding, 1, layer.groups).relu_()


def arrays(layer: Layer, batch: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    depth = layer.channels // layer.groups
    x = rng.standard_normal((batch, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.outputs, depth, layer.kernel, layer.kernel), np.float32)
    w /= np.float32(math.sqrt(depth) * layer.kernel)
    return x, w, rng.standard_normal(layer.outputs, np.float32)


def main(argv: list[str]) -> int:
    form = argparse.RawDescriptionHelpFormatter
    args = argparse.ArgumentParser("bench conv", description=__doc__, formatter_class=form)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    args.add_argument("--rounds", type=int, default=7)
    args.add_argument("--seconds", type=float, default=0.03, help="of a round, a run")
    args.add_argument("--depthwise", action="store_true")
    args.add_argument("--only", default="", help="layers whose name holds this text")
    chosen = args.parse_args(argv)
    layers = [n for n in resnet50() + DEPTHWISE * chosen.depthwise if chosen.only in str(n)]
    print(f"{'layer':26s}{'batch':>6s}{'GFLOP/s':>9s}{'median':>8s}{'best':>7s}")
    ratios: list[tuple[float, float]] = []
    for batch in chosen.batch:
        for layer in layers:
            operands = arrays(layer, batch)
            ours, out = rlx_runner(layer, *operands, chosen.threads)
            torch = torch_runner(layer, *operands, chosen.threads)
            ours()
            want: Any = torch()
            if not np.allclose(out, want.numpy(), rtol=1e-4, atol=1e-4):
                print(f"{layer}: the numbers differ", file=sys.stderr)
                return 1
            times = measure({"rlx": ours, "torch": torch}, chosen.seconds, chosen.rounds)
            middle, best = (f(times["torch"]) / f(times["rlx"]) for f in (statistics.median, min))
            ratios.append((middle, best))
            speed = batch * layer.flops / min(times["rlx"]) / 1e9
            print(f"{layer!s:26s}{batch:6d}{speed:9.1f}{middle:8.2f}{best:7.2f}", flush=True)
    mean = [math.exp(statistics.fmean(math.log(r[i]) for r in ratios)) for i in (0, 1)]
    print(f"{'geometric mean':41s}{mean[0]:8.2f}{mean[1]:7.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
