"""Dims as tensors of a model: numbers, and arithmetic on the shapes of inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.errors import UnsupportedError
from rlx.frontends.onnx.export.writer import Name, Writer
from rlx.types import Dim, SymDim, TensorType

__all__ = ["declare", "line", "scalar", "shaped"]


def declare(w: Writer, name: Name, t: TensorType) -> None:
    """Note where a leaf says how large symbols are."""
    for axis, d in enumerate(t.shape):
        symbol = d.lone if isinstance(d, SymDim) else None
        if symbol is not None and symbol not in w.known:
            shape = w.node("Shape", name, start=axis, end=axis + 1)
            w.known[symbol] = shape


def line(w: Writer, dims: Sequence[Dim]) -> Name:
    """Dims as a line of i64."""
    if all(isinstance(d, int) for d in dims):
        return w.ints([int(d) for d in dims if isinstance(d, int)])
    return w.node("Concat", *[_one(w, d) for d in dims], axis=0)


def scalar(w: Writer, d: Dim) -> Name:
    """A dim as an i64 without axes."""
    return w.constant(np.int64(d)) if isinstance(d, int) else w.reshape(_one(w, d), w.ints([]))


def shaped(w: Writer, x: Name, shape: Sequence[Dim]) -> Name:
    """A value with other dims, as many elements."""
    return w.reshape(x, line(w, shape))


def _one(w: Writer, d: Dim) -> Name:
    """A dim as a line of one number."""
    if isinstance(d, int):
        return w.ints([d])
    level: Writer | None = w
    while level is not None:
        if d in level.known:
            return level.known[d]
        level = level.outer
    total: Name | None = None
    for atoms, factor in d.terms:
        term = w.ints([factor])
        for a in atoms:
            term = w.node("Mul", term, _atom(w, a))
        total = term if total is None else w.node("Add", total, term)
    assert total is not None, "a symbolic dim has a term"
    w.known[d] = total
    return total


def _atom(w: Writer, atom: Atom) -> Name:
    level: Writer | None = w
    while level is not None:
        if atom in level.known:
            return level.known[atom]
        level = level.outer
    if not isinstance(atom, Call):
        assert isinstance(atom, Symbol), "an atom is a symbol or a call"
        raise UnsupportedError(
            f"no input has the dim {atom.name} by itself, so a model cannot tell its size; bind it"
            " (graph.bind)"
        )
    args = [_one(w, a) for a in atom.args]
    if atom.kind == "//":
        found = _floor(w, *args)
    else:
        found = w.node("Min" if atom.kind == "min" else "Max", *args)
    w.known[atom] = found
    return found


def _floor(w: Writer, a: Name, b: Name) -> Name:
    """A quotient rounded down; ONNX's is rounded toward 0."""
    rest = w.node("Mod", a, b)
    return w.node("Div", w.node("Sub", a, rest), b)
