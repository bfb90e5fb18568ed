"""Lowering with symbolic sizes, against the compile for each size (``support.symbolic``)."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.base.dims import SymDim
from rlx.ir.clone import rebuild
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.models.bert import BertConfig, bert_encoder
from rlx.ops.sugar import concat
from support.random_graphs import random_case
from support.samples import cases_of, op_classes
from support.size_models import training_on_images
from support.sweeps import covering, seeds, turn
from support.symbolic import is_bound, judge, lower_at, with_symbols

SIZES = (1, 2, 3, 5, 8, 16, 33)


OPS = [op for op in op_classes() if op.samples]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples_of_ops(op: type[Op]) -> None:
    """Each sample on one element type with a size as a symbol, and so each size that is its first,
    its second and so on; and at one other size that its guards let in."""
    first = {c.number: c for c in reversed(list(cases_of(op)))}
    symbolic = [
        (case, number, graph, size)
        for case in first.values()
        for number, (graph, size) in enumerate(with_symbols(case.graph()))
    ]
    for case, number, graph, size in covering(symbolic, lambda c: [c[0].number, ("size", c[1])]):
        others = [{"n": n} for n in SIZES if n != size and is_bound(graph, {"n": n})]
        most = len(turn(others, 0, max(1, len(others))))
        first_of = (OPS.index(op) + case.number + number) % max(1, len(others))
        others = others[first_of:] + others[:first_of]
        general = (case.number + number) % 2 == 1
        assert not judge(graph, {"n": size}, others, general, most)[1], str(case)


@pytest.mark.parametrize("seed", seeds(15, 40))
def test_random_graphs(seed: int) -> None:
    graph = random_case(seed).graph
    for number, (symbolic, size) in enumerate(with_symbols(graph)[:2]):
        others = [{"n": n} for n in (1, 4, 9, 31) if n != size and is_bound(symbolic, {"n": n})]
        general = (seed + number) % 2 == 1
        assert not judge(symbolic, {"n": size}, others, general)[1]


def _encoder() -> Graph:
    config = BertConfig(
        vocab=100, hidden=384, layers=1, heads=12, inner=1536, positions=512
    )  # of MiniLM, with fewer words and layers
    ranges = {"batch": SymDim.symbol("batch", 1, 64), "tokens": SymDim.symbol("tokens", 1, 256)}
    return rebuild(bert_encoder(config), lambda t: t.bind(ranges), ranges)


def test_few_schedules_of_an_encoder_serve_all_sizes() -> None:
    graph = _encoder()
    left = [{"batch": b, "tokens": t} for b in range(1, 65) for t in range(1, 257)]
    np.random.default_rng(0).shuffle(left)
    found = 0
    while left:
        variant = lower_at(graph, left[0])
        served = [sizes for sizes in left if variant.serves(sizes)]
        assert served, f"{left[0]} does not meet the guards that it left"
        found += 1
        assert not judge(graph, left[0], served[1:3])[1]
        left = [sizes for sizes in left if not variant.serves(sizes)]
    assert found <= 16


def test_general_schedules_of_an_encoder() -> None:
    """They serve all sizes but for what decides the order of sums, with the bits of each."""
    graph = _encoder()
    for at, least, most in (
        ({"batch": 3, "tokens": 20}, 13, 256),
        ({"batch": 3, "tokens": 5}, 2, 12),
    ):
        found = lower_at(graph, at, general=True)
        assert all(
            found.serves({"batch": b, "tokens": t}) == (least <= t <= most)
            for b in (1, 2, 7, 64)
            for t in range(1, 257)
        )
        others = [{"batch": b, "tokens": t} for b, t in ((1, least), (64, most), (2, least + 3))]
        assert judge(graph, at, others, general=True) == (4, [])


def test_a_decoder_with_a_cache() -> None:
    """A step of a decoder over a cache of any length."""
    g = Graph("decoder")
    past = rlx.Dim("past", 1, 4096)
    x = g.input("x", ["batch", 1, 64])
    keys = g.input("keys", ["batch", past, 4, 16])
    values = g.input("values", ["batch", past, 4, 16])
    w = [g.param(f"w{i}", [64, 64]) for i in range(4)]
    q, k, v = ((x @ m).reshape(["batch", 1, 4, 16]) for m in w[:3])
    k, v = concat([keys, k], 1), concat([values, v], 1)
    q, kt, vt = (t.transpose((0, 2, 1, 3)) for t in (q, k, v))
    scores = (q @ kt.transpose((0, 1, 3, 2)) * 0.25).softmax(-1)
    y = (scores @ vt).transpose((0, 2, 1, 3)).reshape(["batch", 1, 64]) @ w[3]
    g.set_outputs([x + y, k, v])
    for at in ({"batch": 1, "past": 100}, {"batch": 3, "past": 7}):
        others = [{"batch": b, "past": p} for b in (1, 2, 3) for p in (1, 9, 15, 64, 127, 4096)]
        met, wrong = judge(g, at, others)
        assert not wrong
        assert met > 1


def test_general_schedules_of_training_on_images() -> None:
    """Neither the batch nor the images are those of one size, but narrow ones have a schedule of
    their own."""
    graph = training_on_images(width=8)
    for width, other in ((11, 20), (31, 50)):
        at = {"batch": 6, "height": 12, "width": width}
        others = [{"batch": 33, "height": 20, "width": other}]
        assert judge(graph, at, others, general=True) == (2, [])


def test_a_loop_that_is_one_kernel_of_named_rounds() -> None:
    """One general variant for all sizes, and one beside it for more than one round."""
    g = rlx.Graph("loops")
    x = g.input("x", [rlx.Dim("n", 1, 5000), 3])
    inner, _ = rlx.scan(lambda c, _: (c * 0.5 + 1.0, None), x[0], length=x.shape[0])
    last, kept = rlx.scan(lambda c, r: (c * 0.5 + r, c), inner, x, reverse=True)
    g.set_outputs([last, kept])
    others = [{"n": n} for n in (1, 2, 4000)]
    assert judge(g, {"n": 9}, others, general=True) == (4, [])
    assert judge(g, {"n": 9}, others) == (3, [])


def test_a_size_of_one_is_bound_for_good() -> None:
    g = Graph()
    x = g.input("x", ["n", "m"])
    g.set_outputs((x * 2).sum(axes=0))
    found = lower_at(g, {"n": 1, "m": 7})
    assert found.serves({"n": 1, "m": 5})
    assert not found.serves({"n": 2, "m": 7}) and not found.serves({"n": 1, "m": 1})


def test_a_dim_whose_range_is_one_size() -> None:
    for size in (0, 1, 2):
        g = Graph()
        x = g.input("x", [rlx.Dim("n", size, size), "m"])
        g.set_outputs((x * 2).sum(axes=1))
        for general in (False, True):
            assert lower_at(g, {"n": size, "m": 7}, general).serves({"n": size, "m": 8})
