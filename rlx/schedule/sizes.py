"""What binds the steps of a schedule to sizes, as data that needs no compiler."""

from __future__ import annotations

from rlx.base.frozen import frozen

__all__ = ["ROWS", "SizeProgram"]

ROWS = ("instructions", "guards", "buffers", "patches", "results")


@frozen
class SizeProgram:
    """The parts of the native runtime's ``SizeProgram``, each as 64-bit words; ``conditions`` are
    the guards for people. The sizes come by the names of their symbols, in order. The results are
    the bytes of the arena, then the dims of the inputs and of the outputs."""

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
