"""Philox, beside Threefry: four words of random bits by one hash of a counter.

Philox-4x32 with 10 rounds (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
2011), with the constants of that paper's Random123 library: cuRAND's, PyTorch's and Triton's on
GPUs. It is made of ordinary ops on u32, which every target has.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import DimLike, zeros
from rlx.ops.random.random import check_key
from rlx.ops.sugar import concat
from rlx.types import SymDim, TensorType, f32, u32

__all__ = ["philox4x32", "philox_bits", "philox_uniform"]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
"""What the words of the key grow by each round: the golden ratio, and the root of 3 less 1."""

ROUNDS = 10


def _halves(m: int, x: Value) -> tuple[Value, Value]:
    """The high and the low word of the product of u32 numbers, by products of 16 bits."""
    m0, m1 = m & 0xFFFF, m >> 16
    x0, x1 = x & 0xFFFF, x >> 16
    middle = x1 * m0 + ((x0 * m0) >> 16)
    carry = x0 * m1 + (middle & 0xFFFF)
    return x1 * m1 + (middle >> 16) + (carry >> 16), x * m


def philox4x32(key: Value, counter: Value) -> Value:
    """The Philox-4x32-10 hash u32[..., 4] of counters u32[..., 4] under a key u32[2], or keys
    [..., 2] of the same leading axes; the least significant word is the first. DTypeError for other
    element types, ShapeError for other shapes."""
    check_key(key, "philox4x32")
    if counter.dtype is not u32:
        raise DTypeError(f"philox4x32: a counter is u32, found {counter.dtype}; cast it")
    if not counter.rank or counter.shape[-1] != 4 or key.shape[:-1] not in ((), counter.shape[:-1]):
        raise ShapeError(
            f"philox4x32: a counter has a last axis of 4 words, and a key each or one for all;"
            f" found {counter.type} and {key.type}"
        )
    k0, k1 = key[..., 0], key[..., 1]
    x0, x1, x2, x3 = (counter[..., i] for i in range(4))
    for n in range(ROUNDS):
        if n:
            k0, k1 = k0 + STEPS[0], k1 + STEPS[1]
        (high0, low0), (high1, low1) = _halves(MULTIPLIERS[0], x0), _halves(MULTIPLIERS[1], x2)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
    return concat([x.unsqueeze(-1) for x in (x0, x1, x2, x3)], axis=-1)


def philox_bits(key: Value, shape: Iterable[DimLike] | DimLike, start: int = 0) -> Value:
    """u32 bits of known dims: element i, in row-major order, is word i % 4 of the hash of the
    counter ``start`` + i // 4 (whose upper two words are 0) under one key u32[2]. GraphError for a
    start that is not in 0 to 2^62, ShapeError for several keys."""
    single = isinstance(shape, int | np.integer | str | SymDim)
    dims = TensorType.of((shape,) if single else tuple(shape), u32).static_shape
    if not 0 <= start <= 1 << 62:
        raise GraphError(f"philox_bits: start is 0 to 2^62, found {start}")
    check_key(key, "philox_bits")
    if key.rank != 1:
        raise ShapeError(f"philox_bits takes one key, found {key.type}")
    size = prod(dims)
    blocks = -(-size // 4)
    low, high = start & 0xFFFFFFFF, start >> 32
    first = Iota((blocks,), 0, u32).out + low
    # Where the low word has wrapped, the next one is greater by 1.
    second = first.lt(low).cast(to=u32) + high
    zero = zeros((blocks,), u32)
    counter = concat([v.unsqueeze(-1) for v in (first, second, zero, zero)], axis=-1)
    return philox4x32(key, counter).reshape([4 * blocks])[:size].reshape(dims)


def philox_uniform(key: Value, shape: Iterable[DimLike] | DimLike, start: int = 0) -> Value:
    """f32 numbers in [0, 1): the upper 24 of ``philox_bits``, times 2^-24. It raises what that
    raises."""
    return (philox_bits(key, shape, start) >> 8).cast(to=f32) * 2.0**-24
