"""Numbers of few bits: schemes, and arrays to bytes and back.

    import rlx

    packed = rlx.quant.quantize(weights, "q4_k")
    rlx.quant.dequantize(packed, "q4_k", weights.shape)

It needs NumPy alone. docs/quantization.md lists the schemes.
"""

from __future__ import annotations

from rlx.quant.arrays import dequantize, quantize
from rlx.quant.calibration import CalibrationRecord, Calibrator, QuantMap, insert_q_dq
from rlx.quant.scheme import BlockScheme, PartsScheme, QuantScheme
from rlx.quant.table import schemes

__all__ = [
    "BlockScheme",
    "CalibrationRecord",
    "Calibrator",
    "PartsScheme",
    "QuantMap",
    "QuantScheme",
    "dequantize",
    "insert_q_dq",
    "quantize",
    "schemes",
]
