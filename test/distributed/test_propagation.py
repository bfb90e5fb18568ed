"""Graphs of whole tensors on many ranks: values are those of one rank, and collectives are few."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from distributed.test_sharding import CUTS, block, close, leaves, weights

import rlx
from rlx import P
from rlx.distributed import Sharded, run_threads
from rlx.errors import RlxError
from rlx.llm.builder import Cache, step_graphs
from rlx.llm.config import ModelConfig
from rlx.llm.share import Share
from rlx.llm.weights import from_hf
from rlx.models.files import read_json
from rlx.runtime.background import waited
from rlx.types import f32
from support.tiny_llm import write_talker

TOKENS, MODEL = 8, 64
Feeds = dict[str, np.ndarray]


def feeds_of(g: rlx.Graph, **integers: int) -> Feeds:
    rng, found = np.random.default_rng(0), {}
    for v in (*g.inputs, *g.params):
        name, shape = str(v.name), v.type.static_shape
        drawn = rng.standard_normal(shape) * 0.3
        found[name] = rng.integers(0, integers[name], shape) if name in integers else drawn
        found[name] = found[name].astype(v.dtype.numpy)
    return found


def agrees(sharded: Sharded, g: rlx.Graph, feeds: Feeds) -> None:
    """All ranks at once, in the interpreter, give what one gives."""
    mesh = sharded.mesh
    names = {v.name for v in g.params}
    params = {n: a for n, a in feeds.items() if n in names}
    inputs = {n: a for n, a in feeds.items() if n not in names}
    expected = rlx.interpret(g, inputs, params)
    own, held = (
        [sharded.parts(arrays, rank) for rank in range(mesh.size)] for arrays in (inputs, params)
    )
    for found in rlx.distributed.interpret(sharded.graph, mesh, own, held):
        for a, b in zip(found, expected, strict=True):
            assert np.abs(a - b).max(initial=0) <= 1e-5 * max(np.abs(b).max(initial=0), 1e-3)


def kinds(sharded: Sharded) -> list[str]:
    assert sharded.report is not None
    return [f"{e.op} {e.axis}" for e in sharded.report.collectives if not e.joins]


def a_block(rows: int = 4) -> rlx.Graph:
    g = rlx.Graph("block")
    x = g.input("x", [rows, TOKENS, MODEL])
    g.set_outputs(block(g, x, leaves(g, None, "input"), None))
    return g


def gradients() -> rlx.Graph:
    g = a_block()
    g.set_outputs((g.outputs[0] ** 2.0).mean())
    return rlx.grad(g, ["x", *weights()])


OUT = [P("data"), *(CUTS.get(name, P()) for name in weights())]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_block_and_its_gradients_on_threads(ranks: int) -> None:
    mesh, g = rlx.Mesh(model=ranks), gradients()
    feeds = feeds_of(g)
    sharded = rlx.shard(g, mesh, CUTS, out=[P(), *OUT[1:]], strict=True)
    assert kinds(sharded) == ["all_reduce model"] * 4
    session = rlx.Session("cpu")
    expected = list(session.compile(g).run(feeds))
    for found in run_threads(mesh, lambda rank: sharded.compile(session).run(feeds)):
        for a, b in zip(found, expected, strict=True):
            close(a, b)


def test_a_mesh_of_two_axes_has_one_sum_of_all_gradients() -> None:
    g = gradients()
    sharded = rlx.shard(g, rlx.Mesh(data=2, model=2), {"x": P("data"), **CUTS}, out=OUT)
    assert kinds(sharded) == ["all_reduce model"] * 4 + ["all_reduce data"]
    agrees(sharded, g, feeds_of(g))


def test_a_sequence_that_is_cut_between_products() -> None:
    g = a_block()
    specs = {"x": P(None, "model"), **CUTS}
    sharded = rlx.shard(g, rlx.Mesh(model=2), specs, out=P(None, "model"), strict=True)
    assert kinds(sharded) == ["all_gather model", "reduce_scatter model"] * 2
    agrees(sharded, g, feeds_of(g))


def test_attention_over_a_sequence_that_is_cut_gathers_keys_and_values() -> None:
    g = a_block()
    sharded = rlx.shard(g, rlx.Mesh(seq=4), {"x": P(None, "seq")}, out=P(None, "seq"))
    assert kinds(sharded) == ["all_gather seq"] * 2
    agrees(sharded, g, feeds_of(g))


def test_512_ranks_at_once() -> None:
    """As examples of ``vmap``, whose meaning of a collective is its batching rule."""
    g, mesh = rlx.Graph("layer"), rlx.Mesh(model=512)
    x, up, down = g.input("x", [2, 8]), g.input("up", [8, 1024]), g.input("down", [1024, 8])
    g.set_outputs((x @ up).gelu() @ down)
    sharded = rlx.shard(g, mesh, {"up": P(None, "model"), "down": P("model")})
    feeds = feeds_of(g)
    own = [sharded.parts(feeds, rank) for rank in range(512)]
    many = rlx.vmap(sharded.graph, list(feeds), 512, axis_name="model")
    stacked = {name: np.stack([arrays[name] for arrays in own]) for name in feeds}
    (found,) = rlx.Session("cpu").compile(many).run(stacked)
    (expected,) = rlx.interpret(g, feeds)
    close(found, np.broadcast_to(expected, found.shape))


def test_a_vocabulary_that_is_cut() -> None:
    """An embedding of its rows, and a loss over its classes, which is taken apart."""
    g = rlx.Graph("lm")
    ids, labels = g.input("ids", [8, 16], "i64"), g.input("labels", [8, 16], "i64")
    table, head = g.input("table", [512, 16]), g.input("head", [16, 512])
    g.set_outputs((table.gather(ids) @ head).softmax_cross_entropy(labels).mean())
    grads = rlx.grad(g, ["table", "head"])
    specs = {"ids": P("data"), "labels": P("data"), "table": P("model"), "head": P(None, "model")}
    out = [P("model"), P(None, "model")]
    sharded = rlx.shard(grads, rlx.Mesh(data=2, model=2), specs, out=out, strict=True)
    assert kinds(sharded).count("all_reduce data") == 1
    assert not any("all_gather" in k for k in kinds(sharded))
    agrees(sharded, grads, feeds_of(grads, ids=512, labels=512))


def test_experts() -> None:
    g = rlx.Graph("experts")
    x, router = g.input("x", [8, 16]), g.input("router", [16, 4])
    up, down = g.input("up", [4, 16, 32]), g.input("down", [4, 32, 16])
    p = (x @ router).softmax()
    chosen = p.argmax(1)
    y = g.grouped_matmul(g.grouped_matmul(x, up, chosen).gelu(), down, chosen)
    g.set_outputs((x + p.max(axes=1, keep_dim=True) * y).sum())
    grads = rlx.grad(g, ["x", "up", "down"])
    specs = {"up": P("model"), "down": P("model")}
    sharded = rlx.shard(grads, rlx.Mesh(model=2), specs, out=[P(), P("model"), P("model")])
    assert set(kinds(sharded)) == {"all_reduce model"}
    agrees(sharded, grads, feeds_of(grads))


def test_an_expert_that_is_nowhere_is_a_fault_on_every_rank() -> None:
    g = rlx.Graph("experts")
    x, w, e = g.input("x", [2, 4]), g.input("w", [4, 4, 4]), g.input("e", [2], "i64")
    g.set_outputs(g.grouped_matmul(x, w, e))
    sharded = rlx.shard(g, rlx.Mesh(model=2), {"w": P("model")})
    feeds = {**feeds_of(g, e=4), "e": np.array([0, 4])}
    with pytest.raises(RlxError, match="an expert out of range"):
        agrees(sharded, g, feeds)


def test_params_with_values_and_names_of_outputs() -> None:
    g = rlx.Graph("values")
    w = g.param("w", value=np.arange(32, dtype=np.float32).reshape(4, 8))
    g.set_outputs({"y": g.input("x", [2, 4]) @ w})
    sharded = rlx.shard(g, rlx.Mesh(model=2), {"w": P(None, "model")})
    x = np.eye(2, 4, dtype=np.float32)
    for (found,) in run_threads(
        sharded.mesh, lambda rank: sharded.compile(rlx.Session("cpu")).run({"x": x})
    ):
        np.testing.assert_array_equal(found, x @ g.param_values["w"])
    assert sharded.graph.output_names == ("y",)
    assert sharded.report is not None and "output 'y' is given whole" in str(sharded.report)


def test_a_symbolic_size_is_that_of_a_rank() -> None:
    g = rlx.Graph("sizes")
    x, w = g.input("x", ["n", 8]), g.input("w", [8, 4])
    y = x @ w
    g.set_outputs([y.mean(axes=0), y.softmax()])
    sharded = rlx.shard(g, rlx.Mesh(data=2), {"x": P("data")}, out=[P(), P("data")])
    assert kinds(sharded) == ["all_reduce data"]
    for rows in (2, 6):
        feeds = feeds_of(g.bind({"n": rows}))
        expected = rlx.interpret(g, feeds)
        for found in run_threads(
            sharded.mesh, lambda rank, feeds=feeds: sharded.compile(rlx.Session("cpu")).run(feeds)
        ):
            for a, b in zip(found, expected, strict=True):
                close(a, b)
    with pytest.raises(RlxError, match="no multiple of 2"):
        sharded.parts({"x": np.ones((3, 8), np.float32)}, 0)


def test_all_ranks_run_the_same_variant_of_sizes() -> None:
    """One that a rank gets while others still run another would be another program to them."""
    g = rlx.Graph("sizes")
    g.set_outputs((g.input("x", ["n", 8]) @ g.input("w", [8, 4])).sum())
    sharded = rlx.shard(g, rlx.Mesh(data=2), {"x": P("data")})

    def run(rank: int) -> list[int]:
        f, w, found = sharded.compile(rlx.Session("cpu")), np.ones((8, 4), np.float32), list[int]()
        for rows in (2, 6):
            (total,) = f.run({"x": np.ones((rows, 8), np.float32), "w": w})
            assert total == 32 * rows
            waited()
            found.append(len(f.compiled.variants))
        return found

    # Nothing follows in the background: a call makes what it needs.
    assert run_threads(sharded.mesh, run) == [[1, 2]] * 2


def test_reductions_that_are_no_sums() -> None:
    g = rlx.Graph("folds")
    x = g.input("x", [4, 6])
    g.set_outputs([x.max(axes=0), x.min(), x.reduce_prod(axes=1), x.softmax(axis=0)])
    sharded = rlx.shard(g, rlx.Mesh(a=2, b=3), {"x": P("a", "b")}, strict=True)
    agrees(sharded, g, feeds_of(g))


def test_a_step_of_a_decoder_is_cut_along_its_heads(tmp_path: Path) -> None:
    """Specs of its caches and of two weights a layer: two sums a layer follow."""
    write_talker(tmp_path)
    config = ModelConfig.from_hf(read_json(str(tmp_path / "config.json"), dict))
    cache, share = Cache(8, 4, f32, 2, 32), Share.whole(config)
    made, _ = step_graphs(config, from_hf(str(tmp_path), config), cache, "f32", share, {})
    g = made.graph.bind({"rows": 3})
    caches = [str(v.name) for v in g.inputs if str(v.name).startswith(("keys", "values"))]
    specs = dict.fromkeys(caches, P(None, "model"))
    specs |= {n: P("model") for n in made.params if "ffn_gate" in n or "ffn_up" in n}
    out = [P(), *[P(None, "model")] * len(caches)]
    sharded = rlx.shard(g, rlx.Mesh(model=2), specs, out=out, strict=True)
    assert kinds(sharded) == ["all_reduce model"] * 2 * config.layers
    feeds = {
        **feeds_of(g.bind({}), ids=9, positions=1, sequence=1, table=8),
        "positions": np.arange(3, dtype=np.int32),
    }
    agrees(sharded, g, {**feeds, **made.params})


def test_control_flow_takes_whole_operands_and_says_so() -> None:
    g = rlx.Graph("loop")
    x = g.input("x", [4, 6])
    g.set_outputs(rlx.fori(3, lambda i, v: v * 2.0 + 1.0, x))
    sharded = rlx.shard(g, rlx.Mesh(data=2), {"x": P("data")})
    assert sharded.report is not None
    (gather,) = sharded.report.unasked
    assert "has no rule" in gather.reason and gather.values == ("'x'",)
    agrees(sharded, g, feeds_of(g))
    with pytest.raises(RlxError, match=r"strict refuses 1 of the gathers: 'x' along 'data' for"):
        rlx.shard(g, rlx.Mesh(data=2), {"x": P("data")}, strict=True)


def test_a_composite_that_is_cut_as_one_op_stays_one() -> None:
    g = a_block()
    sharded = rlx.shard(g, rlx.Mesh(model=2), CUTS, out=P())
    ops = [op.short for op in sharded.graph.nodes()]
    assert ops.count("attention") == 1 and ops.count("rms_norm") == 2


def test_the_report_as_data_and_in_a_notebook() -> None:
    report = rlx.shard(a_block(), rlx.Mesh(model=2), CUTS, out=P()).report
    assert report is not None and report.count == 2
    data = json.loads(report.to_json())
    assert data["bytes"] == report.bytes == 2 * 4 * TOKENS * MODEL * 4
    assert data["collectives"][0]["op"] == "all_reduce"
    over = [v for v in report.values if v.over]
    assert [v.value for v in over] == ["matmul", "matmul"] and over[0].over == ("model",)
    assert "<table>" in report._repr_html_() and "2 collectives" in repr(report)
    assert str(rlx.shard(a_block(), rlx.Mesh(model=2), {}).report).startswith(
        "Mesh(model=2): 0 collectives"
    )
