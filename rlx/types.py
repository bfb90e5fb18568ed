"""Element types, dims and tensor types: what every level of RLX says about a value.

This is the bottom of the import order: it needs numpy and nothing of RLX but the errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from rlx.base.cached import cached_property
from rlx.base.dims import Dim, SymDim, as_dim, bind_dim, is_known, same_shape
from rlx.base.frozen import frozen
from rlx.errors import DTypeError, ShapeError, did_you_mean, shown

__all__ = [
    "DType",
    "Dim",
    "Offset",
    "Shape",
    "SymDim",
    "TensorType",
    "broadcast_shapes",
    "check_one_type",
    "dtype",
    "promote",
]

Shape = tuple[Dim, ...]
Offset = Dim
"""A number that is computed like a dim, and may be negative."""

MAX_BYTES = 1 << 56
"""The most bytes of a tensor, in the native runtime as well."""
MAX_RANK = 64
"""The most dims of a tensor; NumPy has the same."""


@frozen
class DType:
    """An element type. There is one object per type, so ``is`` and ``==`` agree.

    ``kind`` is one of ``"float"``, ``"float8"``, ``"int"``, ``"uint"``, ``"bool"``, ``"complex"``;
    ``bits`` is the size in memory (a bool takes one byte, a complex number its real and its
    imaginary part); ``long_name`` is the name in NumPy and most other libraries, such as
    ``"float32"``. ``DType.F32`` is ``rlx.f32``, and so on.
    """

    name: str
    kind: str
    bits: int
    long_name: str = ""

    if TYPE_CHECKING:
        F16: ClassVar[DType]
        BF16: ClassVar[DType]
        F32: ClassVar[DType]
        F64: ClassVar[DType]
        I8: ClassVar[DType]
        I16: ClassVar[DType]
        I32: ClassVar[DType]
        I64: ClassVar[DType]
        U8: ClassVar[DType]
        U16: ClassVar[DType]
        U32: ClassVar[DType]
        U64: ClassVar[DType]
        BOOL: ClassVar[DType]
        C64: ClassVar[DType]
        C128: ClassVar[DType]
        F8E4M3FN: ClassVar[DType]
        F8E5M2: ClassVar[DType]

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def bytes(self) -> int:
        """Size of an element in memory."""
        return self.bits // 8

    @cached_property
    def is_float(self) -> bool:
        """Whether it is one of the floating-point types that ops compute in."""
        return self.kind == "float"

    @cached_property
    def is_float8(self) -> bool:
        """Whether it is one of the 8-bit floats: they are stored, moved, compared and cast, and
        nothing is computed in them."""
        return self.kind == "float8"

    @cached_property
    def is_int(self) -> bool:
        """Signed or unsigned integer; a bool is not one."""
        return self.kind in ("int", "uint")

    @cached_property
    def is_complex(self) -> bool:
        """Whether it is one of the complex types."""
        return self.kind == "complex"

    @property
    def part(self) -> DType:
        """The type of the real and of the imaginary part; a real type is its own."""
        return DTYPES[f"f{self.bits // 2}"] if self.is_complex else self

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; that of ml_dtypes for bf16 and the 8-bit floats."""
        return _numpy_dtype(self.long_name)

    def __repr__(self) -> str:
        return f"rlx.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))


# A row per element type, from which other tables derive. Its place in DTYPES is its number in the
# native runtime and in rlx.h.
f16 = DType("f16", "float", 16, "float16")
bf16 = DType("bf16", "float", 16, "bfloat16")
f32 = DType("f32", "float", 32, "float32")
f64 = DType("f64", "float", 64, "float64")
i8 = DType("i8", "int", 8, "int8")
i16 = DType("i16", "int", 16, "int16")
i32 = DType("i32", "int", 32, "int32")
i64 = DType("i64", "int", 64, "int64")
u8 = DType("u8", "uint", 8, "uint8")
u16 = DType("u16", "uint", 16, "uint16")
u32 = DType("u32", "uint", 32, "uint32")
u64 = DType("u64", "uint", 64, "uint64")
bool_ = DType("bool", "bool", 8, "bool")
c64 = DType("c64", "complex", 64, "complex64")
c128 = DType("c128", "complex", 128, "complex128")
f8e4m3fn = DType("f8e4m3fn", "float8", 8, "float8_e4m3fn")
f8e5m2 = DType("f8e5m2", "float8", 8, "float8_e5m2")

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, c64, c128, f8e4m3fn,
        f8e5m2,
    )
}  # fmt: skip
for _name, _type in DTYPES.items():
    setattr(DType, _name.upper(), _type)  # DType.F32, as members of an enumeration are written
FLOATS = tuple(d for d in DTYPES.values() if d.is_float)
INTS = tuple(d for d in DTYPES.values() if d.is_int)
COMPLEX = (c64, c128)
FLOAT8 = (f8e4m3fn, f8e5m2)

AS_BITS = ("bf16", *(d.name for d in FLOAT8))
"""Types that NumPy has from ml_dtypes: it exports no buffer of them, and their bits travel."""

