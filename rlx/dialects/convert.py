"""Types and attributes between the op classes and MLIR, both ways.

A symbolic tensor type keeps its symbols in the encoding: ``tensor<?x384xf32, ["batch", "384"]>``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rlx._mlir import ir, raw_elements
from rlx.base.dim_text import parse_dim
from rlx.base.dims import SymDim
from rlx.dialects import held
from rlx.errors import DTypeError, IRError
from rlx.ir.attrs import DIMS, OFFSETS, complex_from, parts_of, repeats, words_of
from rlx.ir.mlir_text import ELEMENTS
from rlx.types import AS_BITS, DType, TensorType, dtype

__all__ = [
    "dtype_of",
    "element",
    "forget_types",
    "from_attr",
    "from_type",
    "real_parts",
    "to_attr",
    "to_type",
]


MAX_CONSTANT = 1 << 30
"""Bytes; a splat of any size is a few characters of text."""


def element(dt: DType) -> ir.Type:
    """The MLIR element type: signed integers are signless, unsigned are ``ui``, a bool is i1."""
    if dt.kind == "bool":
        return ir.IntegerType.get_signless(1)
    if dt.kind == "uint":
        return ir.IntegerType.get_unsigned(dt.bits)
    if dt.kind == "int":
        return ir.IntegerType.get_signless(dt.bits)
    if dt.is_complex:
        return ir.ComplexType.get(element(dt.part))
    name = dt.name.replace("f8", "float8", 1) if dt.is_float8 else dt.name
    kind = name.upper().replace("FLOAT", "Float")
    return getattr(ir, f"{kind}Type").get()  # F32Type, BF16Type, Float8E5M2Type


@lru_cache(maxsize=256)
def dtype_of(t: ir.Type) -> DType:
    """The DType of an MLIR element type; DTypeError if RLX has none."""
    dt = ELEMENTS.get(str(t))
    if dt is None:
        raise DTypeError(f"element type {t} is none of {', '.join(ELEMENTS)}")
    return dt


def to_type(t: TensorType) -> ir.RankedTensorType:
    """The MLIR type; the current context's."""
    if t.is_static:
        return ir.RankedTensorType.get(t.shape, element(t.dtype))
    sizes = [d if isinstance(d, int) else ir.ShapedType.get_dynamic_size() for d in t.shape]
    names = ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in t.shape])
    return ir.RankedTensorType.get(sizes, element(t.dtype), encoding=names)


@lru_cache(maxsize=1024)
def from_type(t: ir.Type) -> TensorType:
    """The inverse of ``to_type``; IRError for a dynamic dim without a name, and for no tensor."""
    if not isinstance(t, ir.RankedTensorType):
        raise IRError(f"{t} is no tensor of known rank; write tensor<2x3xf32>")
    ranked = t
    dt = dtype_of(ranked.element_type)
    if ranked.has_static_shape:
        return TensorType(tuple(ranked.shape), dt)
    encoding = ranked.encoding
    listed = list(encoding) if isinstance(encoding, ir.ArrayAttr) else []
    names = [a.value for a in listed if isinstance(a, ir.StringAttr)]
    if len(names) != ranked.rank:
        raise IRError(f'{t} has a dynamic dim without a name; write tensor<?xf32, ["n"]>')
    return TensorType(tuple(parse_dim(n) for n in names), dt)


def forget_types() -> None:
    """Drop the types that ``dtype_of`` and ``from_type`` remember, and with them their contexts."""
    dtype_of.cache_clear()
    from_type.cache_clear()


def to_attr(value: Any, kind: str) -> ir.Attribute:
    """The MLIR attribute of an op attribute of the given kind (see ``rlx.ir.attrs``)."""
    return _WRITE[kind](value)


def from_attr(a: ir.Attribute, kind: str) -> Any:
    """The inverse of ``to_attr``."""
    return _READ[kind](a)


def _i64(v: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), v)


def _write_dims(v: tuple[int | SymDim, ...]) -> ir.Attribute:
    if all(isinstance(d, int) and -(2**63) <= d < 2**63 for d in v):
        return ir.DenseI64ArrayAttr.get(list(v))
    return ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in v])


def _read_dims(a: ir.Attribute) -> tuple[int | SymDim, ...]:
    if isinstance(a, ir.DenseI64ArrayAttr):
        return tuple(ir.DenseI64ArrayAttr(a))
    return tuple(parse_dim(ir.StringAttr(x).value) for x in ir.ArrayAttr(a))


