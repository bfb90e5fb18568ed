"""Graphs in few bits without training: scales found by running, and weights and products of
integers in the place of floats.

    found = rlx.quant.quantize_graph(graph, params, "int8")
    f = rlx.Session("cpu").compile(found.graph)

The names are those of ``rlx.quant``.
"""

from __future__ import annotations

from rlx.ptq.calibrator import Calibrator, insert_q_dq
from rlx.ptq.graphs import Quantized, quantize_graph
from rlx.ptq.records import CalibrationEntry, CalibrationRecord, QuantMap
from rlx.ptq.training import insert_fake_quantize

__all__ = [
    "CalibrationEntry", "CalibrationRecord", "Calibrator", "QuantMap", "Quantized",
    "insert_fake_quantize", "insert_q_dq", "quantize_graph",
]  # fmt: skip
