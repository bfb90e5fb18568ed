"""Symbolic dims: integer expressions over named sizes.

A dim of a shape is an ``int`` or a ``SymDim``. Sums arise from concat, products from reshape,
quotients from strides, minima from slices: an expression is a polynomial with integer coefficients
over atoms, which are symbols and the quotients, minima and maxima that are no polynomials
(``rlx.base.dim_atoms``). Equality is structural after normalisation; while a graph is lowered for
sizes at hand, comparisons are decided for these (``rlx.base.guards``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from rlx.base import guards
from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.base.dim_bounds import bounds, least
from rlx.base.remembered import Remembered
from rlx.errors import ShapeError, shown

__all__ = [
    "Dim",
    "LimitError",
    "SymDim",
    "TakesDims",
    "as_dim",
    "as_size",
    "as_sizes",
    "at_least",
    "bind_dim",
    "ceil_div",
    "choose",
    "exact_quotient",
    "floor_div",
    "is_known",
    "maximum",
    "minimum",
    "same_shape",
    "surely_differ",
    "surely_less",
]

Monomial = tuple[Atom, ...]
Terms = tuple[tuple[Monomial, int], ...]

DEGREE, TERMS, BITS, DEPTH, WEIGHT = 64, 64, 256, 16, 512
"""The most that an expression has, so that no file makes one take all memory; a tensor's size is of
its rank's degree. ``WEIGHT`` counts the atoms, those inside others included."""
_LARGE = 1 << BITS


class LimitError(ShapeError):
    """A dim would be too large an expression."""


class TakesDims:
    """A value of code that is being written, which takes dims as operands: its own operators say
    what arithmetic of both is."""

    __slots__ = ()


