"""Launches that no device of a target could take, refused while the user's line is at hand."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import KernelTarget
from rlx.codegen.control import ROW
from rlx.codegen.family import Launch
from rlx.errors import UnsupportedError
from rlx.ir.op import Location
from rlx.lowering.select.views import View

__all__ = ["check_launch"]


def check_launch(
    kernels: KernelTarget,
    what: tuple[str, str],
    views: Sequence[View],
    launch: Launch,
    location: Location,
) -> None:
    """UnsupportedError for a kernel that binds too many buffers, and for a launch on a GPU beyond
    its integers: sizes have 32 bits, and indices may. ``what`` is the family, and the ops."""
    family, ops = what
    reason = kernels.too_many(len(views))
    if reason is not None:
        raise UnsupportedError(
            f"{family} kernel of {ops}: {reason}; split the op, or compile for devices"
            " that bind more (docs/devices.md, Buffers of a kernel)",
            location,
        )
    if not kernels.binds:
        return
    for v in views:
        # Their number is an index too: of a bound, and of the part after the last.
        count = (v.last + 1) * (2 if v.dtype.is_complex else 1)
        if count >= 1 << (kernels.index_bits - 1):
            raise UnsupportedError(
                f"{family} kernel: its operand {v.dtype}{list(v.shape)} reaches element "
                f"{v.last}, and indices of {kernels.name} have {kernels.index_bits} bits; "
                "split the tensor, or "
                "compile for a target with 64-bit indices (cpu, cuda)",
                location,
            )
    # The last row of a grid, and the last round of a loop, go beyond what they count.
    for most in (launch.range, *launch.sizes):
        if most + ROW * kernels.block >= 1 << 31:
            raise UnsupportedError(
                f"{family} kernel: a range or stride of {most} elements, where GPU kernels take "
                "32-bit sizes; split the tensor, or compile for cpu",
                location,
            )
