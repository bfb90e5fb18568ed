"""Copies between strided views: transposes, slices, broadcasts, parts of a concatenation, padding.

A copy moves bits, so that one kernel serves every element type of a width: the elementwise kernel
of an empty program.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.program import Program, Step
from rlx.codegen.strides import Strides
from rlx.kernels.elementwise import emit as elementwise
from rlx.kernels.elementwise.emit import ElementwiseConfig
from rlx.types import DTYPES, DType

__all__ = ["emit", "fill_launch", "launch"]

name = "copy"


def launch(
    bits: int,
    shape: Sequence[int],
    source: Strides,
    target: Strides,
    block: int = elementwise.BLOCK,
) -> tuple[ElementwiseConfig, Launch]:
    """The kernel and its arguments to copy ``shape`` elements of ``bits`` (8, 16, 32, 64).

    Strides count elements and are not negative; the source's are 0 where it is broadcast. The
    kernel's buffers are source and target, which must not overlap. ``block``: see elementwise.
    """
    identity = Program((_element(bits),), (), (0,))
    return elementwise.launch(identity, shape, [source], [target], block)


def fill_launch(
    bits: int,
    pattern: int,
    shape: Sequence[int],
    target: Strides,
    block: int = elementwise.BLOCK,
) -> tuple[ElementwiseConfig, Launch]:
    """The kernel and its arguments to set ``shape`` elements of ``bits`` to a bit pattern; its one
    buffer is the target. Padding is a fill and a copy into the inner part."""
    constant = Program((), (Step.literal(pattern, _element(bits)),), (0,))
    return elementwise.launch(constant, shape, [], [target], block)


def _element(bits: int) -> DType:
    return DTYPES[f"u{bits}"]


def emit(name: str, config: ElementwiseConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel."""
    return elementwise.emit(name, config, target)
