"""Random numbers of many distributions, made of random bits as ``jax.random`` makes them.

The functions are those of ``rlx.random``. Each draws its bits once, under the key that it is given:
two draws need two keys (``split``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.lift import lift
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import DimLike, Expand, axis_of, listed
from rlx.ops.movement.slicing import Concat
from rlx.ops.pointwise.activation import ErfInv
from rlx.ops.pointwise.binary import Maximum, Minimum
from rlx.ops.pointwise.unary import Log
from rlx.ops.random.random import RandomBits, Threefry2x32, check_key
from rlx.ops.reduction.argreduce import ArgMax
from rlx.ops.reduction.sort import Sort
from rlx.types import DType, TensorType, bf16, f16, f32, f64, i32, i64, u32, u64
from rlx.types import dtype as as_dtype

__all__ = [
    "bernoulli", "bits", "categorical", "exponential", "fold_in", "gumbel", "key", "key_data",
    "normal", "permutation", "randint", "split", "truncated_normal", "uniform",
]  # fmt: skip

Number = float | int

_UNIT = {f16: (16, 10), bf16: (8, 7), f32: (32, 23), f64: (64, 52)}
"""The random bits that a float takes, and how many of them become its mantissa."""


# -- keys ----------------------------------------------------------------------------------


def key_data(seed: int) -> Array:
    """The key of a seed as an array u32[2], to be fed: the two halves of the seed in 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise GraphError(f"a seed, or a number to fold in, is an int, found {seed!r}")
    if not -(1 << 63) <= seed < 1 << 64:
        raise GraphError(f"a seed has 64 bits, found {seed}")
    return np.array([(int(seed) >> 32) & 0xFFFFFFFF, int(seed) & 0xFFFFFFFF], np.uint32)


def key(seed: int | Value) -> Value:
    """The key of a seed, u32[2]. A Value is an integer scalar.

    With an int the key is a constant of the graph, and every run draws the same: feed a key, or a
    seed, to draw anew.
    """
    if not isinstance(seed, Value):
        return Constant(key_data(seed)).out
    if not seed.dtype.is_int or seed.rank:
        raise DTypeError(f"a seed is an integer scalar, found {seed.type}")
    signed = seed.dtype.kind == "int"
    return _words(seed.cast(to=i64 if signed else u64).cast(to=u64))


def split(key: Value, num: int = 2) -> Value:
    """``num`` new keys, u32[..., num, 2], of a key u32[..., 2]: use them in its place."""
    check_key(key, "split")
    if num < 0:
        raise GraphError(f"split: a key gives 0 new ones or more, found num={num}")
    counts = Iota((num,), 0, u32).out
    return _words(_hash(key, counts.expand((*key.shape[:-1], num))))


def fold_in(key: Value, data: int | Value) -> Value:
    """A new key u32[..., 2] of a key and a number, such as that of a step or a layer.

    A Value is an integer scalar, or has a number for each key; the low 32 bits count.
    """
    check_key(key, "fold_in")
    if isinstance(data, Value):
        if not data.dtype.is_int or (data.rank and data.shape != key.shape[:-1]):
            raise DTypeError(
                f"fold_in takes an integer scalar, or a number for each key, found {data.type}"
            )
        word = data.cast(to=u32)
    else:
        word = Constant(key_data(data)[1]).out
    lead = key.shape[:-1]
    return _words(_hash(key, word if word.rank else word.expand(lead)))


def _hash(key: Value, low: Value) -> Value:
    """The hash of the counters ``low``, whose shape begins with that of the keys, as u64."""
    lead = key.shape[:-1]
    ones = [1] * (low.rank - len(lead))
    k0, k1 = (key[..., n].reshape((*lead, *ones)).expand(low.shape) for n in (0, 1))
    high = Expand.build(Constant(np.zeros((), np.uint32)).out, low.shape)
    return Threefry2x32.build(k0, k1, high, low, bits=64)


