"""Every pass, fusion pattern, root of a pattern and kernel family does its work on some graph.

The lists are the code's own: what is added there and does not work here fails.
"""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.autodiff import gradients
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.ir.graph import Graph
from rlx.ir.op import op_class
from rlx.kernels.registry import FAMILIES as ROWS
from rlx.lowering.functions import functions
from rlx.lowering.passes.patterns import PATTERNS, ROW_ROOTS
from rlx.lowering.region import Regions
from rlx.lowering.registry import PASSES
from rlx.lowering.select.table import SELECTORS
from rlx.ops.conv.weights_grad import ConvWeights
from support.compiled import agrees
from support.op_graphs import OpGraph
from support.samples import Case, cases

LIT = Path(__file__).resolve().parents[1] / "lit"
Build = Callable[[Graph, Any], Any]

FUSED: dict[str, Build] = {
    "contraction": lambda g, x: (x @ g.param("w", [16, 16])).gelu(),
    "conv": lambda g, x: x.reshape([1, 8, 16]).conv1d(g.param("w", [4, 8, 3])).relu(),
    "integer_conv": lambda g, x: (
        x.cast("u8").reshape([1, 8, 16]).conv_integer(g.param("w", [4, 8, 3], "i8")).cast("f32")
    ),
    "pool": lambda g, x: g.max_pool1d(x.reshape([2, 4, 16]), 2).exp(),
    "rowwise": lambda g, x: x.exp().softmax(axis=-1),
    "elementwise": lambda g, x: (x * 2 + 1).tanh(),
}
"""For every pattern a graph that it fuses to one region."""

FAMILIES: dict[str, Build] = {
    "contraction": FUSED["contraction"],
    "block_product": lambda g, x: x.reshape([4, 32]).dequant_matmul(
        g.param("w", [3, 18], "u8"), scheme="q4_0"
    ),
    "grouped_block_product": lambda g, x: x.reshape([4, 32]).dequant_grouped_matmul(
        g.param("w", [2, 16, 18], "u8"), g.input("e", [4], "i64"), scheme="q4_0"
    ),
    "block_product_rows": lambda g, x: (
        x.cast("i8")
        .reshape([4, 32])
        .dequant_matmul_rows(g.input("s", [4, 1]), g.param("w", [3, 18], "u8"), scheme="q4_0")
    ),
    "block_rows": lambda g, x: x.reshape([4, 32]).quantize_rows(32)[1],
    "integer_contraction": lambda g, x: x.cast("i32") @ g.input("w", [16, 16], "i32"),
    "conv": FUSED["conv"],
    "integer_conv": FUSED["integer_conv"],
    "rowwise": FUSED["rowwise"],
    "elementwise": FUSED["elementwise"],
    "attention": lambda g, x: g.attention(x, x, x, num_heads=2),
    "attention_grad": lambda g, x: gradients(g.attention(x, x, x, num_heads=2).sum(), [x])[0],
    "rope": lambda g, x: x.rope(g.input("c", [8, 4]), g.input("s", [8, 4]), 8),
    "paged_attention": lambda g, x: g.paged_attention(
        x,
        g.input("k", [8, 16]),
        g.input("v", [8, 16]),
        g.input("t", [1, 2], "i32"),
        g.input("s", [8], "i32"),
        g.input("p", [8], "i32"),
        num_heads=1,
        kv_heads=1,
        page_size=4,
        scale=1.0,
    ),
    "copy": lambda g, x: g.concat([x, x]),
    "gather": lambda g, x: x.gather(g.input("i", [3], "i64")),
    "scatter": lambda g, x: x.scatter(g.input("i", [3], "i64"), 1.0),
    "box": lambda g, x: x.dynamic_slice(g.input("i", [2], "i64"), [2, 3]),
    "reduce": lambda g, x: x.sum(axes=0),
    "argreduce": lambda g, x: x.argmax(axis=0),
    "custom": lambda g, x: rlx.sparse.matmul(
        rlx.sparse.CSR(
            g.input("d", [3]), g.input("i", [3], "i64"), g.input("p", [5], "i64"), (4, 8)
        ),
        x,
    ),
    "fft": lambda g, x: x.rfft(),
    "pool": FUSED["pool"],
    "conv_weights": lambda g, x: (
        ConvWeights(x.reshape([2, 4, 16]), g.input("g", [2, 3, 15]), (2,), (1,), (0,), (1,)).out
    ),
    "common": lambda g, x: x.cumsum(axis=0),
}
"""For every kernel family a graph of which it runs a part; those of GPUs alone, ``gpu_*``, run a
part of the graph of the family that CPUs have in their place."""


