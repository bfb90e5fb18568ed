"""Products, powers and sums beside the main road: of integers, of many small matrices, by a vector
from either side, and down the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.case import Case, Tensor

LIBRARIES = ("rlx", "torch", "numpy", "jax")
INTEGERS = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"}
BATCHES = ((4096, 4), (4096, 8), (4096, 16), (1024, 32), (1024, 33), (256, 64))
"""How many products, and the edge of each."""

FEW = ((1, 4096, 2), (1, 65536, 16), (8, 4096, 4), (1024, 1024, 4), (1, 4096, 4096), (8, 4096, 64))
"""Rows, depth and columns of products that have few of either."""

ON_MATRIX: dict[str, Callable[..., Any]] = {
    "x**2": lambda f, x: x**2,
    "x**3": lambda f, x: x**3,
    "x**0.5": lambda f, x: (x * x) ** 0.5,
    "(x*x+1)**-1": lambda f, x: (x * x + 1) ** -1.0,
    "sum of columns": lambda f, x: x.sum(0),
}


def integers(short: str, m: int, k: int, n: int) -> Case:
    """A product of integers; the reference is in their own type, which wraps."""
    a, b = (Tensor(s, scale=9, dtype=INTEGERS[short]) for s in ((m, k), (k, n)))
    return Case(
        f"{short} {m}x{k}x{n}", lambda f, a, b: f.matmul(a, b), {"a": a, "b": b},
        flops=2 * m * k * n, runtimes=LIBRARIES, tolerance=0, quick=short == "i32" and m > 1,
    )  # fmt: skip


def batch(count: int, n: int) -> Case:
    """Many products of square matrices."""
    inputs = {name: Tensor((count, n, n)) for name in "ab"}
    return Case(
        f"{count} of {n}x{n}x{n}", lambda f, a, b: f.matmul(a, b), inputs, runtimes=LIBRARIES,
        flops=2 * count * n**3, quick=n in (4, 32),
    )  # fmt: skip


def by_vector(m: int, n: int) -> list[Case]:
    """A matrix times a vector from either side: along its rows, and across them."""
    sides: dict[str, tuple[int, Callable[..., Any]]] = {
        "x v": (n, lambda f, x, v: x @ v),
        "x.T v": (m, lambda f, x, v: x.T @ v),
    }
    return [
        Case(
            f"{name} {m}x{n}", build, {"x": Tensor((m, n)), "v": Tensor((size,))},
            runtimes=LIBRARIES, flops=2 * m * n, moved=4 * m * n, quick=m == 4096,
        )
        for name, (size, build) in sides.items()
    ]  # fmt: skip


def few(m: int, k: int, n: int) -> list[Case]:
    """A product with few columns or rows, by a matrix that lies row by row and by a transpose."""
    sides: dict[str, tuple[tuple[int, int], Callable[..., Any]]] = {
        "a b": ((k, n), lambda f, a, b: a @ b),
        "a b.T": ((n, k), lambda f, a, b: a @ b.T),
    }
    return [
        Case(
            f"{name} {m}x{k}x{n}", build, {"a": Tensor((m, k)), "b": Tensor(shape)},
            runtimes=LIBRARIES, flops=2 * m * n * k, moved=4 * (m * k + k * n),
        )
        for name, (shape, build) in sides.items()
    ]  # fmt: skip


def on_matrix(name: str, m: int, n: int) -> Case:
    """Something of every element of a matrix, or of its columns."""
    return Case(
        f"{name} {m}x{n}", ON_MATRIX[name], {"x": Tensor((m, n))}, runtimes=LIBRARIES,
        quick=name == "x**3",
    )  # fmt: skip


def cases() -> list[Case]:
    """All of them."""
    found = [integers(t, *s) for t in INTEGERS for s in ((512, 512, 512), (1, 512, 512))]
    found += [batch(*s) for s in BATCHES]
    found += [c for s in ((4096, 512), (2048, 4096)) for c in by_vector(*s)]
    found += [c for s in FEW for c in few(*s)]
    return found + [on_matrix(name, 512, 1000) for name in ON_MATRIX]