def _write_array(a: np.ndarray[Any, Any]) -> ir.Attribute:
    dt = dtype(a.dtype)
    kind = ir.RankedTensorType.get(a.shape, element(dt))
    if dt.is_complex:
        # The bindings do not know elements that are complex. Brackets tell pairs from reals.
        return ir.ArrayAttr.get([_write_array(parts_of(a))])
    if repeats(a):
        bits = int(words_of(a)[0, 0])
        return ir.DenseElementsAttr.get_splat(kind, _scalar(bits, a.flat[0], dt))
    if (named := held.hold(a, kind)) is not None:
        return named
    if dt.kind == "bool" and a.size:
        return ir.DenseElementsAttr.get([ir.BoolAttr.get(bool(x)) for x in a.flat], kind)
    raw = a.view(f"u{dt.bytes}") if dt.name in AS_BITS else a
    return ir.DenseElementsAttr.get(np.ascontiguousarray(raw), type=kind)


def real_parts(a: ir.Attribute) -> ir.Attribute:
    """The elements of an array, or if it is complex those of its parts, as MLIR's own attribute."""
    if not isinstance(a, ir.ArrayAttr):
        return a
    if len(a) != 1:
        raise IRError(f"a complex array is one array of pairs in brackets, found {len(a)}")
    return a[0]


def _scalar(bits: Any, value: Any, dt: DType) -> ir.Attribute:
    if dt.kind == "bool":
        return ir.BoolAttr.get(bool(value))
    if dt.is_int:
        # The attribute holds the bits; MLIR's constructor wants them as a signed number.
        return ir.IntegerAttr.get(
            element(dt), int(np.asarray(bits).astype(f"u{dt.bytes}").view(f"i{dt.bytes}"))
        )
    if np.isnan(np.float64(value)) or np.isinf(np.float64(value)):
        return ir.Attribute.parse(f"0x{int(bits):0{dt.bytes * 2}X} : {element(dt)}")
    return ir.FloatAttr.get(element(dt), float(value))


def _read_array(a: ir.Attribute) -> np.ndarray[Any, Any]:
    if isinstance(a, ir.ArrayAttr):
        return complex_from(_read_array(real_parts(a)))
    if (kept := held.array_of(a)) is not None:
        return kept
    kind = from_type(ir.DenseElementsAttr(a).type)
    dense, dt = ir.DenseElementsAttr(a), kind.dtype
    shape = kind.static_shape
    if kind.addressable().nbytes > MAX_CONSTANT:
        raise IRError(f"a constant of {kind} takes more than 1 GiB; make it a param, or expand one")
    if dt.name in AS_BITS:
        count = 1 if dense.is_splat else kind.nbytes // dt.bytes
        values = np.frombuffer(raw_elements(dense, count * dt.bytes), dt.numpy)
        out = np.broadcast_to(values, shape) if dense.is_splat and shape else values.reshape(shape)
    else:
        typed = ir.DenseFPElementsAttr(a) if dt.is_float else ir.DenseIntElementsAttr(a)
        out = np.array(typed).astype(dt.numpy, copy=False).reshape(shape)
    out = np.ascontiguousarray(out).reshape(shape)
    out.setflags(write=False)
    return out


_WRITE: dict[str, Any] = {
    "int": _i64,
    "float": lambda v: ir.FloatAttr.get(ir.F64Type.get(), v),
    "bool": ir.BoolAttr.get,
    "str": ir.StringAttr.get,
    "DType": lambda v: ir.TypeAttr.get(element(v)),
    "tuple[int, ...]": lambda v: ir.DenseI64ArrayAttr.get(list(v)),
    DIMS: _write_dims,
    OFFSETS: _write_dims,
    "Array": _write_array,
}
_READ: dict[str, Any] = {
    "int": lambda a: ir.IntegerAttr(a).value,
    "float": lambda a: ir.FloatAttr(a).value,
    "bool": lambda a: ir.BoolAttr(a).value,
    "str": lambda a: ir.StringAttr(a).value,
    "DType": lambda a: dtype_of(ir.TypeAttr(a).value),
    "tuple[int, ...]": lambda a: tuple(ir.DenseI64ArrayAttr(a)),
    DIMS: _read_dims,
    OFFSETS: _read_dims,
    "Array": _read_array,
}
