"""fuse: what becomes a region, what must not, and what the report says.

The hazards are those that have broken fusing compilers: an intermediate that is itself an output,
one with a second use, an operand whose broadcast is not that of a trailing axis, and two ops that
look alike but differ in an attribute.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.inspect import PipelineInspect, inspect_pipeline
from support.compiled import agrees

SCALARS = (0.0, -0.0, 1.0)


def inspect(g: rlx.Graph) -> PipelineInspect:
    return inspect_pipeline(g)


def product() -> tuple[rlx.Graph, rlx.Value, rlx.Value]:
    """A product with a bias to add."""
    g = rlx.Graph("product")
    return g, g.input("x", [5, 7]) @ g.param("w", [7, 6]), g.param("b", [6])


def test_an_epilogue_is_fused_into_its_product() -> None:
    g, y, b = product()
    g.set_outputs([((y + b).gelu() + g.input("r", [5, 6]))])
    assert "fused 1 x contraction: matmul+add+gelu+add" in inspect(g).fusion
    agrees(g)


@pytest.mark.parametrize("kept", ["product", "sum", "both"])
def test_an_intermediate_that_is_an_output_is_not_fused_away(kept: str) -> None:
    g, y, b = product()
    s = y + b
    g.set_outputs([s.relu(), *([y] if kept != "sum" else []), *([s] if kept != "product" else [])])
    agrees(g)


def test_an_intermediate_with_a_second_use_is_not_fused_away() -> None:
    g, y, b = product()
    s = y + b
    g.set_outputs([s.relu(), s.exp().sum(axes=1), (y * 2.0).tanh()])
    assert "has 2 uses" in inspect(g).fusion
    agrees(g)


def test_a_gate_whose_halves_are_used_elsewhere() -> None:
    g = rlx.Graph("swiglu")
    x = g.input("x", [3, 8])
    up, gate = x @ g.param("u", [8, 6]), x @ g.param("g", [8, 6])
    h = up * gate.silu()
    g.set_outputs([h @ g.param("d", [6, 4]), up.sum(), gate])
    agrees(g)


@pytest.mark.parametrize("shape", [(5, 1), (1, 6), (6,), (1, 1), (1,), (), (5, 6)])
def test_every_broadcast_of_an_epilogue_operand(shape: tuple[int, ...]) -> None:
    g, y, _ = product()
    g.set_outputs([(y * g.input("s", shape)).tanh() + g.param("t", shape)])
    agrees(g)


def test_a_column_is_not_read_as_a_row_where_sizes_divide() -> None:
    """[4, 1] against [4, 4], and [2] against [4, 2] whose elements divide evenly."""
    g = rlx.Graph("columns")
    x, c, r = g.input("x", [4, 4]), g.input("c", [4, 1]), g.input("r", [4])
    y = g.input("y", [4, 2])
    g.set_outputs([(x + c) * r, (x - r).exp() * c, (y * g.input("s", [2])).neg()])
    given = {
        "x": np.zeros((4, 4), np.float32),
        "c": np.arange(4, dtype=np.float32)[:, None],
        "r": np.arange(1, 5, dtype=np.float32),
        "y": np.ones((4, 2), np.float32),
        "s": np.array([2, 3], np.float32),
    }
    agrees(g, given)


def test_an_epilogue_reads_its_own_product_twice() -> None:
    g, y, b = product()
    s = y + b
    g.set_outputs([s * s.sigmoid()])
    agrees(g)


def test_an_operand_computed_after_the_product_began() -> None:
    g, y, b = product()
    late = (g.input("z", [5, 6]) * 3.0).exp()
    g.set_outputs([(y + b) * late, late.sum()])
    agrees(g)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_row_ops_take_in_what_stands_around_them(axis: int) -> None:
    g = rlx.Graph("rows")
    x, r = g.input("x", [4, 5, 6]), g.input("r", [4, 5, 6])
    h = x + r
    g.set_outputs([h.rms_norm(axis=axis) * 2.0, h, (x * r).softmax(axis).neg()])
    agrees(g)


def test_one_tensor_normalised_along_two_axes() -> None:
    g = rlx.Graph("axes")
    x = g.input("x", [4, 5])
    h = x * 2.0
    g.set_outputs([h.softmax(0) + h.softmax(1), h.sum(axes=0) + x.max(), h.mean(axes=1)])
    agrees(g)


def test_ops_that_differ_only_in_an_attribute_do_not_share_an_expansion() -> None:
    """An expansion, or a kernel, made for one op must not serve another that looks like it."""
    g = rlx.Graph("attributes")
    x = g.input("x", [4, 4])
    q = g.input("q", [1, 4, 8])
    some = dict(num_heads=2, kv_heads=2)
    g.set_outputs(
        [
            x.rms_norm(axis=1, eps=1e-5), x.rms_norm(axis=1, eps=1.0), x.rms_norm(axis=0, eps=1.0),
            x.softmax(0), x.softmax(1), x.cumsum(0), x.cumsum(0, exclusive=True),
            x.cumsum(0, reverse=True), x.cumsum(1),
            q.attention(q, q, **some, scale=0.1), q.attention(q, q, **some, scale=1.0),
            q.attention(q, q, **some, scale=1.0, mask_kind="causal"),
            q.attention(q, q, **some, scale=1.0, mask_kind="sliding_window", window=1),
            q.attention(q, q, **some, scale=1.0, mask_kind="sliding_window", window=2),
            q.attention(q, q, **some, scale=1.0, softcap=0.5),
            x.topk(2, axis=0)[0], x.topk(2, axis=0, largest=False)[0],
            x.sum(axes=0, keepdims=True), x.sum(axes=1, keepdims=True), x.transpose((1, 0)),
        ]
    )  # fmt: skip
    results = agrees(g)
    assert len({a.tobytes() for a in results}) == len(results)


@pytest.mark.parametrize("number", SCALARS)
def test_literals_that_compare_equal_keep_their_sign(number: float) -> None:
    """Kernels are shared by their configs, where 0.0 == -0.0 must not make one of two."""
    g = rlx.Graph("signs")
    x = g.input("x", [3])
    ways = [x.mul(0.0), x.mul(-0.0), x.maximum(0.0), x.maximum(-0.0), x.add(0.0), x.add(-0.0)]
    g.set_outputs([1.0 / y for y in ways])
    given = {"x": np.full(3, number, np.float32)}
    results = [r for f in [rlx.Session().compile(g)] for r in f.run(given)]
    expected = rlx.Session("interpret").compile(g).run(given)
    for a, b in zip(results[:2] + results[4:], expected[:2] + expected[4:], strict=True):
        assert a.tobytes() == b.tobytes()


def test_an_elementwise_chain_is_one_region_and_a_shared_value_does_not_end_it() -> None:
    g = rlx.Graph("chain")
    x = g.input("x", [40])
    g.set_outputs([(x.exp() + 1.0).sqrt() * x])
    assert inspect(g).fusion == "fused 1 x elementwise: exp+add+sqrt+mul"
    shared = x.exp()
    g.set_outputs([shared.sqrt(), shared.neg()])
    assert inspect(g).fusion == "fused 1 x elementwise: exp+sqrt+neg (2 results)"
    agrees(g)


def test_a_broadcast_of_a_broadcast_that_is_read_outside_the_region_too() -> None:
    """What stays outside keeps its operands there, though the region takes a copy of both."""
    g = rlx.Graph("stays")
    x = g.input("x", [4, 1])
    wide = x.expand((3, 4, 1)).expand((3, 4, 5))
    h = wide.tanh()
    g.set_outputs([h * h, wide[1:, :2].exp(), (h.exp() * wide).sum(axes=2)])
    agrees(g)


def test_types_that_change_along_a_chain() -> None:
    g = rlx.Graph("types")
    x, i = g.input("x", [7], "f16"), g.input("i", [7], "i32")
    mask = (x.cast("f32") * 2.0).gt(0.5)
    g.set_outputs([mask.where(i, -i).cast("f64").exp(), mask, (i + 1).cast("bf16") * 0.1])
    agrees(g)


def test_the_dispatch_report_names_every_way() -> None:
    g = rlx.Graph("ways")
    x = g.input("x", [4, 6])
    y = g.linear(x, g.param("w", [6, 5]), g.param("b", [5]), activation="gelu")
    g.set_outputs([y.softmax(-1), y.cumsum(0), x.dot_general(x, [0], [0])])
    f = rlx.Session().compile(g)
    report = f.reports[0].compilation.dispatch
    assert sum(report.native.values()) > 0 and any("matmul" in k for k in report.native)
    assert report.common == {"common: cumsum": 1}
    assert report.rewritten == {"dot_general": 1}
    common = rlx.Session().compile(g, dispatch="common").reports[0].compilation.dispatch
    assert not common.native and sum(common.common.values()) > 5
    for path in ("native", "common", "rewritten"):
        assert path in str(report)


def test_options_are_checked() -> None:
    g = rlx.Graph("options")
    g.set_outputs([g.input("x", [1])])
    with pytest.raises(rlx.errors.GraphError, match="'native' or 'common', found 'fast'"):
        rlx.Session().compile(g, dispatch="fast")
