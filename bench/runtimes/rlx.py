"""RLX: the graph of a case, compiled with its params set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rlx
from bench.case import Case, Run
from bench.device import SHORT, Started
from bench.runtimes.base import Ops
from rlx.targets.gpu.drivers import shared_driver


class RlxOps(Ops):
    """The operations as ops of a graph."""

    def concat(self, parts: list[Any], axis: int) -> Any:
        return parts[0].graph.concat(parts, axis)

    def gather(self, table: Any, ids: Any) -> Any:
        return table.gather(ids)

    def flat(self, x: Any) -> Any:
        return x.reshape((-1,))

    def copied_transpose(self, x: Any) -> Any:
        return x.transpose((1, 0))

    def pad(self, x: Any, rows: int, columns: int) -> Any:
        return x.pad((rows, columns), (rows, columns))

    def tile(self, x: Any, counts: tuple[int, ...]) -> Any:
        return x.tile(counts)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.cast(dtype)

    def cumsum(self, x: Any, axis: int) -> Any:
        return x.cumsum(axis)

    def take(self, x: Any, ids: Any, axis: int) -> Any:
        return x.gather(ids, axis)

    def take_along(self, x: Any, ids: Any, axis: int) -> Any:
        return x.take_along_axis(ids, axis)

    def scatter_add(self, x: Any, ids: Any) -> Any:
        return x.scatter_add(ids, x.shape[0])

    def sort(self, x: Any) -> Any:
        return x.sort()

    def topk(self, x: Any, k: int) -> Any:
        return x.topk(k)[0]

    def resize(self, x: Any, sizes: tuple[int, int]) -> Any:
        return x.resize(sizes, "linear")

    def mean_pool(self, x: Any, size: int, stride: int) -> Any:
        return x.mean_pool(size, stride)

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return x.gelu()

    def gelu_tanh(self, x: Any) -> Any:
        return x.gelu_approx()

    def silu(self, x: Any) -> Any:
        return x.silu()

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        return x.layer_norm(gamma, beta, eps=eps)

    def rms_norm(self, x: Any, gamma: Any, eps: float = 1e-5) -> Any:
        return x.rms_norm(gamma, eps=eps)

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        mask = "causal" if causal else "none"
        return q.attention(k, v, kv_heads=k.shape[1], mask_kind=mask, layout="bhsd")

    def row_attention(
        self, q: Any, k: Any, v: Any, heads: int, key_heads: int, causal: bool = False
    ) -> Any:
        mask = "causal" if causal else "none"
        return q.attention(
            k, v, num_heads=heads, head_dim=q.shape[2] // heads, kv_heads=key_heads, mask_kind=mask
        )

    def rope(self, x: Any, cos: Any, sin: Any, heads: int) -> Any:
        return x.rope(cos, sin, x.shape[2] // heads)

    def conv2d(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        return x.conv2d(w, b, stride, padding, groups=groups)


def graph_of(case: Case) -> rlx.Graph:
    """The case as a graph, for any use."""
    if "graph" in case.own:
        return case.own["graph"](case)
    g = rlx.Graph(case.name)
    types = {"complex64": "c64", "complex128": "c128", "float64": "f64", **SHORT}
    types |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}
    leaves = {
        name: make(name, t.shape, "i64" if t.kind == "ids" else types[t.dtype])
        for make, tensors in ((g.input, case.inputs), (g.param, case.params))
        for name, t in tensors.items()
    }
    out = case.build(RlxOps(), **leaves)
    g.set_outputs(list(out) if isinstance(out, tuple) else [out])
    return g


def compiled(case: Case, threads: int | None, device: str = "cpu") -> rlx.CompiledGraph:
    """The graph with its params set."""
    f = rlx.Session(device, case.precision, threads=threads).compile(graph_of(case))
    for name, value in case.values().items():
        f.set_param(name, value)
    return f


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """A call by position; the results are new arrays."""
    f, feeds = compiled(case, threads), tuple(case.feeds().values())
    return lambda: f.run_slots(*feeds)[0]


def prepare_on(case: Case, device: str) -> Started:
    """A run on arrays that lie on the device, whose results stay there."""
    f = compiled(case, None, device)
    session = rlx.Session(device)
    given = {name: session.to_device(a) for name, a in case.feeds().items()}
    return Started(
        lambda: f.run_on_device(given)[0], shared_driver(device).sync, lambda y: y.numpy()
    )
