"""Which function of the namespace a ufunc of NumPy is."""

from __future__ import annotations

__all__ = ["OF_FLOATS", "function_of"]

OF_FLOATS = frozenset({"fabs", "rint"})
"""Ufuncs that give floats of integers, for which the functions of the namespace give integers."""

_OTHERS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "fabs": "abs",
    "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "power": "pow",
    "right_shift": "bitwise_right_shift", "rint": "round",
}  # fmt: skip


def function_of(ufunc: str) -> str | None:
    """The name in ``rlx.xp`` of a ufunc, None for one that it lacks."""
    from rlx.xp import elementwise, manipulation

    own = _OTHERS.get(ufunc, ufunc)
    return own if own in (*elementwise.__all__, *manipulation.__all__) else None
