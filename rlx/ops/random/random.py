"""Random bits: a hash of a counter under a key, the same on every target and at any thread count.

The generator is Threefry-2x32 with 20 rounds (J. K. Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", SC 2011). Keys and counters are laid out as in ``jax.random``, bit for bit, with
its partitionable counters. ``rlx.random`` makes distributions of the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import DimLike, Expand, is_negative, listed
from rlx.ops.pointwise.base import Pointwise
from rlx.types import DTYPES, Dim, DType, SymDim, TensorType, u32, u64

__all__ = ["RandomBits", "Threefry2x32"]

PARITY = 0x1BD11BDA
"""What the third word of the key schedule is, apart from the two of the key."""

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Of the rounds, by fours."""

WIDTHS = (8, 16, 32, 64)

ONE_WORD = 1 << 32
"""Up to so many elements the first word of every counter is 0."""


def threefry2x32(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The two words of a counter, hashed: on u32 arrays or on registers alike."""
    keys = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + k0, x1 + k1
    for n in range(5):
        for r in ROTATIONS[n % 2]:
            x0 = x0 + x1
            x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
        x0 = x0 + keys[(n + 1) % 3]
        x1 = x1 + keys[(n + 2) % 3] + (n + 1)
    return x0, x1


def _check_width(op: Op, bits: int) -> None:
    if bits not in WIDTHS:
        raise GraphError(f"{op.short} gives integers of 8, 16, 32 or 64 bits, found bits={bits}")


class Threefry2x32(Pointwise, name="mir.threefry2x32"):
    """The Threefry-2x32-20 hash of a 64-bit counter under a 64-bit key, all words u32.

    ``bits=64`` gives the two words of the hash as a u64, the first as its high half. Fewer give the
    exclusive or of the words, or its low bits.
    """

    key0: Value = operand("first word of the key")
    key1: Value = operand("second word of the key")
    high: Value = operand("first word of the counter")
    low: Value = operand("second word of the counter")
    bits: int = attr(32, "the width of the result's elements: 8, 16, 32 or 64")

    dtypes = (u32,)
    flops_per_element = 70
    differentiable = False
    samples = (
        *(sample("2x3xT", "2x3xT", "2x3xT", "2x3xT", bits=b) for b in WIDTHS),
        sample("2x1xT", "T", "1x1xT", "2x5xT"),
        sample("T", "T", "0x3xT", "T"),
    )
    bads = (
        bad("i32", "i32", "2xi32", "2xi32", match="takes u32; found i32", error=DTypeError),
        bad("u32", "u32", "2xu32", "3xu32", match="do not broadcast", error=ShapeError),
        bad("u32", "u32", "u32", "u32", match="found bits=12", error=GraphError, bits=12),
    )

    def result_dtype(self) -> DType:
        _check_width(self, self.bits)
        return DTYPES[f"u{self.bits}"]

    def reference(self, key0: Array, key1: Array, high: Array, low: Array) -> Array:
        with np.errstate(over="ignore"):
            words = np.broadcast_arrays(key0, key1, high, low)
            x0, x1 = threefry2x32(*words)
        if self.bits == 64:
            return x0.astype(np.uint64) << np.uint64(32) | x1
        return (x0 ^ x1).astype(self.out.dtype.numpy)

    def scalar(self, k: Any, key0: Any, key1: Any, high: Any, low: Any) -> Any:
        x0, x1 = threefry2x32(key0, key1, high, low)
        if self.bits == 64:
            return (k.cast(x0, u64) << 32) | k.cast(x1, u64)
        return k.cast(x0 ^ x1, self.out.dtype)


class RandomBits(Op, name="mir.random_bits"):
    """Independent, uniformly distributed random unsigned integers.

    Element i, in row-major order, is the hash of i under the key: equal keys give equal bits. Keys
    of shape [..., 2] give a tensor of ``shape`` each: [..., *shape].
    """

    key: Value = operand("the key or keys, u32[..., 2]")
    shape: tuple[Dim, ...] = attr(doc="the shape of what one key gives")
    bits: int = attr(32, "the width of the elements: 8, 16, 32 or 64")

    differentiable = False
    samples = (
        *(sample("2xu32", shape=(3, 5), bits=b) for b in WIDTHS),
        sample("2xu32", shape=()),
        sample("3x2xu32", shape=(2, 4)),
        sample("2xu32", shape=(0, 3)),
    )
    bads = (
        bad("2xi64", match="key is u32, found i64", error=DTypeError, shape=(2,)),
        bad("3xu32", match=r"last axis of 2 words, found \[3\]", error=ShapeError, shape=(2,)),
        bad("u32", match="last axis of 2 words", error=ShapeError, shape=(2,)),
        bad("2xu32", match="found bits=1", error=GraphError, shape=(2,), bits=1),
        bad("2xu32", match="-1", error=ShapeError, shape=(-1,)),
    )

    @classmethod
    def build(cls, key: Value, shape: Iterable[DimLike] | DimLike = (), bits: int = 32) -> Value:
        """``shape`` may be a single dim."""
        single = isinstance(shape, int | np.integer | str | SymDim)
        dims = (shape,) if single else tuple(shape)
        return cls(key, TensorType.of(dims, u32).shape, bits).out

    def infer(self) -> TensorType:
        check_key(self.key, self.short)
        _check_width(self, self.bits)
        if any(is_negative(d) for d in self.shape):
            raise ShapeError(f"random_bits: a dim is not negative, found {listed(self.shape)}")
        return TensorType((*self.key.shape[:-1], *self.shape), DTYPES[f"u{self.bits}"])

    def expand(self) -> Value:
        lead = self.key.shape[:-1]
        k0, k1 = (
            self.key[..., n].reshape((*lead, *[1] * len(self.shape))).expand(self.out.shape)
            for n in (0, 1)
        )
        return Threefry2x32.build(k0, k1, *self._counter(), bits=self.bits)

    def _counter(self) -> tuple[Value, Value]:
        """The number of each element as two words."""
        size = TensorType(self.shape, u32).size
        short = is_known(size) and size <= ONE_WORD
        count = Iota((size,), 0, u32 if short else u64).out.reshape(self.shape)
        count = Expand.build(count, self.out.shape)
        if short:
            return Expand.build(Constant(np.zeros((), np.uint32)).out, self.out.shape), count
        return (count / (1 << 32)).cast(u32), count.cast(u32)

    def factors(self) -> Factors:
        return Factors(self, [[None] * self.key.rank], [[None] * self.out.rank])

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out


def check_key(key: Value, what: str) -> None:
    """Refuse what is no key."""
    if key.dtype is not u32:
        raise DTypeError(
            f"{what}: a key is u32, found {key.dtype}; make one with rlx.random.key or key_data"
        )
    if not key.rank or key.shape[-1] != 2:
        raise ShapeError(f"{what}: a key has a last axis of 2 words, found {listed(key.shape)}")