def _words(wide: Value) -> Value:
    """The halves of u64 elements along a new last axis, the high one first."""
    high, low = (w.cast(to=u32).reshape((*w.shape, 1)) for w in (wide / (1 << 32), wide))
    return Concat(high, low, wide.rank).out


# -- numbers -------------------------------------------------------------------------------


def bits(key: Value, shape: Iterable[DimLike] | DimLike = (), width: int = 32) -> Value:
    """Uniformly distributed unsigned integers of 8, 16, 32 or 64 bits."""
    return RandomBits.build(key, shape, width)


def uniform(
    key: Value, shape: Iterable[DimLike] | DimLike = (), dtype: DType | str | Any = "f32",
    minval: Number | Value = 0.0, maxval: Number | Value = 1.0,
) -> Value:  # fmt: skip
    """Floats in [minval, maxval), all equally likely.

    They are minval + n 2^-m (maxval - minval) with n of m random bits, m the mantissa's length. The
    bounds broadcast to the result, and have gradients.
    """
    unit = _unit(key, shape, _float(dtype, "uniform"))
    if not any(isinstance(v, Value) for v in (minval, maxval)) and (minval, maxval) == (0, 1):
        return unit
    low, high = lift(minval, unit), lift(maxval, unit)
    return Maximum.build(low, unit * (high - low) + low)


def _unit(key: Value, shape: Iterable[DimLike] | DimLike, dt: DType) -> Value:
    width, mantissa = _UNIT[dt]
    drawn = RandomBits.build(key, shape, width)
    return (drawn / (1 << (width - mantissa))).cast(to=dt) * 2.0**-mantissa


def normal(
    key: Value, shape: Iterable[DimLike] | DimLike = (), dtype: DType | str | Any = "f32"
) -> Value:
    """Floats of the standard normal distribution: sqrt 2 times erfinv of a uniform number."""
    dt = _float(dtype, "normal")
    least = float(np.nextafter(dt.numpy.type(-1), dt.numpy.type(0)))
    return ErfInv.build(uniform(key, shape, dt, least, 1.0)) * math.sqrt(2.0)


def truncated_normal(
    key: Value,
    lower: Number,
    upper: Number,
    shape: Iterable[DimLike] | DimLike = (),
    dtype: DType | str | Any = "f32",
) -> Value:
    """Floats of the standard normal distribution between two bounds, neither of which is met."""
    dt = _float(dtype, "truncated_normal")
    if not lower < upper:
        raise GraphError(f"truncated_normal: no number lies between {lower} and {upper}")
    ends = [math.erf(v / math.sqrt(2.0)) for v in (lower, upper)]
    drawn = ErfInv.build(uniform(key, shape, dt, *ends)) * math.sqrt(2.0)
    low, high = (dt.numpy.type(v) for v in (lower, upper))
    inner = [
        float(np.nextafter(v, dt.numpy.type(to))) for v, to in ((low, np.inf), (high, -np.inf))
    ]
    return Minimum.build(Maximum.build(drawn, inner[0]), inner[1])


def exponential(
    key: Value, shape: Iterable[DimLike] | DimLike = (), dtype: DType | str | Any = "f32"
) -> Value:
    """Floats of the exponential distribution with rate 1."""
    # 1 - u is exact: u has no more bits than a mantissa.
    return 0.0 - Log.build(1.0 - uniform(key, shape, _float(dtype, "exponential")))


def gumbel(
    key: Value, shape: Iterable[DimLike] | DimLike = (), dtype: DType | str | Any = "f32"
) -> Value:
    """Floats of the standard Gumbel distribution, ``-log(-log u)``."""
    import ml_dtypes  # which takes longer to import than all else here

    dt = _float(dtype, "gumbel")
    least = float(ml_dtypes.finfo(dt.numpy).smallest_normal)
    return -Log.build(-Log.build(uniform(key, shape, dt, least, 1.0)))


