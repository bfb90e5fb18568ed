"""Products by weights in packed blocks and attention over pages on a device: what an 8B llama has.

A case is a chain of equal layers, each with a weight or a cache of its own, so many that no cache
of the device holds them, and that a launch takes longer than what the host does for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import rlx
from bench.case import Array, Case, Tensor
from bench.device import SHORT, TOLERANCE
from rlx.quant import dequantize
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import u8

SCHEMES = {"q4_0": 4.6, "q8_0": 74.0, "q4_k": 400.0, "q6_k": 1370.0}
"""With about how large a number of random bytes is, but for the scale of its block."""

WEIGHTS = ((4096, 4096), (4096, 14336))
ROWS = {1: ("float32",), 16: ("float32", "float16"), 512: ("float16", "bfloat16")}
"""Rows, and the types in which there are so many."""

LARGE = 512 << 20
"""Bytes of all weights of a case, or of its keys and values."""

SEQUENCES, HEADS, KEY_HEADS, DIM, PAGE = 8, 32, 8, 128, 16
CONTEXTS = (2048, 8192)


@dataclass(frozen=True)
class Layers(Case):
    """A chain of ``count`` layers, whose params have the same values."""

    count: int = 0
    scheme: str = ""

    def values(self) -> dict[str, Array]:
        drawn: dict[Tensor, Array] = {}
        for name, t in self.params.items():
            if t not in drawn:
                drawn[t] = _blocks(self.scheme, t.shape) if self.scheme else t.draw(name)
        return {name: drawn[t] for name, t in self.params.items()}


def _row(scheme: str) -> BlockScheme:
    found = scheme_named(scheme)
    assert isinstance(found, BlockScheme)
    return found


def _blocks(scheme: str, shape: tuple[int, ...]) -> Array:
    """Random blocks of which the rows of a result are about as large as those of x."""
    row, rng = _row(scheme), np.random.default_rng(0)
    count = shape[1] // row.bytes
    blocks = rng.integers(0, 256, (shape[0], count, row.bytes), np.uint8)
    fields, size = blocks.view(row.fields), (count * row.block) ** 0.5 * SCHEMES[scheme]
    for name in {"d", "dmin"} & {*(row.fields.names or ())}:
        drawn = rng.standard_normal(fields[name].shape) / size
        fields[name] = drawn.astype(np.float16)
    return blocks.reshape(shape)


def product(scheme: str, m: int, k: int, n: int, dtype: str) -> Case:
    """Rows through layers of k to n, of which the next takes the first k."""
    row = _row(scheme)
    shape = (n, k // row.block * row.bytes)
    size = shape[0] * shape[1]
    count = max(2, min(64, -(-LARGE // size)))

    def graph(case: Case) -> rlx.Graph:
        g = rlx.Graph(case.name)
        x = g.input("x", (m, k), SHORT[dtype])
        for name in case.params:
            w = g.param(name, shape, u8)
            x = x.dequant_matmul(w, scheme=scheme)[:, :k]
        g.set_outputs([x])
        return g

    def reference(case: Case) -> Array:
        w = next(iter(case.values().values()))
        decoded = dequantize(w[:k], scheme, (k, k)).astype(np.float64)
        x = case.feeds()["x"].astype(np.float64)
        for _ in range(count):
            x = x @ decoded.T
        return x

    moved = count * (size + m * (k + n) * np.dtype(dtype).itemsize)
    return Layers(
        f"{count} of {scheme} {m}x{k}x{n} {SHORT[dtype]}", lambda f, **leaves: None,
        {"x": Tensor((m, k), dtype=dtype)},
        {f"w{i}": Tensor(shape, dtype="uint8") for i in range(count)},
        tolerance=count**0.5 * TOLERANCE[dtype], flops=2.0 * count * m * n * k, moved=moved,
        dtype=SHORT[dtype], own={"graph": graph, "reference": reference}, runtimes=("rlx",),
        quick=n == k and scheme in ("q4_0", "q4_k"), count=count, scheme=scheme,
    )  # fmt: skip


def step(tokens: int, dtype: str) -> Case:
    """A step of decoding of several sequences, each over the same number of tokens."""
    pages, slots, width = tokens // PAGE, SEQUENCES * tokens, KEY_HEADS * DIM
    cache = Tensor((slots, width), dtype=dtype)
    each = 2 * slots * width * np.dtype(dtype).itemsize
    count = max(2, -(-LARGE // each))

    def graph(case: Case) -> rlx.Graph:
        g = rlx.Graph(case.name)
        x = g.input("q", (SEQUENCES, HEADS * DIM))
        table = g.input("table", (SEQUENCES, pages), "i32")
        rows = [g.input(name, (SEQUENCES,), "i32") for name in ("sequence", "positions")]
        for i in range(count):
            kv = [g.param(f"{c}{i}", cache.shape, SHORT[dtype]) for c in "kv"]
            x = g.paged_attention(
                x, kv[0], kv[1], table, rows[0], rows[1], num_heads=HEADS, kv_heads=KEY_HEADS,
                page_size=PAGE, scale=DIM**-0.5,
            )  # fmt: skip
        g.set_outputs([x])
        return g

    def reference(case: Case) -> Array:
        from rlx.ir.interpreter import interpret

        return interpret(graph(case), {**case.feeds(), **case.values()})[0].astype(np.float64)

    return Steps(
        f"{count} of paged {SEQUENCES}x{tokens} {SHORT[dtype]}", lambda f, **leaves: None,
        {
            "q": Tensor((SEQUENCES, HEADS * DIM)), "table": Tensor((SEQUENCES, pages)),
            "sequence": Tensor((SEQUENCES,)), "positions": Tensor((SEQUENCES,)),
        },
        {f"{c}{i}": cache for i in range(count) for c in "kv"},
        tolerance=1e-3, flops=4.0 * count * slots * HEADS * DIM, moved=count * each,
        dtype=SHORT[dtype], own={"graph": graph, "reference": reference}, runtimes=("rlx",),
        quick=tokens == CONTEXTS[0], count=count,
    )  # fmt: skip


@dataclass(frozen=True)
class Steps(Layers):
    """Layers of attention, whose pages lie in any order."""

    def feeds(self) -> dict[str, Array]:
        sequences, pages = self.inputs["table"].shape
        order = np.random.default_rng(0).permutation(sequences * pages)
        return {
            "q": self.inputs["q"].draw("q"),
            "table": order.astype(np.int32).reshape(sequences, pages),
            "sequence": np.arange(sequences, dtype=np.int32),
            "positions": np.full(sequences, pages * PAGE - 1, np.int32),
        }


def products() -> list[Case]:
    """One row to many, of each scheme."""
    return [
        product(scheme, m, *size, dtype)
        for scheme in SCHEMES for m, dtypes in ROWS.items() for dtype in dtypes for size in WEIGHTS
    ]  # fmt: skip


def paged() -> list[Case]:
    """Decoding after some thousands of tokens."""
    return [step(tokens, dtype) for tokens in CONTEXTS for dtype in ("float16", "bfloat16")]
