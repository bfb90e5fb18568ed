"""PyTorch, eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.case import Array, Case, Run
from bench.device import Started
from bench.runtimes.base import Ops

GPU = "cuda"
"""What torch calls a GPU, whoever made it."""


class TorchOps(Ops):
    """The operations of torch.nn.functional; a weight lies as ``[outputs, inputs]``."""

    xp = torch
    exporting = False
    """Whether a file is written, which may say less than eager code."""

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        return F.linear(x, w, b)

    def gather(self, table: Any, ids: Any) -> Any:
        return F.embedding(ids, table)

    def copied_transpose(self, x: Any) -> Any:
        return x.T.contiguous()

    def pad(self, x: Any, rows: int, columns: int) -> Any:
        return F.pad(x, (columns, columns, rows, rows))

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype))

    def take(self, x: Any, ids: Any, axis: int) -> Any:
        return torch.index_select(x, axis, ids)

    def take_along(self, x: Any, ids: Any, axis: int) -> Any:
        return torch.gather(x, axis, ids)

    def scatter_add(self, x: Any, ids: Any) -> Any:
        return torch.zeros_like(x).index_add(0, ids, x)

    def sort(self, x: Any) -> Any:
        return torch.sort(x, -1).values

    def topk(self, x: Any, k: int) -> Any:
        return torch.topk(x, k).values

    def resize(self, x: Any, sizes: tuple[int, int]) -> Any:
        return F.interpolate(x, sizes, mode="bilinear", align_corners=False)

    def mean_pool(self, x: Any, size: int, stride: int) -> Any:
        return F.avg_pool2d(x, size, stride)

    def relu(self, x: Any) -> Any:
        return F.relu(x)

    def gelu(self, x: Any) -> Any:
        return F.gelu(x)

    def gelu_tanh(self, x: Any) -> Any:
        return F.gelu(x, approximate="tanh")

    def silu(self, x: Any) -> Any:
        return F.silu(x)

    def softmax(self, x: Any) -> Any:
        return F.softmax(x, -1)

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)

    def rms_norm(self, x: Any, gamma: Any, eps: float = 1e-5) -> Any:
        if self.exporting:  # which the exporter does not know whole
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gamma
        return F.rms_norm(x, x.shape[-1:], gamma, eps)

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        heads, key_heads = int(q.shape[1]), int(k.shape[1])  # tensors, while exporting
        grouped = heads != key_heads
        if grouped and self.exporting:  # (likewise)
            k, v = (a.repeat_interleave(heads // key_heads, 1) for a in (k, v))
            grouped = False
        # is_causal counts from the first key; the cases count from the last.
        assert not causal or int(q.shape[2]) == int(k.shape[2])
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    def conv2d(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        return F.conv2d(x, w, b, stride, padding, 1, groups)


def tensor(a: Array) -> torch.Tensor:
    """A tensor on an array, also on one of NumPy's extension type bfloat16."""
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


class Module(torch.nn.Module):
    """A case with its params."""

    def __init__(self, case: Case, exporting: bool = False) -> None:
        super().__init__()
        self.case, self.ops = case, TorchOps()
        self.ops.exporting = exporting
        self.leaves = torch.nn.ParameterDict()
        for name, value in case.values().items():
            kind = case.params[name].kind if name in case.params else ""
            t = tensor(value)
            t = t.T.contiguous() if kind == "weight" else t
            self.leaves[name] = torch.nn.Parameter(t, requires_grad=False)

    def forward(self, *inputs: Any) -> Any:
        named = dict(zip(self.case.inputs, inputs, strict=True))
        return self.case.build(self.ops, **named, **self.leaves)


def module(case: Case, exporting: bool = False) -> torch.nn.Module:
    """The case as a module in evaluation mode."""
    made = case.own.get("module", Module)(case, exporting).eval()
    # What reads a file rounds for itself.
    return made if exporting else rounded(made, case)


def arguments(case: Case) -> tuple[torch.Tensor, ...]:
    """The inputs as tensors."""
    return tuple(tensor(a) for a in case.feeds().values())


def rounded(x: Any, case: Case) -> Any:
    """A module, or a tensor of floats, in the case's precision."""
    short = case.precision == "bf16" and (not torch.is_tensor(x) or x.is_floating_point())
    return x.to(torch.bfloat16) if short else x


def has_gpu() -> bool:
    """Whether this torch was built for a GPU that is here."""
    return torch.cuda.is_available()


def on_device(case: Case, device: str) -> tuple[torch.Tensor, ...]:
    """The inputs on a GPU; RuntimeError for another device, or if there is none."""
    if device not in ("cuda", "rocm") or not has_gpu():
        raise RuntimeError(f"this torch ({torch.__version__}) has no device {device!r}")
    return tuple(t.to(GPU) for t in arguments(case))


def started(call: Callable[[], Any]) -> Started:
    """A call on torch's GPU."""

    def fetch(result: torch.Tensor) -> Array:
        return result.float().cpu().numpy()

    return Started(call, torch.cuda.synchronize, fetch)


def prepare_on(case: Case, device: str) -> Started:
    """The module as it is, with inputs that lie on the GPU."""
    given, f = on_device(case, device), module(case).to(GPU)

    def call() -> Any:
        with torch.inference_mode():
            return f(*given)

    return started(call)


def caller(f: Any, case: Case, threads: int) -> Run:
    """A call without derivatives."""
    torch.set_num_threads(threads)
    given = [rounded(t, case) for t in arguments(case)]

    def run() -> Any:
        with torch.inference_mode():
            result = f(*given)
        # NumPy has no bf16; the results of such cases are small.
        return result.float() if case.precision == "bf16" else result

    return run


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The module as it is."""
    return caller(module(case), case, threads)
