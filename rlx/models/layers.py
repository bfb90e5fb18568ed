"""What encoders are made of, whatever their family."""

from __future__ import annotations

from rlx.ir.graph import Graph
from rlx.ir.value import Value

__all__ = ["ACTIVATIONS", "dense", "first_token", "pooled"]

# Hugging Face's names of activations, and the ops that they mean.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_approx",
    "gelu_fast": "gelu_approx",
    "gelu_pytorch_tanh": "gelu_approx",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def dense(g: Graph, at: str, x: Value, outputs: int, *, bias: bool = True) -> Value:
    """A linear layer of a checkpoint, whose weight is ``[out, in]``, on rows ``[batch, in]``."""
    weight = g.param(f"{at}weight", [outputs, x.shape[-1]])
    y = x @ weight.transpose((1, 0))
    return y + g.param(f"{at}bias", [outputs]) if bias else y


def pooled(x: Value, mask: Value, pooling: str, *, normalize: bool) -> Value:
    """One vector of each text's states, by "mean" or "cls"; of length 1 if ``normalize``."""
    found = _mean(x, mask) if pooling == "mean" else first_token(x)
    return _unit_length(found) if normalize else found


def _mean(x: Value, mask: Value) -> Value:
    """The mean over the tokens that are there; zeros where there is none."""
    batch, tokens = mask.shape
    weight = mask.cast(to="f32").reshape((batch, tokens, 1))
    return (x * weight).sum(axes=1) / weight.sum(axes=1).maximum(1e-9)


def first_token(x: Value) -> Value:
    """The state of each text's first token."""
    batch, _, width = x.shape
    return x.slice((0, 0, 0), (batch, 1, width)).reshape((batch, width))


def _unit_length(x: Value) -> Value:
    return x / (x * x).sum(axes=-1, keep_dim=True).sqrt().maximum(1e-12)
