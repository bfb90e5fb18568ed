"""Layers for functions: dataclasses of arrays, which ``rlx.jit`` and ``rlx.grad`` look into.

    model = nn.Sequential((nn.Linear.of(rng, 64, 128), xp.tanh, nn.Linear.of(rng, 128, 10)))

    @rlx.jit
    def loss(model, x, y):
        return model(x).softmax_cross_entropy(y).mean()

    rlx.grad(loss)(model, x, y)          # a model of the same layers, with gradients in it

A model is any dict, list, tuple or dataclass of arrays and layers. ``named_arrays`` gives its
arrays by names, as optimisers take them and files keep them; ``with_arrays`` puts others in their
places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlx.errors import NameError, did_you_mean, no_attribute
from rlx.functions.trees import flatten, rebuild
from rlx.ir.builders import located
from rlx.nn.initial import glorot_uniform, he_normal, normal, zeros
from rlx.nn.layers import Conv2d, Embedding, LayerNorm, Linear, RMSNorm, Sequential

__all__ = [
    "Conv2d",
    "Embedding",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "Sequential",
    "glorot_uniform",
    "he_normal",
    "named_arrays",
    "normal",
    "with_arrays",
    "zeros",
]


@located
def named_arrays(model: Any) -> dict[str, Any]:
    """The arrays of a model by their places in it: ``layers.0.weight``."""
    leaves: list[Any] = []
    tree = flatten(model, leaves)
    return dict(zip(tree.paths(""), leaves, strict=True))


@located
def with_arrays(model: Any, arrays: Mapping[str, Any]) -> Any:
    """The model with other arrays in the places that they are named after; those that are not named
    stay. NameError for a name that is no place of it."""
    known = named_arrays(model)
    for name in arrays:
        if name not in known:
            listed = ", ".join(map(repr, known)) or "none"
            raise NameError(
                f"the model has no array {name!r}{did_you_mean(name, known)}; there are {listed}"
            )
    return rebuild(flatten(model, []), iter([*{**known, **arrays}.values()]))


if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

    def __getattr__(name: str) -> object:
        raise no_attribute(__name__, name, __all__)
