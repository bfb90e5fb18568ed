"""What a precision policy makes of a graph, and that every device runs what it made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op import op_class
from rlx.models import Embed
from rlx.ops import OP_MODULES, load_all
from rlx.precision import OpClass, Precision, Types
from rlx.precision.classes import _CLASSES
from rlx.precision.rewrite import with_precision
from rlx.types import bf16, f16
from support.minilm import PACKAGE, minilm_dir

Array = np.ndarray[Any, Any]

BF16 = Types(bf16, keeps_sums=True)


def values(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ops(g: rlx.Graph) -> list[str]:
    return [f"{n.short}:{n.out.dtype}" for n in g.nodes()]


def layer() -> rlx.Graph:
    g = rlx.Graph("layer")
    x = g.input("x", [4, 64])
    w = g.param("w", [64, 64], value=values(0, 64, 64) / 8)
    h = (x @ w + g.param("b", [64], value=values(1, 64))).gelu()
    g.set_outputs([h @ w, h.softmax(axis=-1)])
    return g


def test_products_round_their_operands_and_keep_their_sums() -> None:
    g, report = with_precision(layer(), BF16)
    round_trip = ["cast:bf16", "cast:f32"]
    assert ops(g) == [
        *round_trip, *round_trip, "matmul:f32", "add:f32", "gelu:f32",
        *round_trip, "matmul:f32", "softmax:f32",
    ]  # fmt: skip
    assert report.changed == {"matmul in bf16": 2}
    assert report.casts == {"f32 to bf16": 3, "bf16 to f32": 3}
    assert "changed: matmul in bf16 x 2" in str(report)


def test_a_cast_is_dropped_only_where_it_undoes_a_widening() -> None:
    g = rlx.Graph("casts")
    w = g.param("w", [8, 8], "bf16")
    once = g.input("x", [8, 8]).cast("bf16").cast("f32")  # a rounding: it stays
    g.set_outputs([once @ w.cast("f32")])
    made, report = with_precision(g, BF16)
    assert ops(made) == ["cast:bf16", "cast:f32", "cast:f32", "matmul:f32"]
    assert report.casts == {"bf16 to f32": 2}


def test_movement_goes_on_in_the_type_that_it_finds() -> None:
    g = rlx.Graph("moves")
    q = g.input("q", [1, 4, 8])
    y = q.attention(q, q, num_heads=2).reshape([4, 8]).T
    g.set_outputs([y @ q.reshape([4, 8])])
    made, _ = with_precision(g, BF16)
    assert ops(made) == [
        "cast:bf16", "attention:bf16", "reshape:bf16", "transpose:bf16", "cast:f32",
        "reshape:f32", "cast:bf16", "cast:f32", "matmul:f32",
    ]  # fmt: skip


def test_what_is_not_f32_is_left_alone() -> None:
    g = rlx.Graph("others")
    i, d = g.input("i", [4], "i64"), g.input("d", [3, 3], "f64")
    h, table = g.input("h", [3, 3], "f16"), g.param("t", [3000, 4])
    big = g.input("big", [4])
    g.set_outputs(
        [table.gather(i + 2047), d @ d, h @ h, big.cast("i32"), big.gt(2047.5), d.solve(d)]
    )
    every = Types(f16, f16, f16, f16)
    made, _ = with_precision(g, every)
    assert [v.type for v in made.outputs] == [v.type for v in g.outputs]
    rng = np.random.default_rng(3)
    feeds = {
        "i": np.array([0, 2, 4, 901]), "d": rng.normal(size=(3, 3)),
        "h": np.eye(3, dtype=np.float16), "big": np.array([2047, 2048, 2049, 70000], np.float32),
    }  # fmt: skip
    params = {"t": np.repeat(np.arange(3000, dtype=np.float32)[:, None] % 512, 4, 1)}
    for a, b in zip(
        rlx.interpret(made, feeds, params), rlx.interpret(g, feeds, params), strict=True
    ):
        assert np.array_equal(a, b)


def test_bodies_are_rewritten_and_keep_their_types() -> None:
    g = rlx.Graph("loop")
    x, w = g.input("x", [4, 4]), g.param("w", [4, 4])
    g.set_outputs([rlx.fori(3, lambda i, y: (y @ w).tanh(), x)])
    made, report = with_precision(g, BF16)
    assert report.changed == {"matmul in bf16": 1}
    feeds, params = {"x": values(1, 4, 4)}, {"w": values(2, 4, 4)}
    (found,), (want,) = rlx.interpret(made, feeds, params), rlx.interpret(g, feeds, params)
    assert 0 < np.abs(found - want).max() < 0.05


def test_the_mask_of_attention_is_not_rounded() -> None:
    g = rlx.Graph("mask")
    x = g.input("x", [1, 4, 8])
    bias = g.input("bias", [1, 1, 4, 4])
    g.set_outputs([x.attention(x, x, bias, num_heads=2, mask_kind="bias")])
    made, _ = with_precision(g, BF16)
    assert "cast:bf16" in ops(made)
    attention = next(n for n in made.nodes() if n.short == "attention")
    assert [v.dtype.name for v in attention.present] == ["bf16", "bf16", "bf16", "f32"]


def test_named_ops_exist_and_have_one_class() -> None:
    load_all()
    assert set(_CLASSES) <= set(OP_MODULES)
    assert {op_class(n).dialect for n in _CLASSES} == {"mir"}
    assert all(f16 in op_class(n).dtypes for n in _CLASSES)
    assert set(_CLASSES.values()) == set(OpClass) - {OpClass.ELEMENTWISE}


def test_places_and_symbols_stay() -> None:
    g = rlx.Graph("symbols")
    x = g.input("x", ["n", 8])
    y = x @ g.param("w", [8, 8], value=values(0, 8, 8))
    g.set_outputs([y])
    made, _ = with_precision(g, BF16)
    assert y.op is not None and {n.location for n in made.nodes()} == {y.op.location}
    f = rlx.Session(precision="bf16").compile(g)
    for n in (1, 5):
        assert f.run({"x": values(n, n, 8)})[0].shape == (n, 8)


POLICIES = ["bf16", "f16", *(p for p in rlx.PrecisionPolicy if p != "custom"), {"compute": "f16"}]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_cpu_and_the_interpreter_agree(policy: Any) -> None:
    """Both run the rewritten graph; what is left is the order of sums, before one rounding."""
    feeds = {"x": values(2, 4, 64)}
    outs: list[list[Array]] = []
    for device in ("cpu", "interpret"):
        named = isinstance(policy, str) and policy in list(Precision)
        session = rlx.Session(device, policy if named else "f32")
        session = session if named else session.with_policy(policy)
        outs.append(session.compile(layer()).run(feeds))
    exact = rlx.Session().compile(layer()).run(feeds)
    for cpu, reference, f32 in zip(*outs, exact, strict=True):
        assert np.abs(cpu - reference).max() <= 1e-2
        changed = np.abs(cpu - f32).max() > 1e-6
        assert changed == (policy != "always_f32")


def test_equal_graphs_of_two_precisions_are_two_entries_of_a_cache() -> None:
    from rlx.compat.compile_cache import CompileCache

    cache = CompileCache()
    a = cache.compile(rlx.Session(), layer())
    b = cache.compile(rlx.Session(precision="bf16"), layer())
    assert a is not b and cache.compile(rlx.Session(precision="bf16"), layer()) is b
    assert a.precision is None and b.precision is not None


def test_an_artifact_has_a_precision() -> None:
    feeds = {"x": values(2, 4, 64)}
    kept = rlx.Session().load(rlx.compile_artifact(layer(), precision="bf16"))
    want = rlx.Session(precision="bf16").compile(layer()).run(feeds)
    for a, b in zip(kept.run(feeds), want, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("precision, bound", [("bf16", 2e-2), ("f16", 2.4e-3)])
def test_a_layer_of_bert(precision: str, bound: float) -> None:
    """The largest error of a layer of BERT-base on 32 tokens, of results of variance 1 (measured:
    1.1e-2 and 1.2e-3; on average 1.8e-3 and 2.3e-4)."""
    e, f = 768, 3072
    g = rlx.Graph("bert")
    x = g.input("x", [1, 32, e])
    square, row = [e, e], [e]
    shapes = [square, row] * 4 + [row, row, [e, f], [f], [f, e], row, row, row]
    params = [
        g.param(f"p{i}", s, value=values(i, *s) / np.float32(s[0] ** 0.5 if len(s) > 1 else 10))
        for i, s in enumerate(shapes)
    ]
    ones = g.constant(np.ones(e, np.float32))
    for i in (8, 14):  # the scales of the norms
        params[i] = ones
    g.set_outputs([x.bert_layer(*params, num_heads=12)])
    feeds = {"x": values(99, 1, 32, e)}
    exact, found = (rlx.Session(precision=p).compile(g).run(feeds)[0] for p in ("f32", precision))
    error = np.abs(found - exact)
    assert bound / 10 < error.max() <= bound and error.mean() <= bound / 6, error.max()


COSINE = {"bf16": 0.99995, "f16": 0.999999}
"""The least cosine of an embedding and that of f32 (measured: 0.99998 and 0.9999997)."""


@pytest.mark.skipif(minilm_dir() is None, reason=f"the package {PACKAGE} is not installed")
@pytest.mark.parametrize("precision", COSINE)
def test_minilm(precision: str) -> None:
    pytest.importorskip("tokenizers")
    path = minilm_dir()
    assert path is not None
    texts = ["a cat sits", "The weather is fine today.", "RLX compiles tensor graphs. " * 12]
    exact = Embed.from_dir(path).encode(texts)
    found = Embed.from_dir(path, precision=precision).encode(texts)
    cosine = (exact * found).sum(-1)
    assert cosine.min() >= COSINE[precision], cosine
    assert np.abs(exact - found).max() > 1e-6
