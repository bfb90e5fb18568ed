"""Every op against itself: its result types, its reference, its expansion, its refusals."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from rlx.ir.interpreter import evaluate
from rlx.ir.op import Bad, Op, placeholders, type_of
from support.per_op import each_op
from support.samples import Case, cases, op_classes, run
from support.tolerances import assert_close

OPS = op_classes()
CASES = list(cases())
COMPOSITES = [c for c in CASES if c.op.composite() and hasattr(c.op, "reference")]
BADS = [(op, b) for op in OPS for b in op.bads]


@each_op(CASES)
def test_reference_has_the_inferred_types(case: Case) -> None:
    node, arrays = case.node(), case.arrays()
    if not hasattr(node, "reference"):
        evaluate(node, arrays)
        return
    kept = [None if a is None else a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        out = node.reference(*arrays)
    found = list(out) if isinstance(out, tuple) else [out]
    assert len(found) == len(node.results) == type(node).result_count
    for v, a in zip(node.results, found, strict=True):
        assert (np.shape(a), np.asarray(a).dtype) == (v.shape, v.dtype.numpy)
    for a, b in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(a, b, "the reference wrote into its operand")


@each_op(COMPOSITES)
def test_expansion_means_what_the_reference_says(case: Case) -> None:
    node, arrays = case.node(), case.arrays()
    out = node.expand()
    outputs = list(out) if isinstance(out, tuple) else [out]
    assert [v.type for v in outputs] == [v.type for v in node.results]
    feeds = {v: a for v, a in zip(node.operands, arrays, strict=True) if v is not None}
    for found, expected in zip(run(outputs, feeds), evaluate(node, arrays), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize(("op", "bad"), BADS, ids=[f"{op.name}: {b.match}" for op, b in BADS])
def test_refusal_is_clear_and_located(op: type[Op], bad: Bad) -> None:
    types = [None if t is None else type_of(t) for t in bad.types]
    with pytest.raises(bad.error) as refusal:
        op(*placeholders(types), **bad.attrs)
    message = str(refusal.value)
    assert re.search(bad.match, message), message
    assert re.match(re.escape(__file__) + r":\d+: ", message), message


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
class TestDeclaration:
    def test_says_what_it_computes(self, op: type[Op]) -> None:
        first = (op.__dict__.get("__doc__") or "").strip().split("\n")[0]
        assert first.endswith((".", ":")), f"{op.__name__} has no summary line"
        undocumented = [f.name for f in (*op.operand_fields, *op.attr_fields) if not f.doc]
        assert not undocumented

    def test_has_samples_and_refusals(self, op: type[Op]) -> None:
        assert op.samples
        # An op without operands has no types to refuse, nor has one that takes any tensor.
        assert op.bads or not op.operand_fields or op.name == "hir.stop_gradient"

    def test_has_one_meaning(self, op: type[Op]) -> None:
        meanings = [m for m in ("scalar", "loops", "expand") if hasattr(op, m)]
        assert len(meanings) == 1 or op.name == "mir.constant", meanings
        assert hasattr(op, "reference") or op.composite()
        assert not hasattr(op, "scalar") or op.pointwise

    def test_has_rules_for_the_transforms(self, op: type[Op]) -> None:
        if op.composite() and op.dialect == "hir":
            return  # blocks are differentiated and batched through their expansion
        rules = [hasattr(op, "vjp"), hasattr(op, "jvp")]
        # A composite that is seldom differentiated, as a gradient is, has none: it is expanded.
        if op.differentiable and not (op.composite() and not any(rules)):
            assert all(rules)
        assert hasattr(op, "batch") or not op.operand_fields

    def test_defaults_of_build_match_the_class(self, op: type[Op]) -> None:
        """A default is written twice where ``build`` is overridden: both must agree."""
        parameters = inspect.signature(op.build).parameters
        for f in op.attr_fields:
            p = parameters.get(f.name)
            plain = p is not None and p.default not in (inspect.Parameter.empty, None)
            if plain and isinstance(f.default, bool | float | str):
                assert p.default == f.default, f"{op.name}: {f.name}"
