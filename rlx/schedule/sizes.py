"""What binds the steps of a schedule to sizes, as data that needs no compiler."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rlx.base.frozen import frozen

__all__ = ["OPS", "RELATIONS", "ROWS", "SizeProgram", "in_order"]

ROWS = ("instructions", "guards", "buffers", "patches", "results")
OPS = ("number", "size", "+", "*", "//", "min", "max")
"""The instructions, by number."""
RELATIONS = ("==", "!=", ">=", "<=")
"""The relations of guards, by number."""


@frozen
class SizeProgram:
    """The parts of the native runtime's ``SizeProgram``, each as 64-bit words; ``conditions`` are
    the guards for people. The sizes come in the order of ``in_order``. The results are the bytes of
    the arena, or on a GPU of every memory, then the dims of the inputs and of the outputs; on a CPU
    at last the flops and the bytes of each launch of main."""

    conditions: tuple[str, ...]
    words: bytes
    instructions: bytes
    guards: bytes
    buffers: bytes
    patches: bytes
    results: bytes

    @property
    def rows(self) -> list[bytes]:
        """The parts that ``ROWS`` names."""
        return [getattr(self, name) for name in ROWS]

    @property
    def parts(self) -> dict[str, bytes]:
        """What the native runtime takes, by its names."""
        return {"words": self.words, **dict(zip(ROWS, self.rows, strict=True))}

    @property
    def pins(self) -> bool:
        """Whether it is for one size of some dim, of 2 or more: others need their own programs."""
        return any(
            relation == RELATIONS.index("==") and number > 1
            for _, relation, number in struct.iter_unpack("<3q", self.guards)
        )


def in_order(names: Iterable[str]) -> list[str]:
    """The names of symbols in the order in which sizes are given: whether a symbol has a range, by
    which symbols differ too, plays no part."""
    return sorted(names)
