"""Matrix products: linear layers with constant weights and what follows them, and bare products."""

from __future__ import annotations

from typing import Any

from bench.case import Case, Tensor

ROWS = (1, 4, 8, 32, 128, 512, 1024)
LAYERS = {
    "minilm": ((384, 1152, "bias"), (384, 384, "residual"), (384, 1536, "gelu"),
               (1536, 384, "residual")),
    "base": ((768, 2304, "bias"), (768, 768, "residual"), (768, 3072, "gelu"),
             (3072, 768, "residual")),
    "llama": ((2048, 3072, "none"), (2048, 2048, "residual"), (2048, 8192, "silu"),
              (8192, 2048, "residual")),
    "ragged": ((383, 1001, "bias"),),
}  # fmt: skip
"""(K, N, epilogue) of the products of MiniLM's, BERT-base's and a 1B llama's layers."""

QUICK = {(1, 768), (1, 8192), (32, 3072), (77, 1001), (128, 1536), (128, 768), (512, 3072)}
"""(M, N) that a quick run takes, of MiniLM and BERT-base (of the llama, the largest)."""


def build(f: Any, epilogue: str, x: Any, w: Any, b: Any = None, r: Any = None) -> Any:
    """A linear layer with its epilogue."""
    y = f.linear(x, w, b)
    if epilogue in ("gelu", "silu"):
        return getattr(f, epilogue)(y)
    return y + r if epilogue == "residual" else y


def layer(model: str, m: int, k: int, n: int, epilogue: str) -> Case:
    """A product of a model's layer on some rows; the llama has no biases."""
    inputs = {"x": Tensor((m, k))}
    params = {"w": Tensor((k, n), "weight")}
    if model != "llama":
        params["b"] = Tensor((n,))
    if epilogue == "residual":
        inputs["r"] = Tensor((m, n))
    quick = (m, n) in QUICK and (model != "llama" or n == 8192)
    return Case(
        f"{model} {m}x{k}x{n} {epilogue}", lambda f, **t: build(f, epilogue, **t), inputs, params,
        flops=2 * m * k * n, quick=quick, moved=_bytes(m, k, n),
    )  # fmt: skip


def bare(m: int, k: int, n: int) -> Case:
    """A product of two inputs: nothing is packed before."""
    inputs = {"a": Tensor((m, k)), "b": Tensor((k, n), scale=k**-0.5)}
    return Case(
        f"inputs {m}x{k}x{n}", lambda f, a, b: f.matmul(a, b), inputs, flops=2 * m * k * n,
        quick=m == 512, moved=_bytes(m, k, n),
    )  # fmt: skip


def _bytes(m: int, k: int, n: int) -> int:
    return 4 * (m * k + k * n + m * n)


def cases() -> list[Case]:
    """Every layer at every number of rows, ragged ones at 77 too, and square products."""
    found = [
        layer(model, m, *sizes)
        for model, layers in LAYERS.items()
        for m in ((1, 77, 128) if model == "ragged" else ROWS)
        for sizes in layers
    ]
    return found + [bare(n, n, n) for n in (128, 512, 1024)] + [bare(77, 383, 1001)]
