"""Matrix products: linear layers with constant weights and what follows them, and bare products."""

from __future__ import annotations

from typing import Any

from bench.case import Case, Tensor, padded

ROWS = (1, 4, 8, 32, 128, 512, 1024)
LAYERS = {
    "minilm": ((384, 1152, "bias"), (384, 384, "residual"), (384, 1536, "gelu"),
               (1536, 384, "residual")),
    "base": ((768, 2304, "bias"), (768, 768, "residual"), (768, 3072, "gelu"),
             (3072, 768, "residual")),
    "llama": ((2048, 3072, "none"), (2048, 2048, "residual"), (2048, 8192, "silu"),
              (8192, 2048, "residual")),
    "ragged": ((383, 1001, "bias"), (383, 1001, "gelu")),
    "padded": ((384, 1008, "bias"), (384, 1008, "gelu")),
}  # fmt: skip
"""(K, N, epilogue) of the products of MiniLM's, BERT-base's and a 1B llama's layers, of none that
fills a vector, and of their neighbours."""

OWN_ROWS = {"ragged": (1, 77, 128), "padded": (1, 80, 128)}

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
    neighbour = f"padded {{}}x{{}}x{{}} {epilogue}".format
    return Case(
        f"{model} {m}x{k}x{n} {epilogue}", lambda f, **t: build(f, epilogue, **t), inputs, params,
        flops=2 * m * k * n, quick=quick, moved=_bytes(m, k, n), **padded(neighbour, m, k, n),
    )  # fmt: skip


def bare(m: int, k: int, n: int) -> Case:
    """A product of two inputs: nothing is packed before."""
    inputs = {"a": Tensor((m, k)), "b": Tensor((k, n), scale=k**-0.5)}
    name = "inputs {}x{}x{}".format
    return Case(
        name(m, k, n), lambda f, a, b: f.matmul(a, b), inputs, flops=2 * m * k * n,
        quick=m == 512, moved=_bytes(m, k, n), **padded(name, m, k, n),
    )  # fmt: skip


def _bytes(m: int, k: int, n: int) -> int:
    return 4 * (m * k + k * n + m * n)


def cases() -> list[Case]:
    """Every layer at every number of rows, and products of inputs."""
    found = [
        layer(model, m, *sizes)
        for model, layers in LAYERS.items()
        for m in OWN_ROWS.get(model, ROWS)
        for sizes in layers
    ]
    sizes = ((77, 383, 1001), (80, 384, 1008))
    return found + [bare(n, n, n) for n in (128, 512, 1024)] + [bare(*s) for s in sizes]
