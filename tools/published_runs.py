"""The cost model beside training runs that others have published.

    python tools/published_runs.py

The runs are those of torchtitan on H100s (benchmarks/llama3_h100_202412_torchtitan.md in its
repository), 8 of them a node. The rows of 8 GPUs calibrate: one the rate of products in bf16, one
that of products in 8 bits, one that without a compiler. All others are predicted, from the
collectives that ``rlx.shard`` puts into a layer and its gradients, and from the bytes that it
moves.

What is assumed: memory of 2.4 TB/s and 400 Gbit/s a GPU, as the page says; 360 GB/s a GPU between
those of a node, and 45 GB/s of a ring between nodes, as NCCL's tests show for such machines.
Collectives of FSDP run beside computing, those of tensor parallelism only where they are
asynchronous. Full checkpointing computes a layer's forward pass twice, and the selective one of the
8B half of it (torchtitan's keeps every second product). A pipeline of S stages has M = S
micro-batches (torchtitan's default), and V parts of the model a rank in the interleaved schedule,
here 2: its bubbles are (S - 1) / (V M + S - 1). Attention and the last layer are products in bf16
in all runs.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

import rlx
from rlx import P
from rlx.distributed import Cost, Network, cost
from rlx.roofline import Roofline

MEMORY = 2.4e12
NODE, NETWORK = Network(3e-6, 360e9), Network(12e-6, 45e9)
VOCAB = 128256


class Model(NamedTuple):
    """A llama: layers of so many heads, and the sequences that it is trained on."""

    layers: int
    size: int
    inner: int
    heads: int
    tokens: int = 8192


LLAMA = {"8B": Model(32, 4096, 14336, 32), "70B": Model(80, 8192, 28672, 64),
         "405B": Model(126, 16384, 53248, 128)}  # fmt: skip


class Run(NamedTuple):
    """A published run: tokens a second and GPU, on ``data`` x ``model`` x ``stages`` GPUs, each
    group along ``data`` with so many ``sequences``."""

    name: str
    published: int
    model: str
    kind: str
    data: int
    sequences: int
    tensor: int = 1
    stages: int = 1
    parts: int = 1
    again: float = 0.5
    asynchronous: bool = False


CALIBRATION = (
    Run("8B, FSDP 8", 5762, "8B", "eager", 8, 2),
    Run("8B, FSDP 8, compiled", 6667, "8B", "bf16", 8, 2),
    Run("8B, FSDP 8, compiled, float8", 8532, "8B", "float8", 8, 2),
)
RUNS = (
    Run("8B, FSDP 128", 5605, "8B", "eager", 128, 2),
    Run("8B, FSDP 128, compiled", 6514, "8B", "bf16", 128, 2),
    Run("8B, FSDP 128, compiled, float8", 8380, "8B", "float8", 128, 2),
    Run("70B, FSDP 32, TP 8, float8", 829, "70B", "float8", 32, 16, 8, again=1.0),
    Run("70B, FSDP 32, TP 8, float8, AsyncTP", 876, "70B", "float8", 32, 16, 8,
        again=1.0, asynchronous=True),
    Run("405B, FSDP 8, TP 8, PP 8, 1F1B", 100, "405B", "float8", 8, 32, 8, 8,
        again=1.0, asynchronous=True),
    Run("405B, FSDP 8, TP 8, PP 8, interleaved", 128, "405B", "float8", 8, 32, 8, 8, 2,
        again=1.0, asynchronous=True),
)  # fmt: skip


def layer(m: Model, sequences: int) -> rlx.Graph:
    """A layer, and a sum of what it gives."""
    g, d = rlx.Graph("layer"), m.size // m.heads
    shape = [sequences, m.tokens, m.size]
    x, weights = g.input("x", shape, "bf16"), g.input("g", shape, "bf16")

    def param(name: str, *sizes: int) -> rlx.Value:
        return g.param(name, sizes, "bf16")

    h = x.rms_norm(param("norm1", m.size))
    q, k, v = (h @ param(n, m.size, s) for n, s in (("wq", m.size), ("wk", 8 * d), ("wv", 8 * d)))
    h = g.attention(q, k, v, num_heads=m.heads, kv_heads=8, mask_kind="causal")
    x = x + h @ param("wo", m.size, m.size)
    h = x.rms_norm(param("norm2", m.size))
    gate, up = h @ param("gate", m.size, m.inner), h @ param("up", m.size, m.inner)
    x = x + (gate.silu() * up) @ param("down", m.inner, m.size)
    g.set_outputs((x * weights).sum())
    return g


SPECS = {
    "x": P("data"), "g": P("data"), "norm1": P("data"), "norm2": P("data"),
    **dict.fromkeys(("wq", "wk", "wv", "gate", "up"), P("data", "model")),
    "wo": P("model", "data"), "down": P("model", "data"),
}  # fmt: skip


@cache
def sharded(model: str, data: int, tensor: int, sequences: int, *, backward: bool) -> Any:
    """A forward pass of a layer on a mesh, or that and the backward pass."""
    graph, names = layer(LLAMA[model], data * sequences), [n for n in SPECS if n != "g"]
    mesh, out = rlx.Mesh(data=data, model=tensor), list[P]()
    if backward:
        graph, out = rlx.grad(graph, names), [SPECS[n] for n in names]
    return rlx.shard(graph, mesh, SPECS, out=out)


def pass_of(run: Run, rate: dict[str, float], *, backward: bool) -> Cost:
    """The same of a micro-batch of a run."""
    each = run.sequences // run.stages
    graph = sharded(run.model, run.data, run.tensor, each, backward=backward)
    networks = {"model": NODE, "data": NODE if run.data * run.tensor <= 8 else NETWORK}
    beside = ("data", "model") if run.asynchronous else ("data",)
    products = rate["bf16" if run.kind == "float8" else run.kind]
    attention = {"attention": products, "attention_grad": products}
    roofline = Roofline(rate[run.kind], MEMORY, 1)
    return cost(graph, roofline, networks, rates=attention, beside=beside)


def tokens_a_second(run: Run, rate: dict[str, float]) -> float:
    """Of a GPU."""
    m = LLAMA[run.model]
    both, forward = (pass_of(run, rate, backward=b) for b in (True, False))
    # Params are gathered for the backward pass again, and with checkpoints all is computed again.
    again = run.again * (forward.step if run.again == 1.0 else forward.compute)
    both = both._replace(
        exchange={**both.exchange, "data": both.exchange["data"] + forward.exchange["data"]}
    )
    tokens = run.sequences * m.tokens / run.stages / run.tensor
    head = 3 * 2 * m.size * VOCAB * tokens / rate["bf16" if run.kind == "float8" else run.kind]
    computed = (m.layers * (both.step + again) + head) / run.stages
    turns = run.parts * run.stages
    bubbles = (run.stages - 1) / (turns + run.stages - 1)
    return tokens / run.stages / computed * (1 - bubbles)


def calibrated() -> dict[str, float]:
    """The rates of products, by bisection."""
    rate: dict[str, float] = {}
    for run in CALIBRATION:
        low, high = 5e13, 2e15
        while high / low > 1.001:
            rate[run.kind] = (low * high) ** 0.5
            slow = tokens_a_second(run, rate) < run.published
            low, high = (rate[run.kind], high) if slow else (low, rate[run.kind])
    return rate


def main() -> int:
    """Print the table; 1 if a row of FSDP is 5 % off or more, or one of more axes 25 %."""
    rate, wrong = calibrated(), 0
    print("rates", {k: f"{v / 1e12:.0f} TFLOP/s" for k, v in rate.items()})
    for run in RUNS:
        found = tokens_a_second(run, rate)
        off = found / run.published - 1
        wrong |= abs(off) >= (0.05 if run.tensor == 1 else 0.25)
        print(
            f"{run.name:40} published {run.published:5} predicted {found:7.0f} {100 * off:+6.1f} %"
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
