"""``einsum``: sums of products by labelled axes, as products of two tensors in a good order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from rlx.base.dims import is_known
from rlx.errors import GraphError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import product
from rlx.ops.movement.movement import listed
from rlx.types import Dim

__all__ = ["einsum"]

Labels = list[str]
Term = tuple[Value, Labels]

GUESS = 64
"""What the order of products takes a symbolic dim for."""


def einsum(subscripts: str, *operands: Any) -> Value:
    """``numpy.einsum``: ``einsum("bij,bjk->bik", x, y)``.

    Every letter is an axis. Those not behind the arrow are summed over; one that is twice in an
    operand takes its diagonal; ``...`` stands for axes that broadcast. Without an arrow the result
    has the axes of ``...``, then the letters that occur once, in alphabetical order. An axis of
    size 1 broadcasts.

    Products are taken two at a time, at each step those whose result is smallest beside what they
    take up; 16-bit floats are rounded after each.
    """
    if not isinstance(subscripts, str):
        raise GraphError(
            'einsum takes the subscripts first, as in einsum("ij,jk->ik", x, y); found a'
            f" {type(subscripts).__name__}"
        )
    values = promoted(*operands)
    inputs, output = _parse(subscripts, [v.rank for v in values])
    terms = _fitted([_diagonals(*t) for t in zip(values, inputs, strict=True)], output)
    while len(terms) > 1:
        i, j = _best_pair(terms, output)
        rest = [t for n, t in enumerate(terms) if n not in (i, j)]
        terms = [*rest, _product(terms[i], terms[j], _needed(rest, output))]
    value, labels = _summed(terms[0], set(output))
    return value.transpose([labels.index(n) for n in output])


# -- the subscripts ------------------------------------------------------------------------


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; those of ``...`` are numbers, counted from the
    last axis."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise GraphError(f"einsum: {subscripts!r} has {len(parts)} operands, found {len(ranks)}")
    inputs = [_labels(p, r, subscripts) for p, r in zip(parts, ranks, strict=True)]
    used = {n for labels in inputs for n in labels}
    dots = sorted((n for n in used if n.isdigit()), key=int, reverse=True)
    if not arrow:
        count = Counter(n for labels in inputs for n in labels)
        return inputs, dots + sorted(n for n in used if count[n] == 1 and not n.isdigit())
    if dots and "..." not in right:
        raise GraphError(
            f"einsum: {subscripts!r} has axes in '...', so that the result needs '...' too"
        )
    output = _labels(right, len(right.replace("...", "")) + len(dots), subscripts)
    missing = [n for n in output if n not in used]
    if missing:
        raise GraphError(f"einsum: {subscripts!r} asks for {missing[0]!r}, which no operand has")
    if len(set(output)) < len(output):
        raise GraphError(f"einsum: {subscripts!r} has a label twice in the result")
    return inputs, output


def _labels(part: str, rank: int, subscripts: str) -> Labels:
    head, dots, tail = part.partition("...")
    letters = head + tail
    if not all(c.isascii() and c.isalpha() for c in letters):
        wrong = next(c for c in letters if not (c.isascii() and c.isalpha()))
        raise GraphError(
            f"einsum: {wrong!r} in {subscripts!r}; subscripts are letters, ',', '...' and '->'"
        )
    covered = rank - len(letters)
    if covered < 0 or (covered and not dots):
        raise ShapeError(
            f"einsum: {part!r} of {subscripts!r} has {len(letters)} labels for a tensor of rank"
            f" {rank}"
        )
    return [*head, *(str(n) for n in reversed(range(covered))), *tail]


# -- one operand ---------------------------------------------------------------------------


def _diagonals(value: Value, labels: Labels) -> Term:
    """A label that is there twice, once: the diagonal of the two axes."""
    for label in [n for n, count in Counter(labels).items() if count > 1]:
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            value = _diagonal(value, i, j, label)
            labels = [n for k, n in enumerate(labels) if k not in (i, j)] + [label]
    return value, labels


def _diagonal(x: Value, i: int, j: int, label: str) -> Value:
    """The diagonal of two axes, as the last axis: every size + 1 elements of both as one."""
    size = x.shape[i]
    if size != x.shape[j]:
        raise ShapeError(f"einsum: axes {i} and {j} of {listed(x.shape)} are both {label!r}")
    if not is_known(size):
        raise ShapeError(f"einsum: the diagonal {label!r} of {listed(x.shape)} needs a static size")
    rest = [a for a in range(x.rank) if a not in (i, j)]
    dims = [x.shape[a] for a in rest]
    flat = x.transpose([*rest, i, j]).reshape([*dims, size * size])
    return flat.slice([0] * flat.rank, [*dims, size], [*[1] * len(dims), size + 1])


def _fitted(terms: list[Term], output: Labels) -> list[Term]:
    """Terms without the axes of size 1 that another broadcasts, and without those that are summed
    over and no other has."""
    sizes: dict[str, Dim] = {}
    for value, labels in terms:
        for n, d in zip(labels, value.shape, strict=True):
            known = sizes.get(n, 1)
            if known != 1 and d not in (1, known):
                raise ShapeError(f"einsum: {n!r} is {known} and {d}")
            sizes[n] = known if d == 1 else d
    fitted: list[Term] = []
    for value, labels in terms:
        keep = [k for k, n in enumerate(labels) if value.shape[k] == sizes[n]]
        fitted.append((value.reshape([value.shape[k] for k in keep]), [labels[k] for k in keep]))
    return [
        _summed(t, _needed([*fitted[:n], *fitted[n + 1 :]], output)) for n, t in enumerate(fitted)
    ]


def _needed(terms: Sequence[Term], output: Labels) -> set[str]:
    """The labels that the result or a term has."""
    return {*output, *(n for _, labels in terms for n in labels)}


def _summed(term: Term, keep: set[str]) -> Term:
    value, labels = term
    axes = [k for k, n in enumerate(labels) if n not in keep]
    return (value.sum(axes=axes) if axes else value), [n for n in labels if n in keep]


# -- two operands --------------------------------------------------------------------------


def _product(a: Term, b: Term, keep: set[str]) -> Term:
    """The product of two terms, summed over the labels that nothing else needs."""
    (x, left), (y, right) = _summed(a, keep | set(b[1])), _summed(b, keep | set(a[1]))
    out = _result(left, right, keep)
    numbers = {n: k for k, n in enumerate({*left, *right})}
    numbered = ([numbers[n] for n in labels] for labels in (left, right, out))
    return product(x, next(numbered), y, *numbered), out


def _result(left: Labels, right: Labels, keep: set[str]) -> Labels:
    """The labels of a product in the order that a matrix product gives: both, left, right."""
    both = [n for n in left if n in right and n in keep]
    return both + [n for n in (*left, *right) if n in keep and n not in both]


def _best_pair(terms: Sequence[Term], output: Labels) -> tuple[int, int]:
    """The two terms to multiply next: those whose result is smallest beside what they take up, and
    of equals those with the fewest operations (the greedy order of D. G. A. Smith and J. Gray,
    "opt_einsum", JOSS 3(26), 2018)."""
    sizes = {
        n: d if is_known(d) else GUESS
        for value, labels in terms
        for n, d in zip(labels, value.shape, strict=True)
    }

    def volume(labels: Sequence[str]) -> int:
        return math.prod(sizes[n] for n in labels)

    def cost(pair: tuple[int, int]) -> tuple[int, int]:
        (_, left), (_, right) = (terms[n] for n in pair)
        rest = [t for n, t in enumerate(terms) if n not in pair]
        out = _result(left, right, _needed(rest, output))
        operations = volume([*left, *(n for n in right if n not in left)])
        return volume(out) - volume(left) - volume(right), operations

    return min(combinations(range(len(terms)), 2), key=cost)
