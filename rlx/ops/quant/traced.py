"""A decoder of blocks, traced: what it does to NumPy's arrays becomes ops of the graph.

Decoders of ``rlx.quant`` are written for arrays. A ``Traced`` is a Value that takes part in them:
NumPy hands its ufuncs and functions over to it. Element types meet as in NumPy, and every step is
an op that is exact, so that the ops give the decoder's bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Reshape
from rlx.ops.sugar import concat
from rlx.quant.scheme import BlockScheme
from rlx.types import dtype, f32

__all__ = ["Traced", "traced_blocks"]

_UFUNCS: dict[Any, Callable[[Value, Value], Value]] = {
    np.add: lambda a, b: a + b,
    np.subtract: lambda a, b: a - b,
    np.multiply: lambda a, b: a * b,
    np.bitwise_and: lambda a, b: a & b,
    np.bitwise_or: lambda a, b: a | b,
    np.left_shift: lambda a, b: a << b,
    np.right_shift: lambda a, b: a >> b,
    np.not_equal: lambda a, b: a.ne(b),
}


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A Value where a decoder has an array."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.dtype = value.dtype.numpy
        self.shape: tuple[Any, ...] = value.shape

    def reshape(self, *sizes: Any) -> Traced:
        """One size may be -1."""
        shape = list(sizes[0] if isinstance(sizes[0], tuple) else sizes)
        if -1 in shape:
            known = math.prod([d for d in shape if d != -1])
            shape[shape.index(-1)] = math.prod(self.shape) // known
        return Traced(Reshape.build(self.value, shape))

    def astype(self, kind: Any) -> Traced:
        """In another element type, which holds every number that there is."""
        return Traced(self.value.cast(to=dtype(np.dtype(kind))))

    def view(self, kind: Any) -> Traced:
        """Words as the floats that their bits are."""
        return Traced(float_of_bits(self.value, np.dtype(kind)))

    def __getitem__(self, key: Any) -> Traced:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at, given = keys.index(Ellipsis), sum(k is not None for k in keys) - 1
            keys[at : at + 1] = [slice(None)] * (len(self.shape) - given)
        taken = self.value[tuple(k for k in keys if k is not None)]
        shape, sizes = [], iter(taken.shape)
        for k in keys:
            shape.append(1 if k is None else next(sizes))
        return Traced(Reshape.build(taken, [*shape, *sizes]))

    def entries_of(self, table: Any) -> Traced:
        """The entries of a table by code."""
        return Traced(Gather.build(Constant(table).out, self.value, 0))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce":
            (x,), axis = inputs, kwargs.get("axis", 0)
            parts = [x.value.narrow(axis, i, 1) for i in range(x.shape[axis])]
            out = parts[0]
            for p in parts[1:]:
                out = _UFUNCS[ufunc](out, p)
            return Traced(out.squeeze(axis))
        if ufunc is np.negative:
            return Traced(-self.value)
        a, b = self._alike(*inputs)
        return Traced(_UFUNCS[ufunc](a, b))

    def _alike(self, *inputs: Any) -> list[Value]:
        """Values of the element type in which NumPy computes."""
        plain = [x.dtype if isinstance(x, Traced) else x for x in inputs]
        kind = np.result_type(*plain)
        return [
            x.astype(kind).value if isinstance(x, Traced) else Constant(np.asarray(x, kind)).out
            for x in inputs
        ]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _FUNCTIONS[func](*args, **kwargs)


def _concatenate(parts: list[Traced], axis: int = 0) -> Traced:
    return Traced(concat([p.value for p in parts], axis=axis))


def _where(condition: Traced, yes: Any, no: Any) -> Traced:
    chosen = condition if condition.dtype == np.bool_ else condition != 0
    a, b = chosen._alike(yes, no)
    return Traced(chosen.value.where(a, b))


def _repeat(x: Traced, count: int, axis: int) -> Traced:
    return Traced(x.value.repeat(count, axis))


def _unpackbits(x: Traced, axis: int, bitorder: str) -> Traced:
    assert axis == -1 and bitorder == "little"
    bits = x.reshape(*x.shape, 1) >> np.arange(8, dtype=np.uint8) & np.uint8(1)
    return bits.reshape(*x.shape[:-1], -1)


_FUNCTIONS: dict[Any, Callable[..., Traced]] = {
    np.concatenate: _concatenate,
    np.where: _where,
    np.repeat: _repeat,
    np.unpackbits: _unpackbits,
}


def float_of_bits(words: Value, kind: np.dtype[Any]) -> Value:
    """f32 of u16 words that are f16, or of u32 words that are f32: whole numbers times powers of
    two, which is exact."""
    bits, mantissa, bias = (16, 10, 15) if kind.itemsize == 2 else (32, 23, 127)
    top = (1 << (bits - 1 - mantissa)) - 1
    exponents = np.maximum(np.arange(top + 1), 1) - (bias + mantissa)
    powers = np.ldexp(np.float32(1), exponents)
    hidden = np.full(top + 1, 1 << mantissa, np.uint32)
    hidden[0], powers[top] = 0, np.inf
    wide = Traced(words.cast(to=dtype("u32")))
    exponent = wide >> mantissa & top
    fraction = wide & ((1 << mantissa) - 1)
    size = (fraction | exponent.entries_of(hidden)).astype(np.float32)
    size = size * exponent.entries_of(powers)
    nan = ((exponent + 1) >> (bits - 1 - mantissa)) * fraction
    size = _where(nan, np.float32(np.nan), size)
    return _where(wide >> (bits - 1), -size, size).value


def traced_blocks(scheme: BlockScheme, packed: Value) -> Value:
    """f32 ``[n, elements]`` of blocks u8 ``[n, bytes]``."""
    found: Any = scheme.decode(_fields(packed, scheme.fields))
    return found.value.cast(to=f32)


def _fields(data: Value, fields: np.dtype[Any]) -> Any:
    """The fields of blocks, the last axis of data."""
    lead = data.shape[:-1]
    out: dict[str, Any] = {}
    assert fields.fields is not None
    for name, (kind, offset, *_) in fields.fields.items():
        raw = data[..., offset : offset + kind.itemsize]
        base, shape = kind.subdtype or (kind, ())
        raw = Reshape.build(raw, [*lead, *shape, base.itemsize])
        out[name] = _fields(raw, base) if base.fields else Traced(_number(raw, base))
    return out


def _number(raw: Value, kind: np.dtype[Any]) -> Value:
    """Numbers of their bytes, the last axis, the lowest one first."""
    if kind.itemsize == 1:
        return (
            raw.squeeze(-1).cast(to=dtype(kind))
            if kind.kind == "u"
            else _signed(raw.squeeze(-1), 8)
        )
    word = dtype(f"u{8 * kind.itemsize}")
    wide = raw.cast(to=word)
    out = wide.narrow(-1, 0, 1)
    for i in range(1, kind.itemsize):
        out = out | wide.narrow(-1, i, 1) << np.array(8 * i, word.numpy)
    out = out.squeeze(-1)
    if kind.kind == "f":
        return float_of_bits(out, kind)
    return out if kind.kind == "u" else _signed(out, 8 * kind.itemsize)


def _signed(words: Value, bits: int) -> Value:
    """The signed numbers of two's complement."""
    wide = words.cast(to=dtype("i32"))
    return (wide - (wide >> (bits - 1) << bits)).cast(to=dtype(f"i{bits}"))
