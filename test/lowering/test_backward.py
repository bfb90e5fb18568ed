"""What gradients become: kernels of their own, no copies, the same bits at any thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.autodiff import gradients
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.lowering.compilation import Options
from rlx.ops.control.checkpoint import Barrier
from rlx.ops.conv.max_pool import MaxPool
from rlx.ops.conv.weights_grad import ConvWeights
from rlx.runtime import _native
from support.compiled import agrees, arrays

Array = np.ndarray[Any, Any]


def native_ops(g: rlx.Graph) -> dict[str, int]:
    """How many launches went to each family."""
    found: dict[str, int] = {}
    for label, n in compiled(g).dispatch.native.items():
        family = label.split(":")[0]
        found[family] = found.get(family, 0) + n
    return found


def compiled(g: rlx.Graph, **options: Any) -> Any:
    """What a compile says of itself, the cache left out."""
    from rlx import knobs

    with knobs.cache.scoped(False):
        f = rlx.Session("cpu").compile(g, **vars(Options(**options)))
    return f.reports[0].compilation


def same_at_any_thread_count(g: rlx.Graph, feeds: dict[str, Array]) -> None:
    f, before = rlx.Session("cpu").compile(g), _native.num_threads()
    try:
        runs: list[list[Array]] = []
        for threads in (1, 2, 7):
            _native.set_threads(threads)
            runs.append(f.run(feeds))
    finally:
        _native.set_threads(before)
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


CONVS: list[tuple[list[int], int, dict[str, Any]]] = [
    # x, output channels, geometry: several panels and tiles, parts of images, every option
    ([5, 3, 9, 8], 50, {"taps": (3, 2), "stride": (1, 1), "low": (1, 0), "dilation": (1, 1)}),
    ([40, 2, 20, 20], 5, {"taps": (3, 3), "stride": (1, 1), "low": (1, 1), "dilation": (1, 1)}),
    ([2, 4, 11, 10], 6, {"taps": (3, 3), "stride": (2, 3), "low": (2, 1), "dilation": (2, 1),
                         "groups": 2}),
    ([3, 20, 7], 33, {"taps": (1,), "stride": (1,), "low": (0,), "dilation": (1,)}),
    ([2, 3, 4, 5, 6], 17, {"taps": (2, 2, 3), "stride": (1, 2, 1), "low": (0, 1, 1),
                           "dilation": (1, 1, 1)}),
    ([2, 3, 12], 4, {"taps": (2,), "stride": (1,), "low": (-2,), "dilation": (1,)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("x", "outputs", "geometry", "dtype"), [*((*c, "f32") for c in CONVS), (*CONVS[1], "bf16")]
)
def test_the_gradient_of_conv_weights(
    x: list[int], outputs: int, geometry: dict[str, Any], dtype: str
) -> None:
    spatial = [
        (n + 2 * lo - (k - 1) * d - 1) // s + 1
        for n, k, s, lo, d in zip(x[2:], *list(geometry.values())[:4], strict=True)
    ]
    g = rlx.Graph()
    tensor, at = g.input("x", x, dtype), g.input("g", [x[0], outputs, *spatial], dtype)
    g.set_outputs([ConvWeights(tensor, at, **geometry).out])
    agrees(g, {n: np.round(a) for n, a in arrays(g).items()})  # whole numbers: sums are exact
    assert native_ops(g)["conv_weights"] == 1
    same_at_any_thread_count(g, arrays(g))


def test_a_conv_and_its_gradients_are_native() -> None:
    g = rlx.Graph()
    x, w, b = g.input("x", [3, 8, 9, 9]), g.input("w", [16, 8, 3, 3]), g.input("b", [16])
    y = g.conv2d(x, w, b, padding=1).relu()
    g.set_outputs(gradients((y * y).sum(), [x, w, b]))
    agrees(g, {n: np.clip(np.round(a), -1, 1) for n, a in arrays(g).items()})
    report = compiled(g).dispatch
    assert not report.common and "conv_weights" not in report.rewritten, report


POOLS: list[tuple[list[int], tuple[int, ...], dict[str, Any]]] = [
    ([2, 3, 8, 40], (2, 2), {}),
    ([2, 3, 9, 37], (3, 3), {"stride": 2, "padding": 1}),
    ([1, 2, 12, 30], (3, 2), {"stride": 1, "dilation": (2, 3)}),
    ([2, 2, 50], (4,), {"stride": 3, "padding": 2}),
    ([1, 2, 5, 6, 20], (2, 3, 2), {"ceil_mode": True}),
]


@pytest.mark.parametrize(
    ("shape", "kernel", "rest", "dtype"), [*((*c, "f32") for c in POOLS), (*POOLS[1], "f16")]
)
def test_max_pool_and_the_way_back(
    shape: list[int], kernel: tuple[int, ...], rest: dict[str, Any], dtype: str
) -> None:
    g = rlx.Graph()
    x = g.input("x", shape, dtype)
    y = MaxPool.build(x, kernel, **rest)
    assert isinstance(y.op, MaxPool)
    weight = g.input("weight", list(y.type.static_shape), dtype)
    g.set_outputs([y, y.op.indices(), *gradients((y * weight).cast(to="f32").sum(), [x])])
    given = arrays(g)
    given["x"][:] = np.round(given["x"])  # equal elements in a window
    given["x"].reshape(-1)[::17] = np.nan
    given["x"].reshape(-1)[5::13] = -np.inf
    agrees(g, given)
    assert native_ops(g)["pool"] == 3
    same_at_any_thread_count(g, arrays(g))


def test_a_window_of_many_taps_goes_the_common_way() -> None:
    g = rlx.Graph()
    g.set_outputs([g.max_pool2d(g.input("x", [1, 1, 9, 9]), 7, 1)])
    agrees(g)
    assert "pool" not in native_ops(g)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_gradient_of_a_norm_is_one_row_kernel(centered: bool, dtype: str) -> None:
    g = rlx.Graph()
    x, gamma = g.input("x", [4, 6, 40], dtype), g.input("gamma", [40], dtype)
    at = g.input("at", [4, 6, 40], dtype)
    y = g.layer_norm(x, gamma, None) if centered else g.rms_norm(x, gamma)
    g.set_outputs(gradients((y * at).cast(to="f32").sum(), [x]))
    agrees(g)
    fused = compiled(g).dispatch.native
    assert list(fused) == [f"rowwise: {'layer' if centered else 'rms'}_norm_grad"], fused


def step(tokens: int = 24, width: int = 32) -> rlx.Graph:
    """A training step of a block with attention, norms, a feed-forward part and cross entropy."""
    g = rlx.Graph("step")
    ids, labels = g.input("ids", [2, tokens], "i64"), g.input("labels", [2, tokens], "i64")
    shapes = {
        "words": [50, width], "wq": [width, width], "wk": [width, width], "wv": [width, width],
        "wo": [width, width], "gamma": [width], "beta": [width], "w1": [width, 4 * width],
        "b1": [4 * width], "w2": [4 * width, width], "head": [width, 50],
    }  # fmt: skip
    w = {n: g.input(n, s) for n, s in shapes.items()}

    def norm(x: Value) -> Value:
        return g.layer_norm(x, w["gamma"], w["beta"])

    x = w["words"].gather(ids)
    h = norm(x)
    q, k, v = (h @ w[n] for n in ("wq", "wk", "wv"))
    x = x + g.attention(q, k, v, num_heads=4, mask_kind="causal") @ w["wo"]
    x = x + (norm(x) @ w["w1"] + w["b1"]).gelu() @ w["w2"]
    loss = g.softmax_cross_entropy(norm(x) @ w["head"], labels).mean()
    grads = gradients(loss, list(w.values()))
    g.set_outputs([loss, *(v - d * 0.1 for v, d in zip(w.values(), grads, strict=True))])
    return g


def feeds_of(g: rlx.Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    given = {n: a * np.float32(0.3) for n, a in arrays(g).items()}
    return given | {n: rng.integers(0, 50, (2, 24)) for n in ("ids", "labels")}


def test_a_training_step_is_that_of_the_interpreter_at_any_thread_count() -> None:
    g = step()
    feeds = feeds_of(g)
    agrees(g, feeds)
    assert not compiled(g).dispatch.common
    same_at_any_thread_count(g, feeds)


def test_updates_are_written_over_the_weights_by_the_products_that_make_them() -> None:
    g = step()
    weights = len(g.inputs) - 2
    donate = tuple((i + 2, i + 1) for i in range(weights))
    feeds = feeds_of(g)
    f = rlx.Session("cpu").compile(g, donate=donate)
    want = f.run(feeds)
    state = {str(v.name): feeds[str(v.name)].copy() for v in g.inputs[2:]}
    (loss,) = f.run_in_place({n: feeds[n] for n in ("ids", "labels")}, state)
    assert loss == want[0]
    for a, b in zip(state.values(), want[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    rows = f.profile(feeds, runs=1).rows
    assert not [r for r in rows if r.ops == "donated outputs"]


def test_a_weight_that_its_update_multiplies_is_not_written_over_at_once() -> None:
    """Muon and its like: the new value is a product of the old one."""
    g = rlx.Graph()
    w, d = g.input("w", [200, 200]), g.input("d", [200, 200])
    g.set_outputs([(w @ d) * 0.5 + w])
    f = rlx.Session("cpu").compile(g, donate=((0, 0),))
    feeds = {n: np.round(a) for n, a in arrays(g).items()}
    want = rlx.interpret(g, feeds)[0]
    state = {"w": feeds["w"].copy()}
    f.run_in_place({"d": feeds["d"]}, state)
    np.testing.assert_array_equal(state["w"], want)


def arena(g: rlx.Graph, **options: Any) -> int:
    found = compiled(g, **options).arena
    return max(b.offset + b.size for b in found)


def test_gradients_of_weights_end_the_life_of_what_they_read() -> None:
    """A chain of layers: without reordering what every layer's gradient reads would live on."""
    g = rlx.Graph()
    x = g.input("x", [256, 64])
    weights = [g.input(f"w{i}", [64, 64]) for i in range(8)]
    h = x
    for w in weights:
        h = (h @ w).tanh()
    g.set_outputs([h.sum(), *gradients(h.sum(), weights)])
    given = arrays(g)
    agrees(g, {n: a if n == "x" else a * np.float32(0.05) for n, a in given.items()})
    one = 256 * 64 * 4
    # Eight results, the cotangent before and after a product, and an operand of it packed.
    assert arena(g) < (8 + 3) * one


