"""Symbolic dims: polynomials with integer coefficients over named symbols.

A dim of a shape is an ``int`` or a ``SymDim``. Sums arise from concat, products from reshape, so
a polynomial is enough; equality is structural after normalisation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from rlx.errors import NameError, ShapeError, shown

__all__ = ["Dim", "LimitError", "SymDim", "as_dim", "as_size", "bind_dim", "parse_dim"]

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_FACTOR = r"(?:[A-Za-z_]\w*|[0-9]{1,18})"
_PRODUCT = rf"{_FACTOR}(?:\*{_FACTOR})*"
_SUM = re.compile(rf"[-+]?{_PRODUCT}(?:[-+]{_PRODUCT})*")
Monomial = tuple[str, ...]
Terms = tuple[tuple[Monomial, int], ...]

DEGREE, TERMS, BITS = 64, 64, 256
"""The most that a polynomial has, so that no file makes one take all memory; a tensor's size is of
its rank's degree."""


class LimitError(ShapeError):
    """A dim would be too large a polynomial."""


class SymDim:
    """A dim that is known only when the graph is compiled or called, such as ``batch*seq + 1``."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted((m, c) for m, c in terms.items() if c))
        self._hash = hash(self.terms)

    @staticmethod
    def symbol(name: str) -> SymDim:
        """The dim that is one symbol; NameError if ``name`` is no identifier."""
        if not _NAME.match(name):
            raise NameError(f"{name!r} is no name for a dim; use letters, digits and underscores")
        return SymDim({(name,): 1})

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        return frozenset(s for m, _ in self.terms for s in m)

    def bind(self, dims: Mapping[str, int]) -> Dim:
        """Replace symbols by sizes; an int once none is left."""
        total: Dim = 0
        for mono, c in self.terms:
            part: Dim = c
            for s in mono:
                part = part * (dims[s] if s in dims else SymDim({(s,): 1}))
            total = total + part
        return total

    def __add__(self, other: Dim) -> Dim:
        terms = dict(self.terms)
        for m, c in _terms(other):
            terms[m] = terms.get(m, 0) + c
        return _simplify(terms)

    def __mul__(self, other: Dim) -> Dim:
        terms: dict[Monomial, int] = {}
        factors = _terms(other)
        _bounded(terms=max(len(self.terms), len(factors)))
        for m, c in self.terms:
            for n, d in factors:
                k = tuple(sorted(m + n))
                terms[k] = terms.get(k, 0) + c * d
        return _simplify(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __sub__(self, other: Dim) -> Dim:
        return (self * -1 + other) * -1  # an unsigned number of NumPy has no negative

    def __rsub__(self, other: int) -> Dim:
        return self * -1 + other

    def __floordiv__(self, other: Dim) -> Dim:
        """Exact division; ShapeError if it does not come out even as polynomials."""
        found = _quotient(self.terms, _terms(other))
        if found is None:
            raise ShapeError(f"cannot tell that {self} divides evenly by {other}")
        return _simplify(found)

    def _unknown(self, *_: object) -> Any:
        """Comparing, ``int(d)`` and sizes of NumPy arrays ask for a number."""
        first = min(self.symbols)
        raise ShapeError(
            f"the dim {self} has no size yet; bind it with dims={{{first!r}: 8}} or"
            f" graph.bind, or compute on the values by ops of the graph"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __index__ = __float__ = _unknown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return SymDim, (dict(self.terms),)  # another process hashes its symbols anew

    def __str__(self) -> str:
        parts = ["*".join(m) if c == 1 and m else "*".join([str(c), *m]) for m, c in self.terms]
        return "+".join(reversed(parts)).replace("+-", "-")

    __repr__ = __str__


Dim = int | SymDim


def _terms(d: Dim) -> Terms:
    if isinstance(d, SymDim):
        return d.terms
    try:
        number = operator.index(d)  # of one of NumPy's integers too
    except TypeError:
        raise ShapeError(f"dims are computed from dims and ints, found {shown(d)}") from None
    return (((), number),) if number else ()


def _simplify(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept or (len(kept) == 1 and () in kept):
        return kept.get((), 0)
    _bounded(max(map(len, kept)), len(kept), max(c.bit_length() for c in kept.values()))
    return SymDim(kept)


def _bounded(degree: int = 0, terms: int = 0, bits: int = 0) -> None:
    if degree > DEGREE or terms > TERMS or bits > BITS:
        raise LimitError(
            f"a dim would be a polynomial of degree {degree}, of {terms} terms, with numbers of"
            f" {bits} bits; a dim has at most degree {DEGREE}, {TERMS} terms and {BITS} bits. Bind"
            " its symbols with dims={...}"
        )


def _quotient(whole: Terms, part: Terms) -> dict[Monomial, int] | None:
    """The polynomial that times ``part`` is ``whole``; None if there is none.

    The leading terms in lexicographic order decide one term of the quotient after the other.
    """
    symbols = sorted({s for m, _ in (*whole, *part) for s in m})
    rest = {tuple(map(m.count, symbols)): c for m, c in whole}
    divisor = sorted(((tuple(map(m.count, symbols)), c) for m, c in part), reverse=True)
    out: dict[Monomial, int] = {}
    while rest and divisor and len(out) <= TERMS:
        at = max(rest)
        powers = tuple(a - b for a, b in zip(at, divisor[0][0], strict=True))
        factor, left = divmod(rest[at], divisor[0][1])
        if left or any(p < 0 for p in powers):
            return None
        out[tuple(s for s, p in zip(symbols, powers, strict=True) for _ in range(p))] = factor
        for m, c in divisor:
            k = tuple(a + b for a, b in zip(powers, m, strict=True))
            rest[k] = rest.get(k, 0) - factor * c
            if not rest[k]:
                del rest[k]
    return None if rest else out


def as_dim(d: int | str | SymDim) -> Dim:
    """An int >= 0, a symbol's name, or a SymDim."""
    if isinstance(d, SymDim):
        return d
    if isinstance(d, str):
        return SymDim.symbol(d)
    try:
        n = -1 if isinstance(d, bool) else operator.index(d)
    except TypeError:
        n = -1
    if n < 0:
        raise ShapeError(f"a dim is an int >= 0 or a name, found {shown(d)}")
    return n


def as_size(name: str, value: Any) -> int:
    """The size that a dim's name is bound to; ShapeError if it is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
        raise ShapeError(f"the size of dim {name!r} is an int >= 0, found {value!r}")
    return value.__index__()


def bind_dim(d: Dim, dims: Mapping[str, int]) -> Dim:
    """Replace the symbols of a dim by sizes; an int stays."""
    return d.bind(dims) if isinstance(d, SymDim) else d


def parse_dim(text: str) -> Dim:
    """The inverse of ``str(dim)``; NameError for text that is none."""
    dense = re.sub(r"\s*([-+*])\s*", r"\1", text)
    if not _SUM.fullmatch(dense):
        raise NameError(f"{text!r} is no dim; write a sum of products such as 2*n+1")
    total: Dim = 0
    for sign, part in re.findall(r"([-+]?)([^-+]+)", dense):
        value: Dim = -1 if sign == "-" else 1
        for factor in part.split("*"):
            value = value * (int(factor) if factor[0].isdigit() else SymDim.symbol(factor))
        total = total + value
    return total
