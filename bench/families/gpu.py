"""The cases of a run on a GPU (``--device``), in f16 and bf16: products, attention, the step of a
decoder, BERT-base and MiniLM, and what the device reaches at best."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bench.case import Array, Case, Tensor
from bench.device import in_type, some_rows
from bench.families import bert, llama, minilm

TYPES = ("float16", "bfloat16")

LIMIT_BYTES, LIMIT_SIZE = 256 << 20, 8192
"""What is copied, and the size of the square product, to find what the device reaches."""

SQUARES = (64, 512, 1024, 2048, 4096, 8192)
ROWS = (1, 16, 128, 2048)
LAYERS = ((768, 3072, "gelu"), (4096, 4096, "none"), (4096, 14336, "silu"))
"""(K, N, epilogue) of linear layers: BERT-base's, and an 8B llama's."""

TOKENS, HEADS = 16384, 16
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
"""Of attention, on batches of as many tokens in all."""

PAST = (512, 4096, 16384)
"""Tokens in the cache of a decoder."""

LIBRARIES = ("rlx", "torch", "inductor", "inductor_graphs", "numpy", "jax")
BARE = (*LIBRARIES, "cublas")


# -- products ------------------------------------------------------------------------------


def square(n: int, dtype: str) -> Case:
    """The product of two matrices, as cuBLAS has it."""
    case = Case(
        f"inputs {n}x{n}x{n}", lambda f, a, b: f.matmul(a, b),
        {"a": Tensor((n, n)), "b": Tensor((n, n), scale=n**-0.5)},
        flops=2 * n**3, quick=n in (512, 4096), runtimes=BARE,
        checked=lambda y: y[some_rows(n)], own={"reference": _some_of_product},
    )  # fmt: skip
    return in_type(case, dtype, moved=3 * n * n * 2)


def _some_of_product(case: Case) -> Array:
    a, b = (x.astype(np.float64) for x in case.feeds().values())
    return a[some_rows(len(a))] @ b


def linear(m: int, k: int, n: int, epilogue: str, dtype: str) -> Case:
    """A layer with constant weights."""

    def build(f: Any, x: Any, w: Any, b: Any) -> Any:
        y = f.linear(x, w, b)
        return y if epilogue == "none" else getattr(f, epilogue)(y)

    case = Case(
        f"layer {m}x{k}x{n} {epilogue}", build, {"x": Tensor((m, k))},
        {"w": Tensor((k, n), "weight"), "b": Tensor((n,))},
        flops=2 * m * k * n, quick=m in (16, 2048) and n == 3072, runtimes=LIBRARIES,
    )  # fmt: skip
    return in_type(case, dtype, moved=2 * (m * k + k * n + n + m * n))


def gemm() -> list[Case]:
    """Square products, and layers from one row to many."""
    layers = [linear(m, *size, dt) for dt in TYPES for size in LAYERS for m in ROWS]
    return [square(n, dt) for dt in TYPES for n in SQUARES] + layers


# -- attention -----------------------------------------------------------------------------


def heads(batch: int, count: int, tokens: int, dim: int, causal: bool, dtype: str) -> Case:
    """Self-attention; a causal one counts half of the scores."""
    shape = (batch, count, tokens, dim)
    rows = some_rows(tokens)

    def reference(case: Case) -> Array:
        q, k, v = (x.astype(np.float64) for x in case.feeds().values())
        out = np.empty((batch, count, len(rows), dim))
        for at in np.ndindex(batch, count):
            scores = q[at][rows] @ k[at].T * dim**-0.5
            if causal:
                scores[np.arange(tokens) > rows[:, None]] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[at] = weights @ v[at] / weights.sum(-1, keepdims=True)
        return out

    case = Case(
        f"{batch}x{count} heads of {dim}, {tokens}{' causal' if causal else ''}",
        lambda f, q, k, v: f.attention(q, k, v, causal), {n: Tensor(shape) for n in "qkv"},
        flops=4 * batch * count * tokens**2 * dim / (2 if causal else 1),
        quick=causal and tokens in (512, 4096), runtimes=LIBRARIES,
        checked=lambda y: y[:, :, rows], own={"reference": reference},
    )  # fmt: skip
    return in_type(case, dtype, moved=8 * math.prod(shape))


def attention() -> list[Case]:
    """From 512 to 16384 tokens of a text."""
    return [
        heads(TOKENS // n, HEADS, n, 64, causal, dt)
        for dt in TYPES for n in LENGTHS for causal in (False, True)
    ]  # fmt: skip


# -- models --------------------------------------------------------------------------------


def decode() -> list[Case]:
    """One token through a block of a 1B llama after others."""
    found = []
    for dt in TYPES:
        for past in PAST:
            case = replace(llama.case(1, past), runtimes=LIBRARIES, quick=past == 512)
            tensors = (*case.inputs.values(), *case.params.values())
            moved = 2 * sum(math.prod(t.shape) for t in tensors)
            found.append(in_type(case, dt, moved=moved))
    return found


def bert_base() -> list[Case]:
    """The whole encoder on one text, and on several of equal length."""
    cases = [replace(bert.encoder(n), runtimes=LIBRARIES, quick=n == 128) for n in (128, 384)]
    return [in_type(case, dt) for dt in TYPES for case in cases]


class Encoder(minilm.MiniLM):
    """MiniLM without a mask."""

    def feeds(self) -> dict[str, Array]:
        return {"ids": Case.feeds(self)["ids"] + 1000}

    def values(self) -> dict[str, Array]:
        found = super().values()
        return {n: found[n].astype(t.numpy) for n, t in self.params.items()}


def encoder(batch: int, tokens: int) -> Case:
    """MiniLM's published weights: ids to normalised embeddings."""
    hidden, layers = minilm.HIDDEN, minilm.LAYERS
    params = {
        "words": Tensor((minilm.VOCAB, hidden)), "places": Tensor((512, hidden)),
        "norm_g": Tensor((hidden,), "gain"), "norm_b": Tensor((hidden,)),
    }  # fmt: skip
    for i in range(layers):
        params |= bert.layer_params(hidden, 4 * hidden, f"l{i}_")

    def build(f: Any, ids: Any, **p: Any) -> Any:
        x = f.gather(p["words"], ids) + p["places"][:tokens]
        x = f.layer_norm(x, p["norm_g"], p["norm_b"], bert.EPS)
        for i in range(layers):
            x = bert.layer(f, x, p, minilm.HEADS, f"l{i}_")
        mean = x.sum(1) * (1 / tokens)
        return mean / ((mean * mean).sum(-1)[:, None]) ** 0.5

    flops = 2 * tokens * 12 * hidden**2 + 4 * tokens**2 * hidden
    return Encoder(
        f"{batch}x{tokens}", build, {"ids": Tensor((batch, tokens), "ids", 19000)}, params,
        flops=batch * layers * flops, quick=(batch, tokens) == (8, 128), runtimes=LIBRARIES,
    )  # fmt: skip


def mini_lm() -> list[Case]:
    """From one short sentence to a large batch."""
    shapes = ((1, 16), (1, 128), (8, 128), (64, 128))
    return [in_type(encoder(*shape), dt) for dt in TYPES for shape in shapes]


# -- the device ----------------------------------------------------------------------------


def limits() -> list[Case]:
    """A copy, and a large product in each type: what any of the libraries reaches."""
    n = LIMIT_BYTES // 4
    negated = Case(
        f"-x, {LIMIT_BYTES >> 20} MiB", lambda f, x: -x, {"x": Tensor((n,))}, quick=True,
        runtimes=LIBRARIES, moved=2 * LIMIT_BYTES, dtype="f32",
    )  # fmt: skip
    return [negated, *(replace(square(LIMIT_SIZE, dt), quick=True) for dt in TYPES)]
