"""Random programs in NumPy's words, run by NumPy and under ``rlx.jit``: NumPy itself is the oracle.

A program is a list of numbers, of which each is a step: it picks a function and operands by their
shapes and types alone, so that arrays and Values take the same way through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import rlx

__all__ = ["Program", "difference"]

Array = np.ndarray[Any, Any]
Move = Callable[[np.random.Generator, Any, Sequence[Any]], Any]

MOST = 4000
"""Elements of a result."""

SHAPES = ((3, 4), (4,), (2, 3, 4), (5, 1), (), (1,), (7, 3), (8, 16), (2, 0, 3), (33,), (4, 4))
TYPES = ("f4", "f4", "f8", "f8", "i4", "i8", "u1", "?")
TRAPS = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40)

ANY_NUMBER = ("negative", "abs", "square", "sign")
OF_FLOATS = (
    "arctan", "ceil", "cos", "exp", "expm1", "floor", "isnan", "log1p", "reciprocal", "rint", "sin",
    "sqrt", "tanh", "trunc",
)  # fmt: skip
PAIRS = ("add", "subtract", "multiply", "maximum", "minimum", "greater", "less", "equal")
PAIRS_OF_FLOATS = ("arctan2", "copysign", "divide", "hypot", "logaddexp")


def _kind(x: Any) -> str:
    return np.dtype(np.result_type(x)).kind


def _fits(*shapes: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(*shapes)) <= MOST
    except ValueError:
        return False


def _one(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    names = {"f": ANY_NUMBER + OF_FLOATS, "i": ANY_NUMBER, "u": ANY_NUMBER[1:]}.get(_kind(x), ())
    return getattr(np, rng.choice(names))(x) if names else None


def _two(rng: np.random.Generator, x: Any, y: Any) -> Any:
    if _kind(x) == "b" or np.result_type(x) != np.result_type(y) or not _fits(x.shape, y.shape):
        return None
    names = PAIRS + PAIRS_OF_FLOATS if _kind(x) == "f" else PAIRS
    return getattr(np, rng.choice(names))(x, y)


def _pair(rng: np.random.Generator, x: Any, others: Sequence[Any]) -> Any:
    return _two(rng, x, others[rng.integers(len(others))])


def _reduced(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    name, axis, keep = rng.choice(_REDUCTIONS[_kind(x)]), _axis(rng, x), bool(rng.integers(2))
    if axis is None or not prod(x.shape):
        return None
    if _kind(x) == "f" and name in ("max", "min", "argmax", "argmin"):
        x = np.nan_to_num(x)
    axis = None if rng.integers(4) == 0 and not name.startswith("arg") else axis
    return getattr(np, name)(x, axis=axis, keepdims=keep)


_INTEGERS = ("sum", "max", "min", "argmax", "argmin", "count_nonzero")
_REDUCTIONS = {
    "b": ("any", "all", "sum"), "i": _INTEGERS, "u": _INTEGERS,
    "f": (*_INTEGERS, "mean", "std", "var"),
}  # fmt: skip


def _axis(rng: np.random.Generator, x: Any) -> int | None:
    return int(rng.integers(-len(x.shape), len(x.shape))) if x.shape else None


def _moved(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    axis, way = _axis(rng, x), rng.integers(6)
    if way == 0:
        return np.reshape(x, -1)
    if way == 1:
        return np.expand_dims(np.transpose(x), 0)
    if axis is None:
        return None
    if way == 2:
        return np.flip(x, axis)
    if way == 3:
        return np.roll(x, int(rng.integers(-5, 6)), axis)
    if way == 4:
        return np.broadcast_to(x, (3, *x.shape)) if prod(x.shape) * 3 <= MOST else None
    return np.swapaxes(x, 0, axis)


def _sliced(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    def along(n: int) -> slice:
        start, stop = int(rng.integers(n // 2 + 1)), int(rng.integers(n // 2 + 1, n + 2))
        return slice(start, stop, int(rng.integers(1, 3)))

    choices = [(along(n), slice(None), slice(None, None, -1)) for n in x.shape]
    return x[tuple(c[rng.integers(3)] for c in choices)] if x.shape else None


def _joined(rng: np.random.Generator, x: Any, others: Sequence[Any]) -> Any:
    axis = _axis(rng, x)
    if axis is None:
        return None
    rest = [n for n in range(len(x.shape)) if n != axis % len(x.shape)]
    alike = [
        y
        for y in others
        if len(y.shape) == len(x.shape)
        and all(x.shape[n] == y.shape[n] for n in rest)
        and np.result_type(x) == np.result_type(y)
    ]
    fit = sum(prod(y.shape) for y in alike[:3]) <= MOST
    return np.concatenate(alike[:3], axis) if fit else None


def _chosen(rng: np.random.Generator, x: Any, others: Sequence[Any]) -> Any:
    masks = [m for m in others if _kind(m) == "b"]
    y = others[rng.integers(len(others))]
    if not masks or np.result_type(x) != np.result_type(y):
        return None
    mask = masks[rng.integers(len(masks))]
    return np.where(mask, x, y) if _fits(mask.shape, x.shape, y.shape) else None


def _ordered(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    axis = _axis(rng, x)
    if axis is None or _kind(x) == "b":
        return None
    x = np.clip(np.nan_to_num(x), -100.0, 100.0) if _kind(x) == "f" else x
    if rng.integers(2):
        return np.cumsum(x, axis)
    return np.take_along_axis(x, np.argsort(x, axis, stable=True), axis)


def _taken(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    axis = _axis(rng, x)
    if axis is None or not x.shape[axis] or prod(x.shape) * 4 > MOST:
        return None
    return np.take(x, rng.integers(0, x.shape[axis], (2, 2)), axis=axis)


def _padded(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    if not x.shape or _kind(x) == "b" or prod(n + 4 for n in x.shape) > MOST:
        return None
    widths = rng.integers(0, 3, (len(x.shape), 2)).tolist()
    deep = min(x.shape) > 2
    return np.pad(x, widths, rng.choice(["constant", "edge", "reflect"]) if deep else "constant")


def _rounded(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    if _kind(x) == "f":
        x = np.clip(np.nan_to_num(x), -100.0, 100.0)
        return np.round(np.trunc(x * 8) / 8, int(rng.integers(-2, 1)))  # no error moves a half
    return np.round(x // 3, int(rng.integers(-2, 3))) if _kind(x) in "iu" else None


def _product(rng: np.random.Generator, x: Any, _: Sequence[Any]) -> Any:
    if _kind(x) != "f" or not 1 <= len(x.shape) <= 2 or not prod(x.shape):
        return None
    x = np.clip(np.nan_to_num(x), -9.0, 9.0)
    return np.inner(x, x) if rng.integers(2) else np.linalg.norm(x, axis=_axis(rng, x))


MOVES: tuple[Move, ...] = (
    _one, _one, _pair, _pair, _reduced, _reduced, _moved, _sliced, _sliced, _joined, _chosen,
    _ordered, _taken, _padded, _product, _rounded,
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Arguments, and the seeds of the steps."""

    arguments: tuple[Array, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(seed: int) -> Program:
        """The program of a number."""
        rng = np.random.default_rng(seed)
        arguments = tuple(_argument(rng) for _ in range(rng.integers(1, 4)))
        return Program(arguments, tuple(rng.integers(1 << 31, size=12).tolist()))

    def run(self, *values: Any) -> list[Any]:
        """All results, of arrays or of Values."""
        found = [*values]
        for seed in self.steps:
            rng = np.random.default_rng(seed)
            x = found[rng.integers(len(found))]
            made = MOVES[rng.integers(len(MOVES))](rng, x, found)
            if made is not None:
                found.append(made)
        return found[len(values) :]


def _argument(rng: np.random.Generator) -> Array:
    shape, kind = SHAPES[rng.integers(len(SHAPES))], rng.choice(TYPES)
    if kind in ("f4", "f8"):
        x = np.asarray(rng.standard_normal(shape) * 3, kind)
        if x.size and rng.integers(3) == 0:
            x.flat[0] = rng.choice(TRAPS)
        return x
    return np.asarray(rng.integers(0 if kind in ("u1", "?") else -9, 20, shape)).astype(kind)


def difference(program: Program, device: str | None = None) -> str | None:
    """What tells the results of ``rlx.jit`` from NumPy's; None if nothing does."""
    with np.errstate(all="ignore"):
        wanted = [np.asarray(x) for x in program.run(*program.arguments)]
    if not wanted:
        return None
    found = rlx.jit(program.run, device=device)(*program.arguments)
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return f"result {n} is {a.dtype}{a.shape}, where NumPy has {b.dtype}{b.shape}"
        if not (_close(a, b) if b.dtype.kind == "f" else np.array_equal(a, b)):
            return f"result {n} is {a.ravel()[:8]}, where NumPy has {b.ravel()[:8]}"
    return None


def _close(a: Array, b: Array) -> bool:
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    bound = 1e-3 if b.dtype == np.float32 else 1e-8
    largest = np.max(np.abs(b[finite]), initial=1.0)
    return bool(np.max(np.abs(a[finite] / largest - b[finite] / largest), initial=0.0) <= bound)