_BY_LONG_NAME = {d.long_name: d for d in DTYPES.values()}


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def dtype(spec: DType | str | Any) -> DType:
    """Return the element type that ``spec`` names: a DType, a name of ours ("f32"), or whatever
    ``numpy.dtype`` takes (``np.float32``, ``"float32"``, ``ml_dtypes.bfloat16``, ``bool``).

    Raises DTypeError for a type that RLX does not have.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in DTYPES:
        return DTYPES[spec]
    try:
        # NumPy takes None for float64.
        name = str(spec) if isinstance(spec, str) or spec is None else np.dtype(spec).name
    except (TypeError, ValueError, OverflowError, RecursionError):
        name = str(spec) if isinstance(spec, type) else shown(spec)
    ours = _BY_LONG_NAME.get(name)
    if ours is None:
        hint = did_you_mean(name, [*DTYPES, *_BY_LONG_NAME])
        raise DTypeError(f"unknown dtype {name!r}{hint}; RLX has {', '.join(DTYPES)}")
    return ours


def check_one_type(op: str, *dtypes: DType) -> None:
    """DTypeError unless the operands of an op all have one element type."""
    for dt in dtypes[1:]:
        if dt is not dtypes[0]:
            raise DTypeError(f"{op} takes operands of one type, found {dtypes[0]} and {dt}")


def promote(a: DType, b: DType) -> DType:
    """The common type of two operands. The rules, all of them:

    equal types stay; bool gives way to anything; two integers follow NumPy, and u64 with a signed
    integer is an error (no integer type holds both); f16 with bf16 gives f32; two other floats
    give the wider; an integer with f64 gives f64; i64 or u64 with a smaller float gives f64; any
    other integer with a smaller float gives f32. A complex type meets another type as its parts
    would: c64 with f32 gives c64, with f64 or i64 it gives c128. An 8-bit float meets bool and its
    own type alone.
    """
    if a is b:
        return a
    if a is bool_ or b is bool_:
        return b if a is bool_ else a
    if a.is_float8 or b.is_float8:
        raise DTypeError(f"{a} and {b} have no common type; cast the 8-bit float first")
    if a.is_complex or b.is_complex:
        return complex_of(promote(a.part, b.part))
    if a.is_int and b.is_int:
        common = np.promote_types(a.numpy, b.numpy)
        if common.kind == "f":
            raise DTypeError(f"{a} and {b} have no common integer type; cast one of them first")
        return dtype(common)
    if a.is_float and b.is_float:
        return f32 if a.bits == b.bits else max(a, b, key=lambda d: d.bits)
    real, whole = (a, b) if a.is_float else (b, a)
    return f64 if f64 is real or whole.bits == 64 else f32


def complex_of(part: DType) -> DType:
    """The complex type whose parts hold a float type: c128 for f64, c64 for the others."""
    return c128 if part is f64 else c64


@frozen
class TensorType:
    """Shape and element type of a value. Rank 0 is a scalar; a dim is an int or a SymDim."""

    __slots__ = ("dtype", "shape")

    shape: Shape
    dtype: DType

    def __reduce__(self) -> tuple[Any, ...]:
        return (TensorType, (self.shape, self.dtype))

    @staticmethod
    def of(shape: Iterable[int | str | SymDim], dt: DType | str | Any = "f32") -> TensorType:
        """A type from loose parts; a string dim is a symbol: ``of(["batch", 384], "f32")``."""
        scalar = isinstance(shape, np.ndarray) and not shape.ndim
        if isinstance(shape, str) or not isinstance(shape, Iterable) or scalar:
            raise ShapeError(f"a shape is a list of dims, found {shape!r}; write [{shape!r}]")
        return TensorType(tuple(as_dim(d) for d in shape), dtype(dt)).addressable()

    @staticmethod
    def new(shape: Iterable[int | str | SymDim], dt: DType | str | Any = "f32") -> TensorType:
        """``of``, as the original calls it."""
        return TensorType.of(shape, dt)

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dim is an int."""
        return all([isinstance(d, int) for d in self.shape])

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints; ShapeError if a dim is still symbolic."""
        unknown = [d for d in self.shape if not isinstance(d, int) and not is_known(d)]
        if unknown:
            raise ShapeError(f"{self} has the symbolic dim {unknown[0]}; bind it with dims={{...}}")
        return cast("tuple[int, ...]", self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        n: Dim = 1
        for d in self.shape:
            n = n * d
        return n

    @property
    def nbytes(self) -> int:
        """Size in bytes of the dense row-major tensor; the shape must be static."""
        n = self.dtype.bytes
        for d in self.static_shape:
            n *= d
        return n

    def addressable(self) -> TensorType:
        """The type itself; ShapeError if it has more bytes or dims than there can be. A dim of 0
        does not make up for others: NumPy counts as if it were 1."""
        n = self.dtype.bytes
        for d in self.shape:
            if isinstance(d, int) and d > 1:
                n *= d
        if n > MAX_BYTES:
            raise ShapeError(f"a tensor {self} has more than 2**56 bytes, the most there can be")
        if len(self.shape) > MAX_RANK:
            raise ShapeError(f"a tensor has at most {MAX_RANK} dims, found {len(self.shape)}")
        return self

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """The type of another shape and the same element type."""
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dt: DType) -> TensorType:
        """The type of the same shape and another element type."""
        return TensorType(self.shape, dt)

    def bind(self, dims: Mapping[str, Dim]) -> TensorType:
        """Replace symbols by their sizes."""
        return TensorType(tuple(bind_dim(d, dims) for d in self.shape), self.dtype)

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype.name])


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The NumPy broadcast of shapes; symbolic dims broadcast only with themselves and with 1."""
    if shapes and all([same_shape(s, shapes[0]) for s in shapes]):
        return shapes[0]
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(rank):
        dim: Dim = 1
        for s in shapes:
            j = i - (rank - len(s))
            d = s[j] if j >= 0 else 1
            # What is surely 1, or the same, needs no decision about sizes.
            if (type(d) is int and d == 1) or same_shape((d,), (dim,)):
                continue
            if type(dim) is int and dim == 1:
                dim = d
                continue
            if d in (1, dim):
                continue
            if dim != 1:
                listed = " and ".join("[" + ", ".join(map(str, s)) + "]" for s in shapes)
                raise ShapeError(f"shapes {listed} do not broadcast: {dim} against {d}")
            dim = d
        out.append(dim)
    return tuple(out)
