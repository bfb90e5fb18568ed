"""Ops of StableHLO that the reference interpreter of the MLIR package lacks, judged by NumPy, ONNX's
reference and differences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import UnsupportedError
from support.stablehlo import ours, program

RNG = np.random.default_rng(0)
X, G = RNG.standard_normal((2, 3, 4, 5))
SCALE, OFFSET = RNG.uniform(0.5, 2, (2, 4))
T, V = "tensor<3x4x5xf64>", "tensor<4xf64>"
SET = "{epsilon = 0.125 : f32, feature_index = 1 : i64}"


def onnx_norm(mean: Any, variance: Any, *, training: bool) -> list[Any]:
    """What ONNX's reference says of a batch norm of ``X``; in training with what it measured."""
    helper = pytest.importorskip("onnx").helper
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    names = ["y", "mean", "variance"] if training else ["y"]
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], names, epsilon=0.125, momentum=0.0,
        training_mode=int(training),
    )  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, 11, None) for n in "xsbmv"]
    outputs = [helper.make_tensor_value_info(n, 11, None) for n in names]
    graph = helper.make_graph([node], "norm", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    feeds = {"x": X, "s": SCALE, "b": OFFSET, "m": mean, "v": variance}
    return list(evaluator(model).run(None, feeds))


def test_batch_norm_of_known_statistics() -> None:
    mean, variance = RNG.standard_normal(4), RNG.uniform(0.5, 2, 4)
    text = program(
        f'%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %e) {SET}'
        f" : ({T}, {V}, {V}, {V}, {V}) -> {T}", f"{T} {V} {V} {V} {V}", T,
    )  # fmt: skip
    (found,) = ours(text, [X, SCALE, OFFSET, mean, variance])
    np.testing.assert_allclose(found, onnx_norm(mean, variance, training=False)[0], rtol=1e-12)


def test_batch_norm_that_measures() -> None:
    text = program(
        f'%r0, %r1, %r2 = "stablehlo.batch_norm_training"(%a, %b, %c) {SET}'
        f" : ({T}, {V}, {V}) -> ({T}, {V}, {V})", f"{T} {V} {V}", f"{T} {V} {V}",
    )  # fmt: skip
    found = ours(text, [X, SCALE, OFFSET])
    for a, b in zip(found, onnx_norm(SCALE, OFFSET, training=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_the_gradient_of_a_batch_norm() -> None:
    """Against differences of what NumPy computes."""
    text = program(
        f'%r0, %r1, %r2 = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) {SET}'
        f" : ({T}, {V}, {V}, {V}, {T}) -> ({T}, {V}, {V})", f"{T} {V} {V} {V} {T}", f"{T} {V} {V}",
    )  # fmt: skip

    def loss(x: Any, scale: Any, offset: Any) -> float:
        moved = x - x.mean((0, 2), keepdims=True)
        y = moved / np.sqrt((moved**2).mean((0, 2), keepdims=True) + 0.125)
        return float((G * (y * scale[:, None] + offset[:, None])).sum())

    found = ours(text, [X, SCALE, X.mean((0, 2)), X.var((0, 2)), G])
    operands = [X, SCALE, OFFSET]
    for i, slope in enumerate(found):
        direction = RNG.standard_normal(operands[i].shape)
        ends = [loss(*(a + s * direction if j == i else a for j, a in enumerate(operands)))
                for s in (1e-5, -1e-5)]  # fmt: skip
        np.testing.assert_allclose((slope * direction).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "operands", "subscripts"),
    [("einsum", "%a, %b", "ij,jk->ki"), ("unary_einsum", "%a", "ij->j")],
)
def test_einstein_sums(op: str, operands: str, subscripts: str) -> None:
    arrays = [RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2))][: operands.count("%")]
    wanted = np.einsum(subscripts, *arrays)
    types = [f"tensor<{'x'.join(map(str, a.shape))}xf64>" for a in (*arrays, wanted)]
    body = (f'%r = "stablehlo.{op}"({operands}) {{einsum_config = "{subscripts}"}}'
            f" : ({', '.join(types[:-1])}) -> {types[-1]}")  # fmt: skip
    (found,) = ours(program(body, " ".join(types[:-1]), types[-1]), arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def select(batches: int) -> str:
    return program(
        f'%r = "stablehlo.torch_index_select"(%a, %b) {{dim = 1 : i64, batch_dims = {batches} : i64}}'
        " : (tensor<3x4xf64>, tensor<3xi32>) -> tensor<3x3xf64>", "tensor<3x4xf64> tensor<3xi32>",
        "tensor<3x3xf64>",
    )  # fmt: skip


def test_rows_by_index() -> None:
    a, index = RNG.standard_normal((3, 4)), np.array([3, 0, 2], np.int32)
    np.testing.assert_array_equal(ours(select(0), [a, index])[0], a[:, index])
    with pytest.raises(UnsupportedError, match="along 1 batch axes, expected none"):
        rlx.from_stablehlo(select(1))


def test_the_number_of_the_one_device() -> None:
    text = program("%r = stablehlo.replica_id : tensor<ui32>", "", "tensor<ui32>")
    assert ours(text, [])[0] == 0
    many = text.replace("module {", "module attributes {mhlo.num_replicas = 2 : i32} {")
    with pytest.raises(UnsupportedError, match="replica_id: of 2 devices"):
        rlx.from_stablehlo(many)


def test_the_page_says_what_has_no_row() -> None:
    from rlx.frontends.stablehlo import importer
    from rlx.frontends.stablehlo.node import ROWS

    assert importer
    page = (Path(__file__).resolve().parents[2] / "docs/jax.md").read_text("utf-8")
    said = page.split("these ops have no row:")[1].split("\n\n")[0]
    names = set(re.findall(r"`([a-z_]+)`", said))
    assert len(names) == 20
    assert not names & {*ROWS}
