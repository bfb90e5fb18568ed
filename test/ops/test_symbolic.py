"""Ops of symbolic sizes: what an op takes at every size it takes as a symbol, and says the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlx.autodiff.reverse import gradients
from rlx.base.dims import SymDim, bind_dim
from rlx.errors import RlxError, UnsupportedError
from rlx.ir.attrs import DIMS, OFFSETS
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.types import Dim, TensorType
from support.samples import Case, array_of, cases, forms
from support.sweeps import covering
from support.tolerances import assert_close

N = SymDim.symbol("n")
MOST = 5
"""Dims of one size in a sample up to which all choices of them become the symbol."""

Attrs = dict[str, Any]

NUMBERS = {"mir.attention", "mir.attention_grad", "hir.bert_layer"}
"""The heads of attention and their features are numbers."""

GRADIENTS = {
    "hir.depthwise_conv1d_causal": "its taps",
    "mir.conv": "its taps",
    "mir.conv_transpose": "its taps",
    "mir.gated_delta_net": "the length",
    "mir.qr": "its sides",
    "mir.rope": "its heads",
    "mir.scatter": "the places of a product",
    "mir.svd": "its sides",
}
"""What a gradient needs as numbers; then it says so."""


def first_cases() -> list[Case]:
    """Every sample of every op once, whatever its element type."""
    found: dict[tuple[str, int], Case] = {}
    for case in cases():
        found.setdefault((case.op.name, case.number), case)
    return list(found.values())


def types_of(case: Case, places: frozenset[tuple[int, int]], d: Dim) -> list[TensorType | None]:
    return [
        None
        if t is None
        else t.with_shape(d if (i, j) in places else s for j, s in enumerate(t.shape))
        for i, t in enumerate(case.types)
    ]


def node(case: Case, types: list[TensorType | None], attrs: Attrs) -> Op:
    g = Graph()
    leaves = [
        None if t is None else g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)
    ]
    return case.op(*leaves, **attrs)


def variants(case: Case, size: int) -> Iterator[Callable[[Dim], Attrs]]:
    """The attributes with some of those dims that have a size as another."""
    attrs = dict(case.sample.attrs)
    dims = {f.name for f in case.op.attr_fields if f.kind in (DIMS, OFFSETS)}

    def at(value: Any, d: Dim) -> Any:
        if isinstance(value, tuple):
            return tuple(at(v, d) for v in value)
        return d if type(value) is int and value == size else value

    names = [k for k, v in attrs.items() if k in dims and at(v, -1) != v]
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            yield lambda d, chosen=chosen: attrs | {k: at(attrs[k], d) for k in chosen}


def places(case: Case) -> dict[int, list[tuple[int, int]]]:
    """Where each size stands among the operands' dims."""
    found: dict[int, list[tuple[int, int]]] = {}
    for i, t in enumerate(case.types):
        for j, d in enumerate(() if t is None else t.static_shape):
            found.setdefault(d, []).append((i, j))
    return found


def choices(case: Case) -> Iterator[tuple[int, frozenset[tuple[int, int]]]]:
    """A size, and where it is the symbol: in some of its places, or all."""
    for size, own in places(case).items():
        counts = range(1, len(own) + 1) if len(own) <= MOST else (1, len(own))
        for count in counts:
            for chosen in itertools.combinations(own, count):
                yield size, frozenset(chosen)


def sizes(d: int) -> tuple[int, ...]:
    return (d, d + 1, d + 2, 2 * d + 1, 2 * d + 4, max(d - 1, 1), 3 * d)


def accepted(
    case: Case, where: frozenset[tuple[int, int]], attrs: Callable[[Dim], Attrs], d: int
) -> dict[int, tuple[TensorType, ...]]:
    """The types of the results at several sizes; none at all if one of them is refused."""
    found: dict[int, tuple[TensorType, ...]] = {}
    for n in sizes(d):
        try:
            results = node(case, types_of(case, where, n), attrs(n)).results
        except RlxError:
            return {}
        found[n] = tuple(v.type for v in results)
    return found


@pytest.mark.parametrize("case", first_cases(), ids=str)
def test_what_is_taken_at_every_size_is_taken_as_a_symbol(case: Case) -> None:
    if case.op.name in NUMBERS:
        pytest.skip("its heads and features are numbers")
    for size, where in choices(case):
        for attrs in variants(case, size):
            want = accepted(case, where, attrs, size)
            if not want:
                continue
            found = node(case, types_of(case, where, N), attrs(N)).results
            for n, types in want.items():
                if n:  # that an axis is empty is decided when it is bound
                    assert tuple(v.type.bind({"n": n}) for v in found) == types, (where, n)


def by_floats(case: Case, types: list[TensorType | None], attrs: Attrs) -> Graph | None:
    """The gradients of the sum of all float results by all float operands."""
    g = Graph()
    leaves = [
        None if t is None else g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)
    ]
    outs = [v for v in case.op(*leaves, **attrs).results if v.dtype.is_float]
    wrt = [v for v in leaves if v is not None and v.dtype.is_float]
    if not outs or not wrt or not case.op.differentiable:
        return None
    total = sum((v * v).sum() for v in outs)
    g.set_outputs(gradients(total, wrt))
    return g


