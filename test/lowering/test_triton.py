"""From graphs to launches of Triton's kernels, run in NumPy; and what the report says of them."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

import rlx
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.ir.interpreter import interpret
from rlx.knobs import triton as triton_knob
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.pipeline import PIPELINE, run_passes
from rlx.lowering.select.triton import _start
from rlx.lowering.select.views import Memory, Rounds, View
from rlx.targets import find_target, triton
from rlx.types import DTYPES, f16
from support.ttir_device import compiled


def block(dt: str) -> rlx.Graph:
    """A layer of a transformer without norms: views of one product are q, k and v."""
    g = rlx.Graph("block")
    x = g.input("x", [2, 37, 64], dt)
    qkv = x @ g.param("wqkv", [64, 128], dt) + g.param("b", [128], dt)
    q, k, v = qkv[:, :, :64], qkv[:, :, 64:96], qkv[:, :, 96:]
    y = g.attention(q, k, v, layout="bshd", num_heads=4, kv_heads=2, mask_kind="causal")
    x = y @ g.param("wo", [64, 64], dt) + x
    h = g.gelu(x @ g.param("w1", [96, 64], dt).transpose([1, 0]))
    g.set_outputs([h @ g.param("w2", [96, 64], dt) + x])
    return g


@pytest.mark.parametrize("dt", ["f16", "bf16"])
def test_a_layer_of_a_transformer(dt: str) -> None:
    rng = np.random.default_rng(0)
    g = block(dt)
    kind = DTYPES[dt].numpy
    values = {
        str(v.name): (rng.uniform(-1, 1, v.type.static_shape) / 4).astype(kind)
        for v in [*g.inputs, *g.params]
    }
    f = compiled(g)
    for p in g.params:
        f.set_param(str(p.name), values[str(p.name)])
    (found,) = f.run({"x": values["x"]})
    (wanted,) = interpret(g, values)
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), 0.02, 0.02)
    report = f.reports[0].compilation.dispatch
    assert sum(report.triton.values()) == 5
    assert not any("declined" in row for row in report.triton), report
    assert "triton    attention: attention x 1" in str(report)


def test_the_report_says_what_triton_does_not_make() -> None:
    g = rlx.Graph("declined")
    x, y = g.input("x", [4, 64], "f16"), g.input("y", [64, 64], "f64")
    g.set_outputs([x @ g.param("w", [64, 64], "f16"), y @ y])
    with mock.patch.object(triton, "installed", lambda: triton.TESTED), triton_knob.scoped("auto"):
        target = find_target("cuda:sm_80")
    compilation = Compilation(target, Options())
    context = make_context()
    with context:
        run_passes(to_mlir(g, context), PIPELINE, compilation)
    assert set(compilation.dispatch.triton) == {
        "contraction: matmul declined: it has at most 8 rows or columns",
        "contraction: matmul declined: it is of f64",
    }


def test_where_views_begin() -> None:
    view = View.dense(Memory("arena"), f16, (4, 8))
    assert _start(view) == 0
    assert _start(View(view.memory, f16, (4, 8), (8, 1), 24)) == 24
    moving = View(view.memory, f16, (4, 8), (8, 1), 32, ((Rounds(3, 1), 12),))
    assert _start(moving) == 4