class SymDim:
    """A dim that is known only when the graph is compiled or called, such as ``batch*seq + 1``."""

    __slots__ = ("_hash", "depth", "terms", "weight")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [term for term in terms.items() if term[1]]
        if len(kept) > 1:
            kept.sort()
        self.terms = tuple(kept)
        self._hash = hash(self.terms)
        depth = weight = 0
        for mono, _ in kept:
            for atom in mono:
                weight += atom.weight
                depth = max(depth, atom.depth)
        self.depth, self.weight = depth, weight

    @staticmethod
    def symbol(name: str, least: int = 0, most: int | None = None) -> SymDim:
        """The dim that is one symbol, of a size from ``least`` to ``most``; NameError if ``name``
        is no identifier, ShapeError for a range that is none."""
        return SymDim({(Symbol(name, least, most),): 1})

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        return frozenset(s.name for s in self.leaves())

    def leaves(self) -> set[Symbol]:
        """Its symbols, with their ranges."""
        return {s for m, _ in self.terms for a in m for s in a.leaves()}

    @property
    def lone(self) -> Symbol | None:
        """The symbol that the dim is, if it is nothing else."""
        if len(self.terms) == 1:
            mono, c = self.terms[0]
            if c == 1 and len(mono) == 1 and isinstance(mono[0], Symbol):
                return mono[0]
        return None

    @property
    def line(self) -> tuple[str, int, int] | None:
        """Of a dim such as ``2*n + 1`` the symbol, its factor and the number; None for others."""
        number = dict(self.terms).get((), 0)
        rest = [(m, c) for m, c in self.terms if m]
        if len(rest) != 1 or len(rest[0][0]) != 1 or not isinstance(rest[0][0][0], Symbol):
            return None
        return rest[0][0][0].name, rest[0][1], number

    def solved(self, size: int) -> tuple[str, int] | None:
        """The symbol of a dim such as ``2*n + 1``, and what it is, rounded down, where the dim has
        a size; None for any other dim."""
        if self.line is None:
            return None
        name, factor, number = self.line
        return name, max((size - number) // factor, 0)

    def bind(self, dims: Mapping[str, Dim]) -> Dim:
        """Replace symbols by sizes, or by other dims; an int once none is left. ShapeError for a
        size outside its symbol's range, and for a division by zero."""
        total: Dim = 0
        for mono, c in self.terms:
            part: Dim = c
            for atom in mono:
                part = part * _bound(atom, dims)
            total = total + part
        return total

    # -- arithmetic ------------------------------------------------------------------------

    def __add__(self, other: Dim) -> Dim:
        if type(other) is int:
            return self._shifted(other)
        if not isinstance(other, _DIMS):
            return _outside(self, other, operator.add)
        terms = dict(self.terms)
        for m, c in _terms(other):
            terms[m] = terms.get(m, 0) + c
        return _simplify(terms)

    def __mul__(self, other: Dim) -> Dim:
        if type(other) is int:
            return self if other == 1 else self._scaled(other)
        if not isinstance(other, _DIMS):
            return _outside(self, other, operator.mul)
        terms: dict[Monomial, int] = {}
        factors = _terms(other)
        _bounded(terms=max(len(self.terms), len(factors)))
        for m, c in self.terms:
            for n, d in factors:
                k = tuple(sorted(m + n)) if m and n else m + n
                terms[k] = terms.get(k, 0) + c * d
        return _simplify(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    # Most arithmetic is with numbers, which leaves the order of the terms as it is.

    def _scaled(self, factor: int) -> Dim:
        return self._of([(m, c * factor) for m, c in self.terms]) if factor else 0

    def _shifted(self, number: int) -> Dim:
        mono, c = self.terms[0] if self.terms else ((), 0)
        if mono:
            return self._of([((), number), *self.terms]) if number else self
        left = self.terms[1:]
        return self._of([((), c + number), *left] if c + number else left)

    def _of(self, terms: Sequence[tuple[Monomial, int]]) -> Dim:
        """The dim of terms in order whose monomials are its own, but for a number."""
        if not terms or not terms[-1][0]:
            return terms[0][1] if terms else 0
        made = SymDim.__new__(SymDim)
        made.terms = tuple(terms)
        made._hash, made.depth, made.weight = hash(made.terms), self.depth, self.weight
        _checked_terms(made)
        return made

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        if type(other) is int:
            return self._shifted(-other)
        if not isinstance(other, _DIMS):
            return _outside(self, other, operator.sub)
        terms = dict(self.terms)
        for m, c in _terms(other):
            terms[m] = terms.get(m, 0) - c
        return _simplify(terms)

    def __rsub__(self, other: int) -> Dim:
        return self * -1 + other

    def __floordiv__(self, other: Dim) -> Dim:
        """The quotient, rounded down; ShapeError for a divisor of 0. ``exact_quotient`` is for
        what must come out even."""
        if isinstance(other, TakesDims):
            return NotImplemented
        return floor_div(self, _checked(other))

    def __rfloordiv__(self, other: int) -> Dim:
        return floor_div(_checked(other), self)

    def __mod__(self, other: Dim) -> Dim:
        """What a division that is rounded down leaves; it is written by the quotient."""
        if isinstance(other, TakesDims):
            return NotImplemented
        return self - (self // other) * other

    def __rmod__(self, other: int) -> Dim:
        return _checked(other) - floor_div(_checked(other), self) * self

    def __divmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[Dim, Dim]:
        return _checked(other) // self, _checked(other) % self

    def __truediv__(self, other: Any) -> float:
        """A fraction is a number for good, as ``int(d)`` is."""
        return guards.size_of(self) / float(other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other) / guards.size_of(self)

    def __abs__(self) -> Dim:
        return maximum(self, -self)

    # -- decisions -------------------------------------------------------------------------

    def __lt__(self, other: Dim) -> bool:
        if isinstance(other, TakesDims):
            return NotImplemented
        return not guards.at_least_zero(self - other, self)

    def __le__(self, other: Dim) -> bool:
        if isinstance(other, TakesDims):
            return NotImplemented
        return guards.at_least_zero(other - self, self)

    def __gt__(self, other: Dim) -> bool:
        if isinstance(other, TakesDims):
            return NotImplemented
        return not guards.at_least_zero(other - self, self)

    def __ge__(self, other: Dim) -> bool:
        if isinstance(other, TakesDims):
            return NotImplemented
        return guards.at_least_zero(self - other, self)

    def __bool__(self) -> bool:
        return not guards.is_zero(self, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymDim):
            if self.terms == other.terms:
                return True
        elif not isinstance(other, int):
            return False
        deciding = guards.deciding()
        return deciding is not None and deciding.equal(self, other)

    def __hash__(self) -> int:
        return self._hash

    def bit_length(self) -> int:
        """That of its size, which then lies between two powers of 2."""
        return guards.bit_length(self)

    def __index__(self) -> int:
        return guards.size_of(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(guards.size_of(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _parsed, (str(self),)  # another process hashes its symbols anew

    def __str__(self) -> str:
        parts = [_product(m, c) for m, c in self.terms]
        return "+".join(reversed(parts)).replace("+-", "-")

    __repr__ = __str__


Dim = int | SymDim
D = TypeVar("D", int, Dim)
"""Functions of ints give ints."""
_DIMS = (SymDim, int)


def _outside(d: SymDim, other: Any, op: Callable[[Any, Any], Any]) -> Any:
    """Arithmetic with what is neither a dim nor an int: what it gives is no dim any more, but for
    an integer of NumPy's."""
    if isinstance(other, TakesDims):
        return NotImplemented
    if isinstance(other, float) and guards.deciding() is not None:
        return op(guards.size_of(d), other)
    number: Any = other
    return op(d, _checked(number))


def _parsed(text: str) -> Dim:
    from rlx.base.dim_text import parse_dim

    return parse_dim(text)


def _product(mono: Monomial, c: int) -> str:
    if not mono:
        return str(c)
    if c == 1 and len(mono) == 1:
        return mono[0].key
    parts = [a.key if a.is_factor else f"({a.key})" for a in mono]
    return "*".join(parts if c == 1 else [str(c), *parts])


def _checked(d: Dim) -> Dim:
    """A dim, or an integer of NumPy's as an int; ShapeError for anything else."""
    if isinstance(d, SymDim) or type(d) is int:
        return d
    try:
        return operator.index(d)
    except TypeError:
        raise ShapeError(f"dims are computed from dims and ints, found {shown(d)}") from None


def _terms(d: Dim) -> Terms:
    d = _checked(d)
    return d.terms if isinstance(d, SymDim) else (((), d),) if d else ()


def _simplify(terms: Mapping[Monomial, int]) -> Dim:
    found = SymDim(terms)
    kept = found.terms
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    _checked_terms(found)
    return found


def _checked_terms(d: SymDim) -> None:
    """LimitError for a dim of too many or too large terms."""
    kept = d.terms
    for mono, c in kept:
        if len(mono) > DEGREE or not -_LARGE < c < _LARGE:
            _bounded(len(mono), len(kept), c.bit_length())
    if len(kept) > TERMS or d.depth > DEPTH or d.weight > WEIGHT:
        _bounded(terms=len(kept), depth=d.depth, weight=d.weight)


def _bounded(
    degree: int = 0, terms: int = 0, bits: int = 0, depth: int = 0, weight: int = 0
) -> None:
    if degree > DEGREE or terms > TERMS or bits > BITS:
        raise LimitError(
            f"a dim would be a polynomial of degree {degree}, of {terms} terms, with numbers of"
            f" {bits} bits; a dim has at most degree {DEGREE}, {TERMS} terms and {BITS} bits. Bind"
            " its symbols with dims={...}"
        )
    if depth > DEPTH or weight > WEIGHT:
        raise LimitError(
            f"a dim would have {weight} symbols, quotients, minima and maxima, {depth} of them"
            f" inside one another; a dim has at most {WEIGHT}, and {DEPTH} inside one another."
            " Bind its symbols with dims={...}"
        )


def _bound(atom: Atom, dims: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return atom.checked(dims[atom.name]) if atom.name in dims else SymDim({(atom,): 1})
    assert isinstance(atom, Call)
    args = [bind_dim(a, dims) for a in atom.args]
    return _REBUILT[atom.kind](*args)


# -- division ------------------------------------------------------------------------------


def exact_quotient(whole: Dim, part: Dim) -> Dim:
    """``whole // part`` where that comes out even whatever the sizes are; ShapeError where it may
    not."""
    whole, part = _checked(whole), _checked(part)
    if isinstance(whole, int) and isinstance(part, int):
        found = None if not part or whole % part else whole // part
    else:
        even = _quotient(_terms(whole), _terms(part))
        found = None if even is None else _simplify(even)
    if found is None:
        raise ShapeError(f"cannot tell that {whole} divides evenly by {part}")
    return found


def _quotient(whole: Terms, part: Terms) -> dict[Monomial, int] | None:
    """The polynomial that times ``part`` is ``whole``; None if there is none.

    The leading terms in lexicographic order decide one term of the quotient after the other.
    """
    atoms = sorted({s for m, _ in (*whole, *part) for s in m})
    rest = {tuple(map(m.count, atoms)): c for m, c in whole}
    divisor = sorted(((tuple(map(m.count, atoms)), c) for m, c in part), reverse=True)
    out: dict[Monomial, int] = {}
    if not divisor:
        return None
    while rest and len(out) <= TERMS:
        at = max(rest)
        powers = tuple(a - b for a, b in zip(at, divisor[0][0], strict=True))
        factor, left = divmod(rest[at], divisor[0][1])
        if left or any(p < 0 for p in powers):
            return None
        out[tuple(s for s, p in zip(atoms, powers, strict=True) for _ in range(p))] = factor
        for m, c in divisor:
            k = tuple(a + b for a, b in zip(powers, m, strict=True))
            rest[k] = rest.get(k, 0) - factor * c
            if not rest[k]:
                del rest[k]
    return None if rest else out


def floor_div(whole: Dim, part: Dim) -> Dim:
    """The quotient, rounded down; ShapeError for a divisor of 0."""
    if isinstance(part, int) and not part:
        raise ShapeError(f"the dim {whole} is divided by zero")
    if isinstance(whole, int) and isinstance(part, int):
        return whole // part
    key = _terms(whole), _terms(part)
    if (found := _quotients.get(key)) is None:
        found = _quotients[key] = _floor_div(_checked(whole), _checked(part))
    return found


_quotients: Remembered[tuple[Terms, Terms], Dim] = Remembered()


def _floor_div(whole: Dim, part: Dim) -> Dim:
    even = _quotient(_terms(whole), _terms(part))
    if even is not None:
        return _simplify(even)
    if isinstance(part, int):
        return floor_div(-whole, -part) if part < 0 else _floor_by(whole, part)
    return _floor_by_dim(whole, part)


def _floor_by(whole: Dim, part: int) -> Dim:
    """By a number above 0: what comes out even is taken out, then common factors."""
    found = {m: _toward_zero(c, part) for m, c in _terms(whole)}
    rest = whole - _simplify({m: c * part for m, c in found.items()})
    quotient = _simplify(found)
    if isinstance(rest, int):
        return quotient + rest // part
    if _leading(rest) < 0:  # one form for -(-n // 4) and (n + 3) // 4
        return quotient - _floor_by(-rest + (part - 1), part)
    fixed = dict(rest.terms).get((), 0)
    factor = math.gcd(part, *(c for m, c in rest.terms if m))
    if factor > 1:
        # A number that is no multiple of the common factor changes nothing of the quotient.
        rest = _quotient(_terms(rest - fixed), (((), factor),))
        assert rest is not None
        return quotient + _floor_by(_simplify(rest) + fixed // factor, part // factor)
    if (inner := _inner_quotient(rest)) is not None:
        below, by, more = inner
        return quotient + _floor_by(below + more * by, by * part)
    low, high = bounds(rest)
    if low >= 0 and high < part:
        return quotient
    return quotient + _call("//", rest, part)


def _toward_zero(c: int, part: int) -> int:
    return -(-c // part) if c < 0 else c // part


def _leading(d: Dim) -> int:
    """The coefficient of the term that is written first."""
    return _terms(d)[-1][1]


def _inner_quotient(d: SymDim) -> tuple[Dim, int, int] | None:
    """(a, b, c) of a dim a//b + c whose b is a number."""
    rest = [(m, c) for m, c in d.terms if m]
    if len(rest) != 1 or rest[0][1] != 1 or len(rest[0][0]) != 1:
        return None
    atom = rest[0][0][0]
    if not isinstance(atom, Call) or atom.kind != "//" or not isinstance(atom.args[1], int):
        return None
    return atom.args[0], atom.args[1], dict(d.terms).get((), 0)


def _floor_by_dim(whole: Dim, part: SymDim) -> Dim:
    """By a dim: terms that it divides are taken out, then common factors."""
    if _within(whole, part):
        return 0
    taken: dict[Monomial, int] = {}
    if len(part.terms) == 1:
        for m, c in _terms(whole):
            if (even := _quotient(((m, c),), part.terms)) is not None:
                for k, n in even.items():
                    taken[k] = taken.get(k, 0) + n
    quotient = _simplify(taken)
    rest = whole - quotient * part
    if isinstance(rest, int) and not rest:
        return quotient
    terms = (*_terms(rest), *part.terms)
    common = list(terms[0][0])
    for m, _ in terms[1:]:
        common = [a for i, a in enumerate(common) if common[: i + 1].count(a) <= m.count(a)]
    if common:
        shared = ((tuple(common), 1),)
        over, under = (_quotient(_terms(d), shared) for d in (rest, part))
        assert over is not None and under is not None
        return quotient + floor_div(_simplify(over), _simplify(under))
    if _within(rest, part):
        return quotient
    return quotient + _call("//", rest, part)


def _within(rest: Dim, part: SymDim) -> bool:
    return least(rest) >= 0 and least(part - rest) >= 1


def ceil_div(whole: D, part: D) -> D:
    """The quotient, rounded up."""
    return -(-whole // part)


# -- minima and maxima ---------------------------------------------------------------------


def minimum(*dims: D) -> D:
    """The least of dims, as a dim; unlike ``min`` it decides nothing."""
    return _extreme("min", dims)


def maximum(*dims: D) -> D:
    """The greatest of dims, as a dim; unlike ``max`` it decides nothing."""
    return _extreme("max", dims)


def at_least(a: D, b: D) -> D:
    """1 if a dim is another one or more, else 0: as a dim, so that nothing is decided."""
    return minimum(1, maximum(0, a - b + 1))


def choose(flag: D, yes: D, no: D) -> D:
    """``yes`` where a dim that is 0 or 1 is 1, else ``no``."""
    return no + (yes - no) * flag


def _extreme(kind: str, dims: tuple[Dim, ...]) -> Any:
    pick = min if kind == "min" else max
    if all([type(d) is int for d in dims]):
        return pick(dims)
    key = kind, tuple([_terms(d) for d in dims])
    if (found := _extremes.get(key)) is None:
        found = _extremes[key] = _symbolic_extreme(kind, tuple([_checked(d) for d in dims]))
    return found


_extremes: Remembered[tuple[str, tuple[Terms, ...]], Dim] = Remembered()


def _symbolic_extreme(kind: str, dims: tuple[Dim, ...]) -> Dim:
    sign, pick = (1, min) if kind == "min" else (-1, max)
    flat = [x for d in dims for x in _spread(kind, d)]
    numbers = [d for d in flat if isinstance(d, int)]
    left: list[Dim] = [pick(numbers)] if numbers else []
    for d in flat:
        if isinstance(d, int) or any(least((d - o) * sign) >= 0 for o in left):
            continue
        left = [o for o in left if least((o - d) * sign) < 0] + [d]
    return left[0] if len(left) == 1 else _call(kind, *sorted(left, key=str))


def _spread(kind: str, d: Dim) -> tuple[Dim, ...]:
    """The arguments of a minimum of minima are those of one."""
    if isinstance(d, SymDim) and len(d.terms) == 1 and d.terms[0][1] == 1:
        mono = d.terms[0][0]
        if len(mono) == 1 and isinstance(mono[0], Call) and mono[0].kind == kind:
            return mono[0].args
    return (d,)


def _call(kind: str, *args: Dim) -> Dim:
    depth = 1 + max(a.depth for a in args if isinstance(a, SymDim))
    weight = 1 + sum(a.weight for a in args if isinstance(a, SymDim))
    _bounded(depth=depth, weight=weight)
    return SymDim({(Call(kind, args, depth, weight),): 1})


_REBUILT = {"//": floor_div, "min": minimum, "max": maximum}


# -- what is certain -----------------------------------------------------------------------


def surely_less(a: Dim, b: Dim) -> bool:
    """Whether a dim is certainly below another. What depends on sizes that are not known is False:
    it is asked again when they are. For sizes at hand (``guards.Deciding``) it is decided."""
    return _surely(b - a, lambda d: guards.bounds(d)[0] > 0, lambda d: d > 0)


def surely_differ(a: Dim, b: Dim) -> bool:
    """Whether two dims are certainly not the same, likewise."""

    def apart(d: SymDim) -> bool:
        low, high = guards.bounds(d)
        return low > 0 or high < 0

    return _surely(a - b, apart, lambda d: d != 0)


def _surely(d: Dim, told: Callable[[SymDim], bool], test: Callable[[Dim], bool]) -> bool:
    if isinstance(d, SymDim) and guards.deciding() is None:
        return told(d)
    return test(d)


# -- dims and sizes ------------------------------------------------------------------------


def as_sizes(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Dims as ints; ShapeError if one is still symbolic."""
    found: list[int] = []
    for d in dims:
        if not is_known(d):
            raise ShapeError(f"the dim {d} is symbolic; bind it with dims={{...}}")
        found.append(d)
    return tuple(found)


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are the same expressions: unlike ``==`` it decides nothing."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    pairs = zip(a, b, strict=True)
    return all([x is y or _terms(x) == _terms(y) for x, y in pairs])


def is_known(d: object) -> TypeGuard[int]:
    """Whether a dim is computed with like a number: it is one, or sizes are at hand by which what
    is asked about it is decided (``rlx.base.guards``)."""
    return isinstance(d, int) or (isinstance(d, SymDim) and guards.deciding() is not None)


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
        raise ShapeError(f"a dim is an int >= 0 or a name such as 'batch', found {shown(d)}")
    return n


def as_size(name: str, value: Any) -> int:
    """The size that a dim's name is bound to; ShapeError if it is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
        raise ShapeError(f"the size of dim {name!r} is an int >= 0, found {value!r}")
    return value.__index__()


def bind_dim(d: Dim, dims: Mapping[str, Dim]) -> Dim:
    """Replace the symbols of a dim by sizes; an int stays."""
    return d.bind(dims) if isinstance(d, SymDim) else d