def test_a_value_that_nothing_reads_any_more_is_written_over() -> None:
    """But none that is read again, by another view of it or in another order."""
    one = 512 * 512 * 4

    def product(g: Graph) -> Value:
        return g.input("x", [512, 4]) @ g.input("y", [4, 512])

    def run(g: Graph, *outs: Value) -> int:
        ends = enumerate(outs)  # each is read by a product
        g.set_outputs([v.reshape((-1, 2)) @ g.input(f"v{i}", [2, 1]) for i, v in ends])
        agrees(g)
        return arena(g) // one

    g = Graph()
    assert run(g, product(g).tanh()) == 1
    g = Graph()
    a = product(g)
    assert run(g, a.tanh() + a.T) == 2
    g = Graph()
    a = product(g)
    b = a.tanh()  # reads a before the last
    assert run(g, a.T.sin() + b, b.exp()) == 3
    g = Graph()
    a = product(g)
    barrier: Any = Barrier
    (held,) = barrier(a).results
    assert run(g, a.tanh(), held.sin()) == 2


def test_a_large_right_operand_is_packed_in_parts() -> None:
    """The gradient of a wide weight: the cotangent is larger than all else."""
    g = Graph()
    x, y = g.input("x", [200, 40]), g.input("y", [200, 6001])
    w, b = g.input("w", [40, 6001]), g.input("b", [6001])
    g.set_outputs([w - (x.T @ y + b).relu() * 0.5, (x.T @ y).sum()])
    given = {n: np.round(a * 2) for n, a in arrays(g).items()}
    f = rlx.Session("cpu").compile(g)
    for found, want in zip(f.run(given), rlx.interpret(g, given), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)
    packed = [r for r in f.profile(given, runs=1).rows if r.kernel.startswith("pack")]
    assert sum(r.calls for r in packed) > 2
    # The product for the sum, and a part of the cotangent: whole it takes 4.8 MB.
    assert arena(g) < 40 * 6001 * 4 + (5 << 19)
    same_at_any_thread_count(g, given)


def test_attention_has_gradients_of_its_own_and_keeps_no_probabilities() -> None:
    g = Graph()
    q, k, v = (g.input(n, [1, 512, 32]) for n in "qkv")
    loss = (g.attention(q, k, v, num_heads=4, mask_kind="causal") * v).sum()
    g.set_outputs([loss, *gradients(loss, [q, k, v])])
    assert native_ops(g)["attention_grad"] == 1
    assert arena(g) < 8 * 512 * 32 * 4  # the probabilities are 64 times that of an operand
    same_at_any_thread_count(g, arrays(g))


def test_the_gradient_by_a_bias_of_attention() -> None:
    """Which is summed over scores, so that they are all there; without it they are not."""
    g = Graph()
    q, bias = g.input("q", [2, 12, 8]), g.input("bias", [2, 1, 12])
    loss = (g.attention(q, q, q, bias, num_heads=2, mask_kind="bias") * q).sum()
    g.set_outputs(gradients(loss, [q, bias]))
    agrees(g)
    assert "attention_grad" not in native_ops(g)
    g.set_outputs(gradients(loss, [q]))
    agrees(g)
    assert native_ops(g)["attention_grad"] == 1
