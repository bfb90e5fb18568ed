"""The machine as Triton's compiler is told of it."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.types import DType, bf16, f16, f32

__all__ = ["TritonMachine"]


@frozen
class TritonMachine:
    """A machine as Triton is told of it, and what it gives there.

    ``version`` is Triton's own. ``backend`` and ``arch`` are its names for the machine: "cuda" and
    a compute capability, "hip" and an architecture; ``ptx`` is the version of PTX to write, in
    tenths. ``wave`` threads go in step. A block may share ``shared`` bytes, and ``stages`` pieces
    of an operand may be on their way into registers at once. ``units`` are the element types that
    Triton gives to matrix units which compute as IEEE 754 says, subnormal numbers included; with
    ``always`` the other types are taken too. ``direct`` says that the units read shared memory by
    themselves.
    """

    version: str
    backend: str
    arch: int | str
    wave: int
    shared: int
    stages: int
    units: tuple[DType, ...]
    ptx: int = 0
    direct: bool = False
    always: bool = False

    def pieces(self, stages: int) -> int:
        """How many pieces of an operand lie in shared memory: one of those on their way is in
        registers, where units read these."""
        return stages if self.direct else max(1, stages - 1)

    def feeds(self, rows: int, most: int) -> bool:
        """Whether a tile of ``rows`` is not too low for the matrix units, where ``most`` could be:
        those that read shared memory take 64 rows at once."""
        return not self.direct or rows >= min(64, most)

    def refuses(self, dt: DType, name: str) -> str | None:
        """Why products of an element type are not made by Triton on the target ``name``."""
        if dt not in (f16, bf16, f32):
            return f"it is of {dt}"
        if dt not in self.units and not self.always:
            return f"Triton has no matrix unit of {name} for {dt} that computes as IEEE 754 says"
        return None
