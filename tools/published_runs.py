"""The cost model beside training runs that others have published.

    python tools/published_runs.py

The runs are those of torchtitan on H100s (benchmarks/llama3_h100_202412_torchtitan.md in its
repository), 8 of them a node. The rows of 8 GPUs calibrate: one the rate of products in bf16, one
that of products in 8 bits, one that without a compiler. All others are predicted, from the
collectives that ``rlx.shard`` puts into a layer and its gradients, and from the bytes that it
moves.

Runs of another system are a test that nothing was chosen by: those of NVIDIA's NeMo 24.07 on DGX
H100, in 8 bits (docs of its performance), dense models of known shapes without context parallelism.
One row, of data parallelism alone, calibrates the rate of products in 8 bits; machines and rules
are those of the runs above. NeMo recomputes nothing, keeps params whole along data and exchanges
gradients once a step beside computing, and has collectives of tensor parallelism beside products.

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


class Model(NamedTuple):
    """A llama: layers of so many heads, and the sequences that it is trained on."""

    layers: int
    size: int
    inner: int
    heads: int
    tokens: int = 8192
    shared: int = 8
    vocab: int = 128256
    gated: bool = True

    @property
    def params(self) -> int:
        """Of the layers."""
        keys = 2 * self.shared * self.size // self.heads
        mlp = (3 if self.gated else 2) * self.inner
        return self.layers * self.size * (2 * self.size + keys + mlp)


MODELS = {
    "8B": Model(32, 4096, 14336, 32), "70B": Model(80, 8192, 28672, 64),
    "405B": Model(126, 16384, 53248, 128),
    "llama2-7B": Model(32, 4096, 11008, 32, 4096, 32, 32000),
    "llama2-13B": Model(40, 5120, 13824, 40, 4096, 40, 32000),
    "llama2-70B": Model(80, 8192, 28672, 64, 4096, 8, 32000),
    "gpt3-5B": Model(24, 4096, 16384, 32, 2048, 32, 51200, gated=False),
    "gpt3-20B": Model(44, 6144, 24576, 48, 2048, 48, 51200, gated=False),
    "gpt3-175B": Model(96, 12288, 49152, 96, 2048, 96, 51200, gated=False),
}  # fmt: skip


class Run(NamedTuple):
    """A published run: tokens a second and GPU, on ``data`` x ``model`` x ``stages`` GPUs, each
    group along ``data`` with so many ``sequences`` in ``micro`` micro-batches, as many as there are
    stages if nothing is said. ``whole``: params are not cut along ``data``."""

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
    micro: int = 0
    whole: bool = False

    @property
    def batches(self) -> int:
        """How many micro-batches it has."""
        return self.micro or self.stages


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


def nemo(
    name: str, published: int, model: str, data: int, batch: int, each: int, *axes: int
) -> Run:
    """A run of NeMo: of so many sequences, and of so many in a micro-batch."""
    own = batch // data
    return Run(name, published, model, "nemo", data, own, *axes, again=0.0, asynchronous=True,
               micro=own // each, whole=True)  # fmt: skip


NEMO_CALIBRATION = nemo("Llama2 7B, 8 GPUs", 16634, "llama2-7B", 8, 128, 1)
NEMO = (
    nemo("GPT3 5B, DP 64", 23574, "gpt3-5B", 64, 2048, 4),
    nemo("GPT3 20B, DP 32, TP 2", 5894, "gpt3-20B", 32, 256, 2, 2),
    nemo("Llama2 13B, DP 4, PP 4", 8715, "llama2-13B", 4, 128, 1, 1, 4, 10),
    nemo("Llama2 70B, DP 4, TP 4, PP 4", 1717, "llama2-70B", 4, 128, 1, 4, 4, 20),
    nemo("GPT3 175B, DP 4, TP 4, PP 8", 745, "gpt3-175B", 4, 256, 1, 4, 8, 6),
    nemo("GPT3 175B, DP 16, TP 4, PP 8", 832, "gpt3-175B", 16, 2048, 2, 4, 8, 6),
)


def layer(m: Model, sequences: int) -> rlx.Graph:
    """A layer, and a sum of what it gives."""
    g, d = rlx.Graph("layer"), m.size // m.heads
    shape = [sequences, m.tokens, m.size]
    x, weights = g.input("x", shape, "bf16"), g.input("g", shape, "bf16")

    def param(name: str, *sizes: int) -> rlx.Value:
        return g.param(name, sizes, "bf16")

    h = x.rms_norm(param("norm1", m.size))
    sizes = {"wq": m.size, "wk": m.shared * d, "wv": m.shared * d}
    q, k, v = (h @ param(n, m.size, s) for n, s in sizes.items())
    h = g.attention(q, k, v, num_heads=m.heads, kv_heads=m.shared, mask_kind="causal")
    x = x + h @ param("wo", m.size, m.size)
    h = x.rms_norm(param("norm2", m.size))
    up = h @ param("up", m.size, m.inner)
    h = (h @ param("gate", m.size, m.inner)).silu() * up if m.gated else up.gelu()
    x = x + h @ param("down", m.inner, m.size)
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
    graph = layer(MODELS[model], data * sequences)
    names = [str(v.name) for v in (*graph.inputs, *graph.params) if v.name != "g"]
    specs = {n: SPECS[n] for n in (*names, "g")}
    mesh, out = rlx.Mesh(data=data, model=tensor), list[P]()
    if backward:
        graph, out = rlx.grad(graph, names), [SPECS[n] for n in names]
    return rlx.shard(graph, mesh, specs, out=out)


def _wide(run: Run) -> str:
    """The rate of products that are not in 8 bits."""
    return "bf16" if run.kind in ("float8", "nemo") else run.kind


def pass_of(run: Run, rate: dict[str, float], *, backward: bool) -> Cost:
    """The same of a micro-batch of a run."""
    each = run.sequences // run.batches
    graph = sharded(run.model, 1 if run.whole else run.data, run.tensor, each, backward=backward)
    networks = {"model": NODE, "data": NODE if run.data * run.tensor <= 8 else NETWORK}
    beside = ("data", "model") if run.asynchronous else ("data",)
    products = rate[_wide(run)]
    attention = {"attention": products, "attention_grad": products}
    roofline = Roofline(rate[run.kind], MEMORY, 1)
    return cost(graph, roofline, networks, rates=attention, beside=beside)


def tokens_a_second(run: Run, rate: dict[str, float]) -> float:
    """Of a GPU."""
    m = MODELS[run.model]
    both, forward = (pass_of(run, rate, backward=b) for b in (True, False))
    # Params are gathered for the backward pass again, and with checkpoints all is computed again.
    again = run.again * (forward.step if run.again == 1.0 else forward.compute)
    if not run.whole:
        both = both._replace(
            exchange={**both.exchange, "data": both.exchange["data"] + forward.exchange["data"]}
        )
    tokens = run.sequences * m.tokens / run.batches / run.tensor
    head = 3 * 2 * m.size * m.vocab * tokens / rate[_wide(run)]
    computed = (m.layers * (both.step + again) + head) / run.stages
    turns = run.parts * run.batches
    bubbles = (run.stages - 1) / (turns + run.stages - 1)
    step = run.batches * computed / (1 - bubbles)
    if run.whole:  # gradients are summed and params gathered once, as bf16
        bytes_each = 2 * m.params / run.tensor / run.stages
        network = NODE if run.data * run.tensor <= 8 else NETWORK
        step = max(step, network.seconds("all_reduce", 2 * bytes_each, run.data))
    return run.batches * tokens / run.stages / step


def calibrated() -> dict[str, float]:
    """The rates of products, by bisection."""
    rate: dict[str, float] = {}
    for run in (*CALIBRATION, NEMO_CALIBRATION):
        low, high = 5e13, 2e15
        while high / low > 1.001:
            rate[run.kind] = (low * high) ** 0.5
            slow = tokens_a_second(run, rate) < run.published
            low, high = (rate[run.kind], high) if slow else (low, rate[run.kind])
    return rate


def main() -> int:
    """Print the table; 1 if a row of one axis is 5 % off or more, or one of more axes 25 %."""
    rate, wrong = calibrated(), 0
    print("rates", {k: f"{v / 1e12:.0f} TFLOP/s" for k, v in rate.items()})
    for run in (*RUNS, *NEMO):
        found = tokens_a_second(run, rate)
        off = found / run.published - 1
        wrong |= abs(off) >= (0.05 if run.tensor * run.stages == 1 else 0.25)
        print(
            f"{run.name:40} published {run.published:5} predicted {found:7.0f} {100 * off:+6.1f} %"
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
