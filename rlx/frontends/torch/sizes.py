"""torch's symbolic sizes, which are expressions of SymPy, as dims of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlx.base.dims import Dim, SymDim, at_least, choose, floor_div, maximum, minimum
from rlx.errors import UnsupportedError

__all__ = ["Sizes"]


class Sizes:
    """The symbols of a program, by torch's names, with the dims that they are here."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        self._ranges = {str(k): v for k, v in ranges.items()}
        self._symbols: dict[str, Dim] = {}

    def declare(self, size: Any, name: str) -> None:
        """Give the symbol that a size is, if it is nothing else, a name of ours."""
        expr = _expression(size)
        if expr is not None and expr.is_Symbol and str(expr) not in self._symbols:
            taken = {str(s.lone) for s in self._symbols.values() if isinstance(s, SymDim)}
            while name in taken:
                name += "_"
            self._symbols[str(expr)] = SymDim.symbol(name, *self._range(str(expr)))

    def settle(self, size: Any, number: int) -> None:
        """Say what a symbol is that stands for a number which torch did not know."""
        expr = _expression(size)
        if expr is not None and expr.is_Symbol:
            self._symbols[str(expr)] = number

    def _range(self, symbol: str) -> tuple[int, int | None]:
        """The least and the most of a symbol. torch takes a size for 2 or more where nothing is
        said, and means that its programs hold for 0 and 1 too."""
        said = self._ranges.get(symbol)
        if said is None:
            return 0, None
        low, high = said.lower, said.upper
        least = int(low) if low.is_Integer and low > 2 else 0
        most = int(high) if high.is_Integer and high < 1 << 62 else None
        return least, most

    def dim(self, size: Any) -> Dim:
        """A size, an int or a SymInt, as a dim; UnsupportedError for one that is data."""
        expr = _expression(size)
        return int(size) if expr is None else self._dim(expr)

    def _dim(self, e: Any) -> Dim:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            if str(e) not in self._symbols:
                raise UnsupportedError(
                    f"a size is {e}, which depends on the elements of a tensor; RLX has tensors of"
                    " sizes that are known at the call alone"
                )
            return self._symbols[str(e)]
        kind = type(e).__name__
        if kind in _CALLS:
            return _CALLS[kind](*map(self._dim, e.args))
        if kind == "Pow" and e.args[1].is_Integer and e.args[1] > 0:
            return math.prod([self._dim(e.args[0])] * int(e.args[1]))
        if kind in ("CeilToInt", "FloorToInt", "TruncToInt"):
            return self._rounded(kind, e.args[0])
        if kind == "Piecewise":
            return self._chosen(e.args)
        raise UnsupportedError(f"a size is computed as {e}, and {kind} has no counterpart here")

    def _chosen(self, pairs: Any) -> Dim:
        """The first of some sizes whose condition holds; torch's last one always does."""
        (size, condition), *rest = pairs
        if not rest:
            return self._dim(size)
        return choose(self._flag(condition), self._dim(size), self._chosen(rest))

    def _flag(self, condition: Any) -> Dim:
        """1 where a condition on sizes holds, else 0."""
        kind = type(condition).__name__
        if kind in _TESTS:
            return _TESTS[kind](*map(self._dim, condition.args))
        return _LOGIC[kind](*map(self._flag, condition.args))

    def _rounded(self, kind: str, e: Any) -> Dim:
        if type(e).__name__ not in ("IntTrueDiv", "FloatTrueDiv"):
            raise UnsupportedError(f"a size is {e}, rounded, which has no counterpart here")
        whole, part = map(self._dim, e.args)
        return -floor_div(-whole, part) if kind == "CeilToInt" else floor_div(whole, part)


def _expression(size: Any) -> Any:
    """The expression of a symbolic size; None for a number."""
    node = getattr(size, "node", None)
    if node is None:
        return None
    expr = node.expr
    return None if expr.is_Integer else expr


def _sum(*parts: Dim) -> Dim:
    total: Dim = 0
    for part in parts:
        total = total + part
    return total


def _product(*parts: Dim) -> Dim:
    total: Dim = 1
    for part in parts:
        total = total * part
    return total


_CALLS: dict[str, Any] = {
    "Add": _sum, "Mul": _product, "FloorDiv": floor_div, "CleanDiv": floor_div,
    "Mod": lambda a, b: a - floor_div(a, b) * b,
    "PythonMod": lambda a, b: a - floor_div(a, b) * b,
    "Max": maximum, "Min": minimum,
}  # fmt: skip

_TESTS: dict[str, Any] = {
    "GreaterThan": at_least, "LessThan": lambda a, b: at_least(b, a),
    "StrictGreaterThan": lambda a, b: at_least(a, b + 1),
    "StrictLessThan": lambda a, b: at_least(b, a + 1),
    "Equality": lambda a, b: at_least(a, b) * at_least(b, a),
    "Unequality": lambda a, b: 1 - at_least(a, b) * at_least(b, a),
}  # fmt: skip
_LOGIC: dict[str, Any] = {"And": minimum, "Or": maximum, "Not": lambda a: 1 - a}
