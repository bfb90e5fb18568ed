"""Attributes of ops as text, both ways: a row for each kind of ``rlx.ir.attrs``."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite, prod
from typing import Any

import numpy as np

from rlx.base.dim_text import parse_dim
from rlx.base.dims import Dim
from rlx.errors import IRError
from rlx.ir.attrs import DIMS, OFFSETS, complex_from, parts_of
from rlx.ir.mlir_text import ELEMENTS, dims_text, element_text, quoted, type_text, unquoted
from rlx.text.scanner import STRING, Scanner
from rlx.types import DType, TensorType, dtype

__all__ = ["array_text", "read_array", "read_attr", "read_string", "read_type", "write_attr"]

Array = np.ndarray[Any, Any]

LISTED = 32
"""Elements that are written one by one; a larger array is written as its bytes."""

_STRING = re.compile(STRING)
_INT = re.compile(r"[-+]?[0-9]{1,19}(?![\w.])")
_FLOAT = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_ELEMENT = re.compile(r"true|false|0x[0-9A-Fa-f]+|[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_NAME = re.compile(r"complex<\w+>|\w+")
_DIM = re.compile(r"([0-9]{1,18}|\?)x")


# -- scalars -------------------------------------------------------------------------------


def read_string(s: Scanner, what: str = "a string in quotes") -> str:
    """Take a string in quotes."""
    at = s.skip()
    text = s.take(_STRING, what)
    try:
        return unquoted(text)
    except ValueError:
        raise s.error(f"the string {text} has an escape that there is not", at) from None


def _read_int(s: Scanner) -> int:
    value = int(s.take(_INT, "an integer"))
    if s.accept(":"):
        s.expect("i64")
    return value


def _read_bool(s: Scanner) -> bool:
    if s.accept("true"):
        return True
    s.expect("false")
    return False


def _read_float(s: Scanner) -> float:
    at = s.skip()
    text = s.take(_FLOAT, "a float")
    if s.accept(":"):
        s.expect("f64")
    return float(_elements(s, [(text, at)], DTYPE_F64)[0])


def _float_text(value: float) -> str:
    bits = np.float64(value).view(np.uint64)
    return f"{_element_text(bits, DTYPE_F64)} : f64"


def _read_dtype(s: Scanner) -> DType:
    at = s.skip()
    name = s.take(_NAME, "an element type")
    if name not in ELEMENTS:
        raise s.error(f"element type {name} is none of {', '.join(ELEMENTS)}", at)
    return ELEMENTS[name]


# -- lists of integers and dims ------------------------------------------------------------


def _ints_text(values: tuple[int, ...]) -> str:
    return f"array<i64{': ' if values else ''}{', '.join(map(str, values))}>"


def read_ints(s: Scanner, element: str = "i64") -> tuple[int, ...]:
    """Take ``array<i64: 1, 2>``."""
    s.expect("array")
    s.expect("<")
    s.expect(element)
    values: list[int] = []
    if s.accept(":"):
        values.append(int(s.take(_INT, "an integer")))
        while s.accept(","):
            values.append(int(s.take(_INT, "an integer")))
    s.expect(">")
    return tuple(values)


def _dims_attr_text(dims: tuple[Dim, ...]) -> str:
    ints = tuple(d for d in dims if isinstance(d, int))
    return _ints_text(ints) if len(ints) == len(dims) else dims_text(dims)


def _read_dims(s: Scanner) -> tuple[Dim, ...]:
    return _read_names(s) if s.accept("[") else read_ints(s)


def _read_names(s: Scanner) -> tuple[Dim, ...]:
    """The rest of ``["n", "2*n"]``."""
    dims: list[Dim] = []
    while not s.accept("]"):
        if dims:
            s.expect(",")
        dims.append(parse_dim(read_string(s, "a dim in quotes")))
    return tuple(dims)


def read_type(s: Scanner) -> TensorType:
    """Take a tensor type: the inverse of ``type_text``."""
    if not s.accept("tensor"):
        raise s.expected("a type such as tensor<2x3xf32>")
    s.expect("<")
    at, sizes = s.skip(), list[int | None]()
    while found := _DIM.match(s.text, s.at):
        sizes.append(None if found[1] == "?" else int(found[1]))
        s.at = found.end()
    dt = _read_dtype(s)
    named: tuple[Dim, ...] = ()
    if s.accept(","):
        s.expect("[")
        named = _read_names(s)
    s.expect(">")
    if named and len(named) != len(sizes):
        raise s.error(f"{len(sizes)} dims have {len(named)} names", at)
    dims = tuple(d if i is None else i for i, d in zip(sizes, named or sizes, strict=True))
    if any(d is None for d in dims):
        raise s.error('a dim ? has no name; write tensor<?xf32, ["n"]>', at)
    return TensorType(tuple(d for d in dims if d is not None), dt)


# -- arrays --------------------------------------------------------------------------------

DTYPE_F64 = dtype("f64")


def array_text(a: Array) -> str:
    """An array: its elements in brackets, or the one that all are, or its bytes; each exactly. A
    complex one is the array of its parts, in brackets."""
    dt = dtype(a.dtype)
    if dt.is_complex:
        return f"[{array_text(parts_of(a))}]"
    kind = type_text(TensorType(a.shape, dt))
    bits = np.ascontiguousarray(a).reshape(-1).view(f"u{dt.bytes}")
    if a.size and (bits == bits[0]).all():
        body = _element_text(bits[0], dt)
    elif a.size <= LISTED:
        body = _nested([_element_text(b, dt) for b in bits], a.shape) if a.size else ""
    else:
        little = bits.astype(bits.dtype.newbyteorder("<"), copy=False)
        body = f'"0x{little.tobytes().hex().upper()}"'
    return f"dense<{body}> : {kind}"


def _nested(elements: list[str], shape: tuple[int, ...]) -> str:
    for n in reversed(shape):
        elements = [f"[{', '.join(elements[i : i + n])}]" for i in range(0, len(elements), n)]
    return elements[0]


def _element_text(bits: Any, dt: DType) -> str:
    """One element by its bits: a float exactly, by hexadecimal digits if it is not finite."""
    if dt.kind == "bool":
        return "true" if bits else "false"
    value = np.asarray(bits).view(dt.numpy)[()]
    if not (dt.is_float or dt.is_float8):
        return str(int(value))
    with np.errstate(invalid="ignore"):  # of a signaling nan
        number = float(value)
    if not isfinite(number):
        return f"0x{int(bits):0{dt.bytes * 2}X}"
    # As few digits as give the same bits, also through the double that MLIR reads them as.
    short = str(value)
    if np.asarray(float(short)).astype(dt.numpy).view(bits.dtype) != bits:
        short = repr(number)
    mantissa, e, exponent = short.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"


def read_array(s: Scanner) -> Array:
    """Take ``dense<...> : tensor<...>``: the inverse of ``array_text``."""
    at = s.skip()
    if s.accept("["):
        found = read_array(s)
        s.expect("]")
        try:
            return complex_from(found)
        except IRError as e:
            raise s.error(e.message, at) from None
    s.expect("dense")
    s.expect("<")
    raw: str | None = None
    words: list[tuple[str, int]] = []
    shape: tuple[int, ...] | None = None  # none if one element stands for all
    start = s.skip()
    if s.text.startswith('"', start):
        raw = read_string(s)
    elif s.text.startswith("[", start):
        words, shape = _read_nested(s)
    elif not s.text.startswith(">", start):
        words = [(s.take(_ELEMENT, "an element"), start)]
    s.expect(">")
    s.expect(":")
    t = read_type(s)
    if not t.is_static:
        raise s.error(f"the elements of {type_text(t)} have no fixed number", at)
    size = prod(t.static_shape)
    if raw is None:
        if shape not in (None, t.shape) or (not words and size):
            raise s.error(f"{type_text(t)} has elements of shape {list(shape or (0,))}", at)
        bits = _elements(s, words, t.dtype).view(f"u{t.dtype.bytes}")
    else:
        bits = _from_bytes(s, raw, t, at)
    try:
        full = bits if bits.size == size else np.full(size, bits[0])
    except (MemoryError, ValueError):
        raise s.error(f"{type_text(t)} does not fit into memory", at) from None
    return full.view(t.dtype.numpy).reshape(t.static_shape)


def _from_bytes(s: Scanner, text: str, t: TensorType, at: int) -> Array:
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise s.error("the elements are no hexadecimal digits", at) from None
    if len(data) not in (t.nbytes, t.dtype.bytes):
        raise s.error(f"{type_text(t)} has {t.nbytes} bytes, found {len(data)}", at)
    found = np.frombuffer(data, f"<u{t.dtype.bytes}").astype(f"u{t.dtype.bytes}")
    if t.dtype.kind == "bool" and (found > 1).any():
        raise s.error("a bool is the byte 00 or 01", at)
    return found


def _read_nested(s: Scanner) -> tuple[list[tuple[str, int]], tuple[int, ...]]:
    """Elements in brackets within brackets, with their places, and their shape."""
    words: list[tuple[str, int]] = []
    counts: list[int] = []  # of the open brackets
    shape: dict[int, int] = {}  # by depth
    while True:
        at = s.skip()
        if s.accept("["):
            counts.append(0)
            continue
        words.append((s.take(_ELEMENT, "an element"), at))
        counts[-1] += 1
        if shape.setdefault(-1, len(counts)) != len(counts):
            raise s.error(f"the element stands in {len(counts)} brackets, others do not", at)
        while s.accept("]"):
            depth, n = len(counts), counts.pop()
            if shape.setdefault(depth, n) != n:
                raise s.error(f"a list has {n} elements, another one {shape[depth]}")
            if not counts:
                return words, tuple(shape[d] for d in range(1, shape[-1] + 1))
            counts[-1] += 1
        s.expect(",")


def _elements(s: Scanner, words: list[tuple[str, int]], dt: DType) -> Array:
    """Words as elements of a type; IRError for one that is none."""
    out = np.empty(len(words), f"u{dt.bytes}")
    for i, (word, at) in enumerate(words):
        try:
            out[i] = _bits(word, dt)
        except (ValueError, OverflowError):
            raise s.error(f"{word} is no {dt}", at) from None
    return out.view(dt.numpy)


def _bits(word: str, dt: DType) -> int:
    """The bits of a word as an unsigned number; ValueError or OverflowError if it is no ``dt``."""
    if dt.kind == "bool":
        return ("false", "true").index(word)
    if word.startswith("0x"):
        if not (dt.is_float or dt.is_float8) or len(word) != 2 + 2 * dt.bytes:
            raise ValueError
        return int(word, 16)
    if not (dt.is_float or dt.is_float8):
        return int(np.asarray(int(word), dt.numpy).view(f"u{dt.bytes}"))
    with np.errstate(over="ignore"):
        value = np.asarray(float(word)).astype(dt.numpy)
    if not isfinite(float(value)):
        raise OverflowError
    return int(value.view(f"u{dt.bytes}"))


# -- attributes ----------------------------------------------------------------------------

_WRITE: dict[str, Callable[[Any], str]] = {
    "int": lambda v: f"{v} : i64",
    "float": _float_text,
    "bool": lambda v: str(v).lower(),
    "str": quoted,
    "DType": element_text,
    "tuple[int, ...]": _ints_text,
    DIMS: _dims_attr_text,
    OFFSETS: _dims_attr_text,
    "Array": array_text,
}
_READ: dict[str, Callable[[Scanner], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "str": read_string,
    "DType": _read_dtype,
    "tuple[int, ...]": read_ints,
    DIMS: _read_dims,
    OFFSETS: _read_dims,
    "Array": read_array,
}


def write_attr(value: Any, kind: str) -> str:
    """The text of an attribute of a kind."""
    return _WRITE[kind](value)


def read_attr(s: Scanner, kind: str) -> Any:
    """Take an attribute of a kind: the inverse of ``write_attr``."""
    return _READ[kind](s)
