"""The training steps of ``bench train``: shapes of weights, a batch of data, and the settings.

Weights are a dict by name; an update is plain SGD on the mean cross entropy of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CASES", "Case", "Transformer"]

LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Transformer:
    """A stack of blocks over token and position embeddings.

    A decoder normalises before each part and is causal; an encoder normalises after it, and its
    tokens' mean is classified. ``classes`` counts what a position, or a text, may be.
    """

    layers: int
    width: int
    heads: int
    inner: int
    vocab: int
    positions: int
    classes: int
    decoder: bool

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weights; matrices are [in, out]."""
        e, f = self.width, self.inner
        layer = {
            "wq": (e, e), "bq": (e,), "wk": (e, e), "bk": (e,), "wv": (e, e), "bv": (e,),
            "wo": (e, e), "bo": (e,), "gamma1": (e,), "beta1": (e,), "w1": (e, f), "b1": (f,),
            "w2": (f, e), "b2": (e,), "gamma2": (e,), "beta2": (e,),
        }  # fmt: skip
        found = {"words": (self.vocab, e), "places": (self.positions, e)}
        found |= {f"{i}.{n}": s for i in range(self.layers) for n, s in layer.items()}
        return found | {"gamma": (e,), "beta": (e,), "head": (e, self.classes)}


@dataclass(frozen=True)
class Case:
    """A model and the shape of its batch."""

    kind: str
    batch: tuple[int, ...]
    transformer: Transformer | None = None

    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Weights to start from: the same for every library."""
        rng = np.random.default_rng(3)
        return {name: _initial(name, shape, rng) for name, shape in self._shapes().items()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self.transformer is not None:
            return self.transformer.shapes()
        if self.kind == "mlp":
            return {"w1": (64, 128), "b1": (128,), "w2": (128, 10), "b2": (10,)}
        return {
            "w1": (32, 1, 3, 3), "b1": (32,), "w2": (64, 32, 3, 3), "b2": (64,),
            "w3": (64 * 4 * 4, 10), "b3": (10,),
        }  # fmt: skip

    def data(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """A batch: images or token ids, and labels."""
        rng = np.random.default_rng(4)
        t = self.transformer
        if t is None:
            shape = (*self.batch, 64) if self.kind == "mlp" else (*self.batch, 1, 8, 8)
            return rng.random(shape, np.float32), rng.integers(0, 10, self.batch)
        ids = rng.integers(0, t.vocab, self.batch)
        return ids, rng.integers(0, t.classes, self.batch if t.decoder else self.batch[:1])


def _initial(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    short = name.rpartition(".")[2]
    if short.startswith("gamma"):
        return np.ones(shape, np.float32)
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    inputs = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
    scale = 0.05 if short in ("words", "places") else inputs**-0.5
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


CASES = {
    "mlp": Case("mlp", (128,)),
    "cnn": Case("cnn", (64,)),
    "decoder": Case(
        "transformer",
        (8, 128),
        Transformer(4, 256, 4, 1024, 2048, 128, 2048, decoder=True),
    ),
    "minilm": Case(
        "transformer",
        (8, 64),
        Transformer(6, 384, 12, 1536, 30522, 512, 2, decoder=False),
    ),
}
"""By name: digits through an MLP, and through a CNN; a decoder at 8 x 128 tokens; an encoder of
the size of MiniLM-L6 at 8 x 64."""
