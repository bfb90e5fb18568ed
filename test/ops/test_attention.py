"""Attention and rotary embedding against definitions written row by row."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.autodiff import gradients
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret
from rlx.ir.op import placeholders, type_of
from rlx.kernels.fallback import emit as common
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.rope import Rope
from rlx.types import dtype
from support.evaluate import call
from support.runkernel import run_launch
from support.sweeps import pairwise

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
BATCH, DIM, SCALE = 2, 3, 0.8


def row(q: Array, k: Array, v: Array, seen: Array, bias: Array, *, cap: float) -> Array:
    """One query's result: q [D], k and v [Sk, D], seen and bias [Sk]."""
    scores = [SCALE * float(np.dot(q, key)) for key in k]
    if cap:
        scores = [cap * math.tanh(s / cap) for s in scores]
    scores = [s + b if see else -1e9 for s, see, b in zip(scores, seen, bias, strict=True)]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    return sum(w * value for w, value in zip(weights, v, strict=True)) / sum(weights)


def visible(kind: str, mask: Array, i: int, sq: int) -> Array:
    sk = mask.shape[0]
    position, keys = i + sk - sq, np.arange(sk)
    return {
        "causal": keys <= position,
        "sliding_window": (keys <= position) & (keys >= position - 1),
        "custom": mask >= 0.5,
    }.get(kind, np.ones(sk, bool))