def bernoulli(
    key: Value, p: Number | Value = 0.5, shape: Iterable[DimLike] | DimLike | None = None
) -> Value:
    """Bools that are true with probability ``p``, a number or a float tensor that broadcasts to
    ``shape`` (by default p's own)."""
    chance = p if isinstance(p, Value) else Constant(np.asarray(p, np.float32)).out
    dims = chance.shape if shape is None else shape
    return uniform(key, dims, _float(chance.dtype, "bernoulli")).lt(chance)


def randint(
    key: Value,
    shape: Iterable[DimLike] | DimLike,
    minval: int,
    maxval: int,
    dtype: DType | str | Any = "i32",
) -> Value:
    """Integers in [minval, maxval): the remainders of numbers of 64 bits or more, so all of them
    are about equally likely."""
    dt = as_dtype(dtype)
    if not dt.is_int:
        raise DTypeError(f"randint gives integers, found dtype {dt}")
    info = np.iinfo(dt.numpy)
    if not info.min <= minval < maxval <= int(info.max) + 1:
        raise GraphError(
            f"randint: [{minval}, {maxval}) is no range of {dt}, which has [{info.min}, {info.max}]"
        )
    keys, span, width = split(key), maxval - minval, max(dt.bits, 32)
    high, low = (RandomBits.build(keys[..., n, :], shape, width) for n in (0, 1))
    if span == 1 << width:
        offset = low
    else:
        # What 2^width leaves, by its root: the square wraps, as in jax.
        root = (1 << width // 2) % span
        carry = root * root % (1 << width) % span
        offset = _remainder(_remainder(high, span) * carry + _remainder(low, span), span)
    return offset.cast(to=dt) + int(np.asarray(minval).astype(dt.numpy))


def _remainder(x: Value, n: int) -> Value:
    return x - (x / n) * n


def categorical(
    key: Value, logits: Value, axis: int = -1, shape: Sequence[DimLike] | None = None
) -> Value:
    """Indices along ``axis``, each with the probability that softmax gives it, as i64.

    ``shape`` is that of the result: by default the logits' without the axis, and what stands before
    it draws again.
    """
    axis = axis_of(axis, logits.rank, "categorical")
    rest = [d for i, d in enumerate(logits.shape) if i != axis]
    dims = TensorType.of(rest if shape is None else shape, i32).shape
    lead = dims[: len(dims) - len(rest)]
    if list(dims[len(lead) :]) != rest:
        raise GraphError(f"categorical: shape {list(dims)} does not end with {rest}")
    own = dims[len(lead) :]
    place = len(lead) + axis
    noise = gumbel(key, (*lead, *own[:axis], logits.shape[axis], *own[axis:]), logits.dtype)
    return ArgMax.build(noise + logits, place)


def permutation(key: Value, x: int | Value, axis: int = 0) -> Value:
    """The elements along an axis in random order, all orders equally likely; of a number n, those
    of 0 to n - 1 as i64.

    The axis has a length that is known, and there is one key.
    """
    check_key(key, "permutation")
    if key.rank != 1:
        raise ShapeError(f"permutation takes one key, found keys of shape {listed(key.shape)}")
    value = x if isinstance(x, Value) else Iota((x,), 0, i64).out
    axis = axis_of(axis, value.rank, "permutation")
    count = value.shape[axis]
    if not is_known(count):
        raise ShapeError(f"permutation: the length {count} of axis {axis} is not known; bind it")
    order = Iota((count,), 0, i64).out
    # Sorting by random numbers, again while equal ones are likely.
    for _ in range(math.ceil(3 * math.log(max(1, count)) / math.log((1 << 32) - 1))):
        key, drawn = (split(key)[n] for n in (0, 1))
        order = Gather.build(order, Sort(bits(drawn, (count,)), 0, False).results[1], 0)
    return Gather.build(value, order, axis)


def _float(given: Any, what: str) -> DType:
    dt = as_dtype(given)
    if dt not in _UNIT:
        raise DTypeError(f"{what} gives f16, bf16, f32 or f64, found dtype {dt}")
    return dt