TARGETS = {"integer_conv": ("cpu:x86-64-v4+avx512vnni",)}
"""Where a family runs, if that is not every CPU."""


def graph_of(build: Build) -> Graph:
    g = Graph("one")
    g.set_outputs(build(g, g.input("x", [8, 16])))
    return g


def inspected(build: Build, target: str = "cpu:x86-64-v3") -> rlx.inspect.PipelineInspect:
    return rlx.inspect_pipeline(graph_of(build), target)


def test_every_pass_is_run_by_a_lit_test() -> None:
    lines = "\n".join(
        line
        for path in LIT.rglob("*")
        if path.suffix in (".py", ".mlir")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "RUN:" in line and "%rlx-opt" in line
    )
    missing = [
        n for n in (*PASSES, "canonicalize", "cse") if not re.search(rf"--{n}\b(?!-)", lines)
    ]
    assert not missing, "no RUN line of test/lit has these"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_fuses(pattern: str) -> None:
    """And the kernel of the region computes what its ops do."""
    text = inspected(FUSED[pattern], *TARGETS.get(pattern, ())).fused
    assert text.count('"mir.fused"') == 1 and f'kind = "{pattern}"' in text, text
    agrees(graph_of(FUSED[pattern]))


@pytest.mark.parametrize("root", sorted(ROW_ROOTS))
def test_every_root_of_rows_fuses_with_what_stands_around_it(root: str) -> None:
    cls = op_class(root)
    case = next(
        Case(cls, i, s, rlx.f32) for i, s in enumerate(cls.samples) if s.types[0] == "2x3xT"
    )
    g = Graph(root)
    x, *others = (
        None if t is None else g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(case.types)
    )
    assert x is not None
    attrs = {**case.sample.attrs, **({"axes": (1,)} if "Reduce" in cls.__name__ else {})}
    g.set_outputs(cls(x.exp(), *others, **attrs).out.abs())
    text = rlx.inspect_pipeline(g, "cpu:x86-64-v3").fusion
    assert re.search(rf"1 x rowwise: exp\+{root.split('.')[1]}\+abs", text), text


@pytest.mark.parametrize("family", SELECTORS)
def test_every_family_runs_something(family: str) -> None:
    on_cpu = family.removeprefix("gpu_")
    targets = TARGETS.get(family, ()) if family == on_cpu else ("cuda",)
    report = inspected(FAMILIES[on_cpu], *targets).dispatch
    assert re.search(rf"\b{family}: ", report), report


def test_a_row_names_every_op_that_its_selector_claims() -> None:
    """A family is asked about no other."""
    samples: dict[tuple[str, int], Case] = {}
    for case in cases():
        if case.dtype is rlx.f32 or (case.op.name, case.number) not in samples:
            samples[case.op.name, case.number] = case
    claimed: dict[str, set[str]] = {row.name: set() for row in ROWS.values() if row.ops}
    context, regions = make_context(), Regions()
    with context:
        module = to_mlir(OpGraph.of_cases("every", [*samples.values()]).graph, context)
        for op in functions(module)["main"].regions[0].blocks[0].operations:
            if not op.operation.name.startswith("mir."):
                continue
            region = regions.of(op.operation)
            for family, names in claimed.items():
                if SELECTORS[family].claim(region) is None:
                    names.add(op.operation.name)
    missing = {name: found - {*ROWS[name].ops} for name, found in claimed.items()}
    assert not any(missing.values()), missing
    assert all(op_class(op) for name in claimed for op in ROWS[name].ops)
