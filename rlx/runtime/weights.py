"""Weights: the params of a graph in memory, and what its prologue makes of them.

A graph with symbolic dims becomes an executable for every binding of them. Their prologues are
mostly equal, since params have no symbolic dims: then the executables share one ``Weights``, so
that params are packed once and lie in memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from rlx.base.stored import elements_digest
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.types import AS_BITS, DTYPES

if TYPE_CHECKING:
    from rlx.schedule.plan import Signature

__all__ = ["LARGE", "Code", "Weights", "plain"]

Array = np.ndarray[Any, Any]
LARGE = 32 << 20
"""Bytes of packed memory from which on it is worth a file (``rlx.runtime.cache.packed``): less is
packed in the time of a few calls."""

_loaded: WeakValueDictionary[bytes, _native.Object] = WeakValueDictionary()
"""The objects in use by their bytes: one in several artifacts is mapped once, and so equal kernels
have equal addresses."""

_constants: WeakValueDictionary[str, Array] = WeakValueDictionary()
"""The constants in use by their digests: equal ones of several artifacts lie in memory once."""


class Code:
    """A variant's objects and constants in memory, and the addresses of its kernels."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.constants = [_interned(c) for c in variant.constants]
        loaded = {key: _load(data) for key, data in variant.objects.items()}
        self.objects = list(loaded.values())
        self.addresses = [
            loaded[k.object].symbol(k.symbol) if k.object else 0 for k in variant.kernels
        ]
        self.functions = list[int]()
        if variant.functions:
            from rlx.runtime.host import address_of

            for n, k in enumerate(variant.kernels):
                if not k.object:
                    self.addresses[n] = address_of(variant.functions[k.name])
                    self.functions.append(self.addresses[n])


def _load(data: bytes) -> _native.Object:
    # Two threads may load the same one at once: both are right, and one is kept.
    found = _loaded.get(data)
    return found if found is not None else _loaded.setdefault(data, _native.Object(data))


def _interned(constant: Array) -> Array:
    """The one array that all artifacts use for an equal constant."""
    return _constants.setdefault(_digest(constant), constant)


def _digest(constant: Array) -> str:
    return f"{constant.dtype}{constant.shape}{elements_digest(constant)}"


class _Prologue(NamedTuple):
    """What packed memory depends on besides the values of params. ``constants`` are named by their
    digests; ``words`` are the steps, which launch the kernels at ``addresses``."""

    params: tuple[Signature, ...]
    constants: tuple[str, ...]
    packed_bytes: int
    words: bytes
    addresses: tuple[int, ...]
    packed_params: tuple[bool, ...]

    @staticmethod
    def of(artifact: Artifact, code: Code) -> _Prologue:
        variant = artifact.variant
        return _Prologue(
            tuple((name, dt, tuple(shape)) for name, dt, shape in artifact.params),
            tuple(_digest(c) for c in variant.constants[: variant.prologue_constants]),
            variant.packed_bytes,
            variant.prologue_words,
            tuple(code.addresses[: variant.prologue_kernels]),
            tuple(name in artifact.packed_params for name, _, _ in artifact.params),
        )


class Weights:
    """The params of executables whose prologues are equal. Safe to use from many threads."""

    def __init__(self, prologue: _Prologue, code: Code) -> None:
        self.prologue = prologue
        self.changes = 0  # how often a param was set
        self.code = code  # keeps the objects findable by who comes next
        self.native = _native.Weights(
            objects=code.objects,
            functions=code.functions,
            params=prologue.params,
            constants=[plain(_constants[name]) for name in prologue.constants],
            packed_bytes=prologue.packed_bytes,
            prologue=prologue.words,
            kernels=prologue.addresses,
            packed_params=prologue.packed_params,
        )
        self._index = {name: i for i, (name, _, _) in enumerate(prologue.params)}

    @staticmethod
    def of(artifact: Artifact, code: Code, shared: Sequence[Weights]) -> Weights:
        """The first of ``shared`` that serve the artifact, or new ones without values."""
        prologue = _Prologue.of(artifact, code)
        fitting = (w for w in shared if w.prologue == prologue)
        return next(fitting, None) or Weights(prologue, code)

    @property
    def large(self) -> bool:
        """Whether what is packed is worth a file."""
        return self.prologue.packed_bytes >= LARGE

    def set_param(self, name: str, value: Array) -> None:
        """Bind a param in place; the array must have the declared type and shape, and is kept."""
        self.changes += 1
        self.native.set_param(self._index[name], plain(value))

    def packed(self) -> Array:
        """What the prologue makes of the params, and room behind it: bytes to look at, which stay
        until a param is set."""
        return self.native.packed()


def plain(a: Array) -> Array:
    """bfloat16 and 8-bit floats as their bits: numpy exports no buffer for them. What is no array
    is left alone."""
    dt = getattr(a, "dtype", None)
    # What others registered with numpy first: to have bfloat16 to compare with takes an import.
    if dt is None or dt.isbuiltin != 2 or dt not in _as_bits():
        return a
    return a.view(f"u{dt.itemsize}")


@cache
def _as_bits() -> frozenset[np.dtype[Any]]:
    return frozenset(DTYPES[name].numpy for name in AS_BITS)
