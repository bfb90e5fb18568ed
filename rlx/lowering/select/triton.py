"""Products and attention by Triton's compiler, where the target has it and it takes them.

What it does not take is said in the dispatch report, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from rlx.codegen.program import Program
from rlx.kernels.attention import triton as attention
from rlx.kernels.attention.args import AttentionConfig, AttentionSizes
from rlx.kernels.matmul import triton as contraction
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View

__all__ = ["attend", "product"]


def product(
    lowering: Lowering, program: Program, views: Sequence[View], shape: Sequence[int], flops: int
) -> bool:
    """Launch a product of ``shape`` = [batch.., m, n, k] of the views A, B, the epilogue's
    operands and C; False if it is none of Triton's."""
    target = lowering.target.kernels
    machine, (a, b, *_) = target.triton, views
    if machine is None:
        return False
    m, n, k = shape[-3:]
    why = contraction.refuses(target, (a.dtype, b.dtype), program, (m, n, k))
    if _declined(lowering, "contraction", why):
        return False
    strides = [v.strides for v in views]
    config, launch = contraction.launch(
        program, machine, a.dtype, shape, strides, list(map(_start, views))
    )
    lowering.launch(contraction.name, config, views, launch, flops)
    return True


def attend(
    lowering: Lowering, base: AttentionConfig, sizes: AttentionSizes, views: Sequence[View],
    flops: int,
) -> bool:  # fmt: skip
    """Launch attention of the views q, k, v, [mask], out; False if it is none of Triton's."""
    target = lowering.target.kernels
    if target.triton is None:
        return False
    if _declined(lowering, "attention", attention.refuses(target, base, sizes)):
        return False
    config, launch = attention.launch(base, target.triton, sizes, list(map(_start, views)))
    lowering.launch(attention.name, config, views, launch, flops)
    return True


def _declined(lowering: Lowering, family: str, why: str | None) -> bool:
    said = "" if why is None else f" declined: {why}"
    lowering.compilation.dispatch.triton[f"{family}: {lowering.ops}{said}"] += 1
    return why is not None


def _start(v: View) -> int:
    """A common divisor of the elements of its memory at which a view begins, in every round of the
    loops around it; 0 for the first."""
    return gcd(v.start, *(step for _, step in v.moves))
