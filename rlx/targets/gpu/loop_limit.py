"""Devices that end loops before their time, and what is not to run there."""

from __future__ import annotations

from rlx.errors import UnsupportedError
from rlx.targets.gpu.program import GpuProgram

__all__ = ["check_rounds", "most_rounds"]

_LLVMPIPE = 1 << 16
"""Mesa's llvmpipe, which OpenGL, Vulkan and what stands on them have for processors, counts the
ends of rounds up to 65,535 (LP_MAX_TGSI_LOOP_ITERATIONS), in all loops of an invocation together,
and then ends every loop. The end after that is of no matter: in that round the last loop finds that
it is over."""


def most_rounds(device: str) -> int | None:
    """After how many rounds in all its loops a device, by its name, ends those of an invocation,
    without a word; None if it does not."""
    return _LLVMPIPE if "llvmpipe" in device.lower() else None


def check_rounds(program: GpuProgram, device: str) -> None:
    """UnsupportedError, at the line of its op, for a launch whose loops a device may cut."""
    most = most_rounds(device)
    if most is None:
        return
    for (ops, file, line, *_), rounds in zip(program.launches, program.rounds, strict=True):
        if rounds is None:
            what = "has loops whose rounds depend on data"
            todo = f"compile it with most_rounds={most}, so that it tells of loops that are cut"
        elif rounds > most:
            what = f"makes up to {rounds} rounds of its loops"
            todo = "split the tensor, or run it on a device without such a limit (cpu, opencl)"
        else:
            continue
        raise UnsupportedError(
            f"{ops}: its kernel {what}, and {device} ends loops after {most} in all; {todo}",
            (file, line),
        )
