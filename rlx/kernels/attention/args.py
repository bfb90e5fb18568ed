"""The arguments of attention kernels: config, sizes, and the order of buffers.

The emitter and ``launch`` both go by the names here, so that the order of the size arguments and
the plan of the scratch memory are each written once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import gcd
from typing import ClassVar, Literal, NamedTuple, TypeVar

from rlx.base.dims import minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType, f32, f64, i32, i64

__all__ = [
    "Arguments", "AttentionConfig", "AttentionGradConfig", "AttentionGradSizes", "AttentionSizes",
    "MaskKind", "ScoresConfig", "Strides", "Tile", "offsets", "padded", "positions", "size_names",
    "size_values", "tile_for",
]  # fmt: skip

MaskKind = Literal["none", "causal", "window", "custom", "bias"]

Count = TypeVar("Count", int, Reg)


@frozen
class ScoresConfig:
    """What the emitted code of attention and of its gradients depends on.

    ``dtype`` is the element type of all tensors but the mask; ``mask_dtype`` is that of the mask
    and given with ``"custom"`` and ``"bias"`` only.
    """

    dtype: DType = f32
    mask: MaskKind = "none"
    mask_dtype: DType | None = None
    softcap: bool = False

    arrays: ClassVar[tuple[str, ...]]
    """The tensors besides the mask, which comes fourth: each has strides of its own."""
    plan: ClassVar[tuple[str, ...]]
    """The size arguments that are no fact of the call."""

    def __post_init__(self) -> None:
        if (self.mask in ("custom", "bias")) != (self.mask_dtype is not None):
            raise ValueError(f"mask {self.mask!r} does not go with mask_dtype {self.mask_dtype}")
        if self.mask == "bias" and not (self.mask_dtype and self.mask_dtype.is_float):
            raise ValueError(f"a bias is of a float type, not {self.mask_dtype}")
        if not self.dtype.is_float:
            raise ValueError(f"attention is over a float type, not {self.dtype}")

    @property
    def compute(self) -> DType:
        """The type of scores, weights and sums."""
        return f64 if self.dtype is f64 else f32


@frozen
class AttentionConfig(ScoresConfig):
    """The config of attention. ``decode`` asks for the variant that streams the keys once for few
    query rows (see ``decodes``), ``pairs`` for the one that multiplies pairs of bf16 (see
    ``pairs``)."""

    decode: bool = False
    pairs: bool = False

    arrays = ("q", "k", "v", "out")
    # Query blocks (for decode: rows) of a task, tasks of a head, keys of a block.
    plan = ("per_task", "splits", "key_block")


@frozen
class AttentionGradConfig(ScoresConfig):
    """The config of attention's gradients."""

    arrays = ("q", "k", "v", "g", "dq", "dk", "dv")
    plan = ()


class Strides(NamedTuple):
    """Distances in elements between batches, heads and rows. Head dims lie side by side."""

    batch: int
    head: int
    row: int


BROADCAST = Strides(0, 0, 0)


@frozen
class AttentionSizes:
    """One call: q [batch, heads, queries, dim], k and v [batch, key_heads, keys, dim].

    ``mask`` strides are those of a bias [batch, heads, queries, keys], 0 where it broadcasts; of
    a custom mask [batch, keys] only ``mask.batch`` counts. Keys of a mask lie side by side.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dim: int
    scale: float
    q: Strides
    k: Strides
    v: Strides
    out: Strides
    mask: Strides = BROADCAST
    softcap: float = 0.0
    window: int = 0

    def __post_init__(self) -> None:
        least = minimum(self.batch, self.heads, self.key_heads, self.queries, self.keys, self.dim)
        if least < 1 or self.heads % self.key_heads:
            raise ValueError(f"attention has no meaning for these sizes: {self}")


@frozen
class AttentionGradSizes(AttentionSizes):
    """One call of the gradients; ``out`` is how their cotangent lies, ``dq`` and so on they."""

    dq: Strides = BROADCAST
    dk: Strides = BROADCAST
    dv: Strides = BROADCAST

    @property
    def g(self) -> Strides:
        """How the cotangent lies."""
        return self.out


@frozen
class Tile:
    """Register tiles: ``keys`` x ``query_vectors`` of scores, ``rows`` x ``dim_vectors`` of sums.

    ``queries`` is the number of rows that are worked on at a time, side by side in lanes.
    """

    lanes: int
    query_vectors: int
    keys: int
    rows: int
    dim_vectors: int

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return self.lanes * self.query_vectors

    @property
    def columns(self) -> int:
        """Elements of a block along the head's dim."""
        return self.lanes * self.dim_vectors