@pytest.mark.parametrize("case", covering(first_cases(), forms), ids=str)
def test_gradients_of_symbolic_sizes(case: Case) -> None:
    """A gradient that is made once for all sizes is that of each size."""
    for size, own in places(case).items():
        where = frozenset(own)
        for attrs in variants(case, size):
            want = accepted(case, where, attrs, size)
            if not want or not size or case.op.name in NUMBERS:
                continue
            try:
                by_floats(case, types_of(case, where, size + 1), attrs(size + 1))
            except UnsupportedError:
                continue  # at no size
            try:
                symbolic = by_floats(case, types_of(case, where, N), attrs(N))
            except RlxError as e:
                assert case.op.name in GRADIENTS, e
                assert re.search(r"bind|known|numbers|\bn (rows|columns)", str(e))
                continue
            for n in (size, size + 1):
                static = by_floats(case, types_of(case, where, n), attrs(n))
                if static is None or symbolic is None:
                    assert symbolic is static
                    continue
                feeds = arrays_of(case, static)
                expected = interpret(static, feeds)
                for a, b in zip(interpret(symbolic, feeds), expected, strict=True):
                    assert_close(a, b)


def arrays_of(case: Case, g: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        str(v.name): array_of(v.type, case.sample.data.get(int(str(v.name)[1:]), "normal"), rng)
        for v in g.inputs
    }


BUILT: dict[str, tuple[tuple[Dim, ...], Callable[[Value], Value]]] = {
    "a step": ((3, N), lambda x: x[:, ::2]),
    "a step from the end": ((N, 3), lambda x: x[::-2]),
    "between ends": ((N, 3), lambda x: x[1:-1]),
    "half": ((N, 3), lambda x: x[: x.shape[0] // 2]),
    "from the half": ((N, 3), lambda x: x[x.shape[0] // 2 :]),
    "every third of a part": ((N, 3), lambda x: x[1:-1:3]),
    "pairs": ((N, 2), lambda x: x[: x.shape[0] // 2 * 2].reshape([x.shape[0] // 2, 4])),
    "roll": ((N, 3), lambda x: x.roll(2, 0)),
    "roll back": ((N, 3), lambda x: x.roll(-1, 0)),
    "diagonal": ((N, 5), lambda x: x.diagonal()),
    "diagonal of columns": ((5, N), lambda x: x.diagonal(1)),
    "diagonal below": ((N, N), lambda x: x.diagonal(-1)),
    "trace": ((N, N), lambda x: x.trace()),
    "spectrum": ((2, N), lambda x: x.rfft().abs()),
    "frames": ((2, N * 4), lambda x: x.stft(8, 4).abs()),
    "conv": ((1, 2, N, 7), lambda x: x.conv(np.ones((3, 2, 3, 3), "f4"), stride=2, padding=1)),
    "max_pool": ((1, 2, N, 7), lambda x: x.max_pool(3, 2, 1)),
    "max_pool up": ((1, 2, N, 7), lambda x: x.max_pool(3, 2, 1, ceil_mode=True)),
    "mean_pool": ((1, 2, N, 7), lambda x: x.mean_pool(3, 2, 1, count_include_pad=False)),
    "mean_pool up": ((1, 2, N, 7), lambda x: x.mean_pool(3, 2, ceil_mode=True)),
    "twice as large": ((1, 2, N, 7), lambda x: x.resize([2 * x.shape[2], 14])),
    "smooth": ((1, 2, N, 7), lambda x: x.resize([x.shape[2] // 2 + 1, 3], mode="linear")),
    "space_to_depth": ((1, 2, N * 2, 4), lambda x: x.space_to_depth(2)),
    **{
        mode: ((N, 3), lambda x, mode=mode: x.pad([2, 0], [1, 0], mode=mode))
        for mode in ("edge", "reflect", "symmetric", "wrap")
    },
}


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built_of_symbolic_sizes(name: str) -> None:
    """The same call on a symbol and on each size: equal results, in numbers."""
    shape, build = BUILT[name]
    symbolic = Graph()
    symbolic.set_outputs([build(symbolic.input("x", shape))])
    rng = np.random.default_rng(0)
    for n in (3, 4, 5, 6, 7, 12):
        static = Graph()
        sizes = [bind_dim(d, {"n": n}) for d in shape]
        static.set_outputs([build(static.input("x", sizes))])
        x = rng.standard_normal(sizes).astype(np.float32)
        found, want = (interpret(g, {"x": x})[0] for g in (symbolic, static))
        np.testing.assert_array_equal(found, want)


def test_what_no_size_can_be_is_refused_at_once() -> None:
    x = Graph().input("x", ["n", 6])
    with pytest.raises(RlxError, match="cannot become"):
        x.reshape([x.shape[0], 7])
    with pytest.raises(RlxError, match="up to index 7"):
        x.slice([0, 0], [x.shape[0], 8])


@pytest.mark.parametrize(
    ("build", "n"),
    [
        (lambda x: x.reshape([x.shape[0] // 2, 12]), 5),
        (lambda x: x[4:], 3),
        (lambda x: x.roll(5, 0), 3),
        (lambda x: x.pad([3, 0], [0, 0], mode="reflect"), 3),
    ],
)
def test_what_a_size_cannot_be_is_refused_when_it_is_known(
    build: Callable[[Value], Value], n: int
) -> None:
    g = Graph()
    g.set_outputs([build(g.input("x", ["n", 6]))])
    interpret(g, {"x": np.ones((8, 6), np.float32)})
    with pytest.raises(RlxError, match=r"reshape|slice|index"):
        interpret(g, {"x": np.ones((n, 6), np.float32)})
