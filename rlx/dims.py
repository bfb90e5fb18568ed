"""Symbolic dims: polynomials with integer coefficients over named symbols.

A dim of a shape is an ``int`` or a ``SymDim``. Sums arise from concat, products from reshape, so
a polynomial is enough; equality is structural after normalisation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from rlx.errors import NameError, ShapeError

__all__ = ["Dim", "SymDim", "as_dim", "as_size", "bind_dim", "parse_dim"]

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_FACTOR = r"(?:[A-Za-z_]\w*|[0-9]{1,18})"
_PRODUCT = rf"{_FACTOR}(?:\*{_FACTOR})*"
_SUM = re.compile(rf"[-+]?{_PRODUCT}(?:[-+]{_PRODUCT})*")
Monomial = tuple[str, ...]


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
        for m, c in self.terms:
            for n, d in _terms(other):
                k = tuple(sorted(m + n))
                terms[k] = terms.get(k, 0) + c * d
        return _simplify(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: int) -> Dim:
        return self * -1 + other

    def __floordiv__(self, other: Dim) -> Dim:
        """Exact division by an int or a single product; ShapeError if it does not come out even."""
        div = _terms(other)
        if len(div) == 1:
            (mono, coeff), out = div[0], dict[Monomial, int]()
            for m, c in self.terms:
                rest = list(m)
                for s in mono:
                    if s not in rest:
                        break
                    rest.remove(s)
                else:
                    if c % coeff == 0:
                        out[tuple(rest)] = c // coeff
                        continue
                break
            else:
                return _simplify(out)
        elif self == other:
            return 1
        raise ShapeError(f"cannot tell that {self} divides evenly by {other}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        parts = ["*".join(m) if c == 1 and m else "*".join([str(c), *m]) for m, c in self.terms]
        return "+".join(reversed(parts)).replace("+-", "-")

    __repr__ = __str__


Dim = int | SymDim


def _terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    return d.terms if isinstance(d, SymDim) else (((), d),) if d else ()


def _simplify(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    return kept.get((), 0) if not kept or set(kept) == {()} else SymDim(kept)


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
        raise ShapeError(f"a dim is an int >= 0 or a name, found {d!r}")
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