def tile_for(target: KernelTarget, dt: DType) -> Tile:
    """The largest tiles whose sums, operands and one broadcast fit the target's registers."""
    lanes = target.lanes(dt)
    if target.registers < 32:
        vectors, keys, rows, columns = 2, 6, 4, 2
    elif lanes < 8:
        vectors, keys, rows, columns = 4, 6, 4, 4
    else:
        vectors, keys, rows, columns = 2, 8, 8, 2
    return Tile(lanes, vectors, keys, gcd(rows, lanes * vectors), columns)


def padded(dim: Count, tile: Tile) -> Count:
    """The columns of rows in scratch: whole register tiles."""
    return (dim + (tile.columns - 1)) // tile.columns * tile.columns


def size_names(config: ScoresConfig) -> tuple[str, ...]:
    """The size arguments of a config's kernel, in order."""
    strides = [f"{x}_{s}" for x in config.arrays for s in ("batch", "head", "row")]
    names = [
        "heads",
        "group",
        "queries",
        "keys",
        "dim",
        *float_names("scale"),
        *strides,
        *config.plan,
    ]
    names += [*float_names("softcap")] * config.softcap + ["window"] * (config.mask == "window")
    if config.mask in ("custom", "bias"):
        names += ["mask_batch"] + ["mask_head", "mask_row"] * (config.mask == "bias")
    return tuple(names)


def size_values(config: ScoresConfig, s: AttentionSizes, **plan: int) -> tuple[int, ...]:
    """The values of ``size_names``; ``plan`` gives those that are no fact of the call."""
    values = {
        "heads": s.heads, "group": s.heads // s.key_heads, "queries": s.queries, "keys": s.keys,
        "dim": s.dim, **float_words("scale", s.scale), **float_words("softcap", s.softcap),
        "window": minimum(s.window, 1 << 30), **plan,
    }  # fmt: skip
    for name in (*config.arrays, "mask"):
        strides: Strides = getattr(s, name)
        values |= {f"{name}_{part}": n for part, n in strides._asdict().items()}
    return tuple(values[name] for name in size_names(config))


def float_names(name: str) -> tuple[str, str]:
    """The two size arguments that carry a float."""
    return name, f"{name}_high"


def float_words(name: str, x: float) -> dict[str, int]:
    """A float as size arguments: the lower and the upper half of its f64, since a size may have 32
    bits."""
    return dict(zip(float_names(name), struct.unpack("<ii", struct.pack("<d", x)), strict=True))


def float_of(k: Kernel, words: Mapping[str, Reg], name: str) -> Reg:
    """The f64 that two size arguments carry."""
    low, high = (k.cast(words[n], i64) for n in float_names(name))
    return k.bitcast((low & 0xFFFFFFFF) | (high << 32), f64)


class Arguments:
    """Declares the kernel's arguments; sizes are attributes by their names."""

    heads: Reg
    group: Reg
    queries: Reg
    keys: Reg
    dim: Reg
    key_block: Reg

    def __init__(self, k: Kernel, config: ScoresConfig, names: Sequence[str] | None = None) -> None:
        self._k, self._dt = k, config.compute
        self.q, self.k, self.v = (k.buffer(n, config.dtype) for n in config.arrays[:3])
        self.mask: Buffer | None = (
            k.buffer("mask", config.mask_dtype) if config.mask_dtype else None
        )
        self.rest = {n: k.buffer(n, config.dtype) for n in config.arrays[3:]}
        self._sizes = {name: k.size(name) for name in names or size_names(config)}

    @property
    def out(self) -> Buffer:
        """The result of attention."""
        return self.rest["out"]

    def __getattr__(self, name: str) -> Reg:
        try:
            return self.__dict__["_sizes"][name]
        except KeyError:
            raise AttributeError(name) from None

    def float(self, name: str) -> Reg:
        """A size argument that carries a float, as a scalar of the compute type."""
        return self._k.cast(float_of(self._k, self._sizes, name), self._dt)

    def at(self, name: str, b: Reg, h: Reg, row: Reg | int = 0) -> Reg:
        """Offset of a row of a tensor or the mask, in elements."""
        s = self._sizes
        return b * s[f"{name}_batch"] + h * s[f"{name}_head"] + s[f"{name}_row"] * row


def offsets(lengths: dict[str, Count], zero: Count) -> tuple[dict[str, Count], Count]:
    """Where arrays of these lengths start when they lie one after another, and where they end.

    In elements, on ints or on registers; every array starts at a multiple of 16.
    """
    starts, end = {}, zero
    for name, length in lengths.items():
        starts[name] = end
        end = end + (length + 15) // 16 * 16
    return starts, end


def positions(k: Kernel, first: Reg, lanes: int) -> Reg:
    """``first, first + 1, ...`` as a vector of i32."""
    steps = ", ".join(map(str, range(lanes)))
    iota = k.op(f"arith.constant dense<[{steps}]> : vector<{lanes}xi32>", i32, lanes)
    return k.splat(k.cast(first, i32), lanes) + iota
