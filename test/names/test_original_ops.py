"""The ops and blocks of the original system: every one has an expression here."""

from __future__ import annotations

import importlib

import pytest

import rlx
from rlx.compat import names as compat
from rlx.compat.calls import CALLS
from rlx.compat.op_names import BLOCKS, OPS, Row
from rlx.ops import BUILDERS, OP_MODULES

ROWS = {
    f"{kind}-{name}": row
    for kind, rows in (("op", OPS), ("block", BLOCKS), ("call", CALLS))
    for name, row in rows.items()
}

QUANTIZED = {
    "Quantize", "Dequantize", "FakeQuantize", "FakeQuantizeLSQ", "FakeQuantizeLSQBackwardX",
    "FakeQuantizeLSQBackwardScale", "FakeQuantizeBackward", "DequantGroupedMatMul",
    "DequantMoEWeights", "DequantMatMul", "QMatMul", "QConv2d",
}  # fmt: skip


def test_all_are_listed() -> None:
    assert (len(OPS), len(BLOCKS)) == (92, 17)


def test_every_name_that_is_no_op_has_one_row() -> None:
    assert not {*compat.NAMES} & {*CALLS}
    for name in (
        "set_param_typed", "bind_handle", "bind_gpu_handle", "has_gpu_handle", "read_gpu_handle",
        "set_gpu_handle_feed", "run_feed_gpu_handle", "commit_no_wait", "sync_pending",
        "run_pipelined", "clone",
    ):  # fmt: skip
        assert f"CompiledGraph.{name}" in CALLS
    assert {"WeightLoader", "Graph.add_node", "Session.compile_graph"} <= {*CALLS}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_expresses_it_is_there(row: Row) -> None:
    assert row.here or row.note
    for name in row.here:
        kind, _, rest = name.partition(".")
        if kind == "g":
            assert rest in BUILDERS
        elif kind == "rlx":
            found = rlx
            for part in rest.split("."):
                found = getattr(found, part, None) or importlib.import_module(
                    f"{found.__name__}.{part}"
                )
        else:
            assert name in OP_MODULES
