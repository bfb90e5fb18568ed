"""The class of each op, as far as a precision policy is concerned."""

from __future__ import annotations

from rlx.ir.op import Op
from rlx.precision import OpClass

__all__ = ["PRODUCTS", "ROUNDED", "class_of"]


def _names(text: str) -> list[str]:
    return [f"mir.{name}" for name in text.split()]


PRODUCTS = frozenset(_names("matmul dot_general"))
"""Compute ops that a kernel sums in f32 whatever the type of their operands."""

ROUNDED = {"mir.attention": 3}
"""How many of the first operands of an op are rounded, if it is not all: a mask stays as it is."""

_CLASSES: dict[str, OpClass] = {
    **dict.fromkeys(
        (*PRODUCTS, *_names("grouped_matmul attention conv conv_transpose")), OpClass.COMPUTE
    ),
    # Sums, norms and losses, and the functions that make a small error large.
    **dict.fromkeys(
        _names(
            "softmax log_softmax layer_norm rms_norm logsumexp softmax_cross_entropy mean_pool"
            " reduce_sum reduce_mean reduce_prod cumsum cumprod logcumsumexp linear_recurrence"
            " selective_scan gated_delta_net sample"
            " exp exp2 expm1 log log2 log1p pow div rsqrt erfinv sinh cosh tan acos asin atanh"
            " acosh"
        ),
        OpClass.REDUCTION,
    ),
    **dict.fromkeys(
        _names(
            "reshape transpose expand flip slice concat pad gather scatter dynamic_slice"
            " dynamic_update_slice rope max_pool reduce_max reduce_min cummax cummin topk sort"
        ),
        OpClass.MOVEMENT,
    ),
}


def class_of(op: Op) -> OpClass | None:
    """The class of an op; None for one that computes in the types that it declares, whatever the
    policy: solves, transforms, random numbers, literals, ops from outside."""
    if op.name in _CLASSES:
        return _CLASSES[op.name]
    return OpClass.ELEMENTWISE if op.pointwise and op.dialect == "mir" else None