@pytest.mark.parametrize("kind", ["none", "causal", "sliding_window", "custom", "bias"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("lengths", [(3, 5), (4, 4), (4, 2)])
@pytest.mark.parametrize("cap", [0.0, 1.5])
def test_every_row_is_the_definition(
    kind: str, heads: tuple[int, int], lengths: tuple[int, int], cap: float
) -> None:
    (h, hk), (sq, sk) = heads, lengths
    q = RNG.standard_normal((BATCH, h, sq, DIM))
    k, v = RNG.standard_normal((2, BATCH, hk, sk, DIM))
    mask = RNG.integers(0, 2, (BATCH, sk)).astype(np.float64)
    bias = RNG.standard_normal((h, sq, sk)) if kind == "bias" else np.zeros((h, sq, sk))
    want = np.empty_like(q)
    for b, n, i in itertools.product(range(BATCH), range(h), range(sq)):
        group, seen = n // (h // hk), visible(kind, mask[b], i, sq)
        want[b, n, i] = row(q[b, n, i], k[b, group], v[b, group], seen, bias[n, i], cap=cap)
    more = {"custom": [mask], "bias": [bias]}.get(kind, [])
    window = 1 if kind == "sliding_window" else 0

    def attention(*values: Any, layout: str) -> Any:
        return Graph().attention(
            *values, mask_kind=kind, window=window, scale=SCALE, softcap=cap, layout=layout
        )

    found = call(lambda *x: attention(*x, layout="bhsd"), q, k, v, *more)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)
    # The same heads as [B, S, H, D].
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    found = call(lambda *x: attention(*x, layout="bshd"), q, k, v, *more)
    np.testing.assert_allclose(found, want.transpose(0, 2, 1, 3), rtol=1e-12, atol=1e-12)


def test_defaults() -> None:
    q = RNG.standard_normal((5, 8)).astype(np.float32)
    node = call(lambda x: x.attention(x, x, num_heads=2), q)
    same = call(lambda x: x.attention(x, x, head_dim=4, scale=0.5, mask_kind="none"), q)
    assert node.shape == q.shape and np.array_equal(node, same)
    keep = np.array([1, 1, 0, 0, 0])
    masked = call(lambda x, m: x.attention(x, x, m, num_heads=2), q, keep)
    assert np.array_equal(masked, call(lambda x, y: x.attention(y, y, num_heads=2), q, q[:2]))


def test_a_row_that_sees_nothing_averages_the_values() -> None:
    q = RNG.standard_normal((1, 2, 4))
    found = call(lambda x, m: x.attention(x, x, m, num_heads=1), q, np.zeros((1, 2), bool))
    np.testing.assert_allclose(found, np.broadcast_to(q.mean(1, keepdims=True), q.shape))


def hidden_rows(dt: str, queries: int, wanted: str) -> Graph:
    """Attention of rows of which the first is hidden by -inf alone, and the second by the least
    number, with its gradients; ``wanted`` names by what."""
    g = Graph("hidden")
    low = float(ml_dtypes.finfo(dtype(dt).numpy).min)
    sizes = {"q": queries, "k": 5, "v": 5}
    q, k, v = (g.input(n, (2, 2, s, 8), dt) for n, s in sizes.items())
    bias = g.input("bias", (2, 1, queries, 5), dt)
    rows = np.zeros((1, 1, queries, 5), np.float64)
    rows[..., 0, :], rows[..., 1:2, :] = -np.inf, low
    bias = bias + g.constant(rows.astype(dtype(dt).numpy))
    out = q.attention(k, v, bias, layout="bhsd", mask_kind="bias", softcap=3.0)
    by = [{"q": q, "k": k, "v": v, "bias": bias}[n] for n in wanted.split()]
    loss = out.cast(to="f32").square().sum()
    g.set_outputs([out, *(gradients(loss, by) if by else [])])
    return g


@pairwise(
    dt=["f32", "f64", "f16", "bf16"],
    queries=[1, 2, 40],
    wanted=["", "q k v", "q k v bias"],
    way=["native", "common", "interpreted"],
)
def test_rows_that_a_bias_hides(dt: str, queries: int, wanted: str, way: str) -> None:
    g = hidden_rows(dt, queries, wanted)
    rng = np.random.default_rng(0)
    feeds = {
        v.name: rng.standard_normal(v.type.static_shape).astype(v.dtype.numpy) for v in g.inputs
    }
    found = (
        interpret(g, feeds)
        if way == "interpreted"
        else rlx.Session("cpu").compile(g, dispatch=way).run(feeds)
    )
    out, *grads = (x.astype(np.float64) for x in found)
    assert np.isfinite(out).all() and all(np.isfinite(x).all() for x in grads)
    assert not out[..., 0, :].any()
    mean = feeds["v"].astype(np.float64).mean(-2)
    if queries > 1 and dt != "f16":  # of which the least number leaves scores some digits
        np.testing.assert_allclose(
            out[..., 1, :], mean, atol=1e-2 if dt in ("f16", "bf16") else 1e-6
        )
    if grads:
        assert not grads[0][..., 0, :].any()
        assert queries == 1 or grads[0][..., 1, :].any()
        assert queries > 1 or not any(x.any() for x in grads)


def test_a_key_beside_the_least_number_is_the_only_one_that_counts() -> None:
    """Where the others are hidden by a number that is still less, or by -inf."""
    q, k, v = RNG.standard_normal((3, 1, 1, 3, 8)).astype(np.float32)
    for row in ([-3.0e38, -3.39e38, -3.4e38], [-3.4e38, -np.inf, -np.inf]):
        bias = np.array([row] * 3, np.float32)
        g = Graph("one")
        x = [g.input(n, a.shape) for n, a in zip("qkvb", (q, k, v, bias), strict=True)]
        g.set_outputs(x[0].attention(*x[1:], layout="bhsd", mask_kind="bias"))
        feeds = dict(zip("qkvb", (q, k, v, bias), strict=True))
        for out in (rlx.Session("cpu").compile(g).run(feeds), interpret(g, feeds)):
            np.testing.assert_allclose(out[0], np.broadcast_to(v[:, :, :1], v.shape), rtol=1e-6)


@pytest.mark.parametrize("dt", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_floats_are_rounded_once(dt: Any) -> None:
    q, k, v = (x.astype(dt) for x in RNG.standard_normal((3, 2, 4, 8)))
    found = call(lambda *x: x[0].attention(*x[1:], num_heads=2, mask_kind="causal"), q, k, v)
    wide = [x.astype(np.float32) for x in (q, k, v)]
    want = call(lambda *x: x[0].attention(*x[1:], num_heads=2, mask_kind="causal"), *wide)
    assert found.dtype == dt and np.array_equal(found, want.astype(dt))


def test_rank_4_must_say_its_layout() -> None:
    q = np.zeros((2, 2, 2, 2))
    with pytest.raises(GraphError, match="needs layout='bhsd'"):
        call(lambda x: x.attention(x, x), q)
    with pytest.raises(ShapeError, match="num_heads 3 does not fit"):
        call(lambda x: x.attention(x, x, num_heads=3, layout="bhsd"), q)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({}, "needs num_heads or head_dim"),
        ({"num_heads": 3}, "3 does not divide the 8 features"),
        ({"num_heads": 2, "head_dim": 3}, "head_dim 3 does not fit"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, int], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        call(lambda x: x.attention(x, x, **sizes), np.zeros((2, 3, 8)))


def test_symbolic_dims() -> None:
    g = Graph()
    q = g.input("q", ["batch", "new", 8])
    k = g.input("k", ["batch", "all", 8])
    node = Attention(q, k, k, num_heads=2, kv_heads=2, scale=0.5, mask_kind="causal")
    assert node.out.shape == q.shape
    with pytest.raises(ShapeError, match="bind these dims first"):
        node.expand()
    same = Attention(q, q, q, num_heads=2, kv_heads=2, scale=0.5, mask_kind="causal")
    assert same.expand().shape == q.shape


def test_cost_counts_two_products() -> None:
    node = Attention(
        *placeholders([type_of("2x3x8xf32"), *[type_of("2x5x8xf32")] * 2]),
        num_heads=2, kv_heads=2, scale=1.0,
    )  # fmt: skip
    assert node.cost().flops == 2 * (2 * 2 * 2 * 3 * 5 * 4)


# -- rope ----------------------------------------------------------------------------------


def angles(seq: int, columns: int) -> Array:
    return np.arange(seq)[:, None] / 10.0 ** np.arange(columns)


def test_rope_turns_pairs() -> None:
    """A pair is a complex number times exp(i angle)."""
    x, a = RNG.standard_normal((2, 5, 3, 8)), angles(5, 3)
    found = call(lambda *v: v[0].rope(v[1], v[2], n_rot=6, layout="bshd"), x, np.cos(a), np.sin(a))
    turned = (x[..., :3] + 1j * x[..., 3:6]) * np.exp(1j * a)[:, None, :]
    np.testing.assert_allclose(found[..., :3], turned.real, atol=1e-14)
    np.testing.assert_allclose(found[..., 3:6], turned.imag, atol=1e-14)
    assert np.array_equal(found[..., 6:], x[..., 6:])


def test_rope_layouts_and_table_widths_agree() -> None:
    x, a = RNG.standard_normal((2, 5, 3, 8)), angles(5, 4)
    tables = np.cos(a), np.sin(a)
    want = call(lambda *v: v[0].rope(*v[1:], n_rot=4, layout="bshd"), x, *tables)
    flat = call(lambda *v: v[0].rope(*v[1:], 8, 4), x.reshape(2, 5, 24), *tables)
    assert np.array_equal(flat, want.reshape(2, 5, 24))
    heads = call(
        lambda *v: v[0].rope(*v[1:], n_rot=4, layout="bhsd"), x.transpose(0, 2, 1, 3), *tables
    )
    assert np.array_equal(heads.transpose(0, 2, 1, 3), want)
    narrow = call(
        lambda *v: v[0].rope(*v[1:], 8, 4), x[0].reshape(5, 24), *(t[:, :2] for t in tables)
    )
    assert np.array_equal(narrow, want[0].reshape(5, 24))


def test_rope_takes_wide_tables() -> None:
    x, a = RNG.standard_normal((1, 4, 4)).astype(ml_dtypes.bfloat16), angles(4, 2)
    tables = np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)
    found = call(lambda *v: v[0].rope(*v[1:], 4), x, *tables)
    want = call(lambda *v: v[0].rope(*v[1:], 4), x.astype(np.float32), *tables)
    assert np.array_equal(found, want.astype(x.dtype))
    with pytest.raises(DTypeError, match="cos is f64"):
        call(lambda *v: v[0].rope(*v[1:], 4), x, *(t.astype(np.float64) for t in tables))


@pytest.mark.parametrize("n_rot", [2, 4, 6])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_rope_loops(n_rot: int, layout: str) -> None:
    shape = (2, 3, 12) if layout == "bshd" else (2, 2, 3, 6)
    x = RNG.standard_normal(shape)
    tables = [np.cos(angles(3, 3)), np.sin(angles(3, 3))]
    types = [type_of("x".join(map(str, a.shape)) + "xf64") for a in (x, *tables)]
    node = Rope(*placeholders(types), head_dim=6, n_rot=n_rot, layout=layout)
    config = common.CommonConfig.of(node)
    found = np.empty_like(x)
    run_launch(common, config, common.launch(config), [x, *tables, found])
    np.testing.assert_allclose(found, node.reference(x, *tables), rtol=1e-14, atol=1e-15)
