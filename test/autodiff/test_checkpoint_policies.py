"""What a derivative keeps of a region by its policy: equal values, other memory and work."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.autodiff import gradients
from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ops.control.bodies import make
from rlx.ops.control.checkpoint import Checkpoint
from rlx.ops.control.remat_policies import Policy
from rlx.text import graph_text, parse_graph
from support.compiled import agrees

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def exps(op: Op) -> bool:
    return op.short == "exp"


POLICIES: dict[str, Policy] = {
    "products": "products",
    "names": ["inner", "count"],
    "function": exps,
    "everything": lambda op: True,
}


def deep(policy: Policy, layers: int = 2) -> Graph:
    """Layers of two products each; of what is named, one value is of integers."""
    g = Graph("deep")
    h = g.input("x", [2, 3], "f64")
    for i in range(layers):
        w = g.param(f"w{i}", [3, 3], "f64")

        def layer(h: rlx.Value, w: rlx.Value = w) -> rlx.Value:
            n = rlx.checkpoint_name(h.argmax(-1), "count")
            y = rlx.checkpoint_name(h @ w, "inner").exp() @ w
            return (y * 0.1).tanh() + h * n.cast("f64").unsqueeze(1)

        h = rlx.checkpoint(layer, policy)(h)
    g.set_outputs((h * h).sum())
    return g


TRANSFORMS: dict[str, Callable[[Graph], Graph]] = {
    "grad": lambda g: rlx.value_and_grad(g, ["w0", "x", "w1"]),
    "hvp": lambda g: rlx.hvp(g, ["w1", "x"]),
    "hessian": lambda g: rlx.hessian(g, "w0"),
    "batches": lambda g: rlx.vmap(rlx.grad(g, ["w0", "x"]), {"x": 1, "w1": 0}, 2),
    "grad of batches": lambda g: rlx.vjp(rlx.vmap(g, ["x"], 2), ["w0", "x"]),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_values_and_derivatives_are_the_same(policy: str, transform: str) -> None:
    made, plain = (TRANSFORMS[transform](deep(p)) for p in (POLICIES[policy], None))
    arrays = {
        str(v.name): RNG.standard_normal(v.type.static_shape) for v in (*made.inputs, *made.params)
    }
    want = rlx.interpret(plain, arrays)
    for found in (agrees(made, arrays), rlx.interpret(parse_graph(graph_text(made)), arrays)):
        for a, e in zip(found, want, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-12)


def compiled(g: Graph) -> Any:
    with knobs.cache.scoped(False):
        return rlx.Session("cpu").compile(g)


def launched(g: Graph, short: str) -> int:
    """How many launches of a compiled graph compute an op."""
    native = compiled(g).reports[0].compilation.dispatch.native
    return sum(n for label, n in native.items() if re.search(rf"\b{short}\b", label))


def test_what_is_kept_is_not_computed_again() -> None:
    """Two layers of two products, which are needed again with no policy."""
    policies = {**POLICIES, "": None}
    work = {n: rlx.value_and_grad(deep(p), ["w0", "w1"]) for n, p in policies.items()}
    products = {name: launched(g, "matmul") for name, g in work.items()}
    again = {name: n - products["everything"] for name, n in products.items()}
    assert again == {"products": 0, "names": 2, "function": 2, "everything": 0, "": 4}
    exps = {name: launched(g, "exp") for name, g in work.items()}
    assert exps["products"] == exps["names"] > exps["function"] == exps["everything"]


def decoder(region: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Graph:
    """The gradients of a decoder of three layers with attention."""
    g = Graph("decoder")
    ids, width = g.input("ids", [2, 64], "i64"), 32
    table = g.param("table", [50, width])
    weights = [table]

    def weight(name: str, n: int, m: int) -> rlx.Value:
        weights.append(g.param(name, [n, m]))
        return weights[-1]

    h = table.gather(ids)
    for i in range(3):
        qkvo = [weight(f"{i}.{n}", width, width) for n in "qkvo"]
        up, down = weight(f"{i}.up", width, 128), weight(f"{i}.down", 128, width)

        def block(h: rlx.Value, qkvo: Any = qkvo, up: Any = up, down: Any = down) -> rlx.Value:
            x = h.layer_norm(axis=-1)
            q, k, v = (x @ w for w in qkvo[:3])
            h = h + g.attention(q, k, v, num_heads=4, mask_kind="causal") @ qkvo[3]
            return h + (h.layer_norm(axis=-1) @ up).gelu() @ down

        h = region(block)(h)
    loss = (h @ table.T).reshape((128, 50)).softmax_cross_entropy(g.input("y", [128], "i64")).mean()
    g.set_outputs([loss, *gradients(loss, weights)])
    return g


def test_a_decoder_in_less_memory_has_the_same_bits() -> None:
    regions = {
        "all": lambda f: f,
        "products": partial(rlx.checkpoint, policy="products"),
        "nothing": rlx.checkpoint,
    }
    graphs = {name: decoder(region) for name, region in regions.items()}
    feeds = {"ids": RNG.integers(0, 50, (2, 64)), "y": RNG.integers(0, 50, 128)}
    weights = {
        str(v.name): RNG.standard_normal(v.type.static_shape).astype(np.float32) * np.float32(0.2)
        for v in graphs["all"].params
    }
    memory, results = {}, {}
    for name, g in graphs.items():
        f = compiled(g)
        for n, a in weights.items():
            f.set_param(n, a)
        results[name] = f.run(feeds)
        memory[name] = rlx.compile_artifact(g).variants[0].arena_bytes
    for name in ("products", "nothing"):
        for a, e in zip(results[name], results["all"], strict=True):
            np.testing.assert_array_equal(a, e)
    assert memory["nothing"] < memory["products"] < memory["all"]
    assert memory["nothing"] < 0.7 * memory["all"]


def test_a_block_is_taken_apart() -> None:
    """A region of one block: its products are inside of it."""

    def gradient(policy: Policy) -> Graph:
        g = Graph("blocks")
        x, w, b = g.input("x", [4, 8]), g.param("w", [8, 8]), g.param("b", [8])
        y = rlx.checkpoint(lambda x: x.linear(w, b).exp(), policy)(x)
        g.set_outputs([y, *gradients(y.sum(), [w])])
        return g

    assert launched(gradient(None), "matmul") == launched(gradient("products"), "matmul") + 1


def test_a_name_outside_of_a_region_means_nothing() -> None:
    x = Graph().input("x", [2])
    assert rlx.checkpoint_name(x, "x") is x


REFUSED: list[tuple[Callable[[rlx.Value], Any], str]] = [
    (rlx.checkpoint(lambda x: x.exp(), "product"), "did you mean 'products'"),
    (rlx.checkpoint(lambda x: x.exp(), ["a"]), "no value called 'a'"),
    (rlx.checkpoint(lambda x: rlx.checkpoint_name(x.exp(), "ab").sin(), ["a"]), "you mean 'ab'"),
    (rlx.checkpoint(lambda x: rlx.checkpoint_name(x, "a").sin(), ["a"]), "no value called 'a'"),
    (lambda x: make(Checkpoint, [], body=one(), kept=1), "it keeps 1 of 1 results"),
]


def one() -> Graph:
    g = Graph("one")
    g.set_outputs(g.constant(1.0))
    return g


@pytest.mark.parametrize(("use", "match"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(use: Callable[[rlx.Value], Any], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        use(Graph().input("x", [2]))
