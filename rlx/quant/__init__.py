"""Numbers of few bits: schemes, and arrays to bytes and back.

    import rlx

    packed = rlx.quant.quantize(weights, "q4_k")
    rlx.quant.dequantize(packed, "q4_k", weights.shape)

It needs NumPy alone. docs/quantization.md lists the schemes. Graphs are quantised by the names
of ``rlx.ptq``, which are here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.errors import no_attribute
from rlx.quant.arrays import dequantize, quantize
from rlx.quant.scheme import BlockScheme, PartsScheme, QuantScheme
from rlx.quant.table import schemes

if TYPE_CHECKING:
    from rlx.ptq import (
        CalibrationEntry,
        CalibrationRecord,
        Calibrator,
        Quantized,
        QuantMap,
        insert_fake_quantize,
        insert_q_dq,
        quantize_graph,
    )

__all__ = [
    "BlockScheme",
    "CalibrationEntry",
    "CalibrationRecord",
    "Calibrator",
    "PartsScheme",
    "QuantMap",
    "QuantScheme",
    "Quantized",
    "dequantize",
    "insert_fake_quantize",
    "insert_q_dq",
    "quantize",
    "quantize_graph",
    "schemes",
]


def __getattr__(name: str) -> Any:
    """The names of ``rlx.ptq``, which is loaded when one is asked for."""
    if name not in __all__:
        raise no_attribute(__name__, name, __all__)
    from rlx import ptq

    return getattr(ptq, name)
