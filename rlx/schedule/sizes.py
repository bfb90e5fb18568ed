"""What binds the steps of a schedule to sizes, as data that needs no compiler."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.schedule.words import Reader, Writer

__all__ = ["SizeProgram"]

_PARTS = ("instructions", "guards", "buffers", "words", "patches", "results")


@frozen
class SizeProgram:
    """The parts of the native runtime's ``SizeProgram``, each as 64-bit words; ``symbols`` are the
    names of the sizes in their order, and ``conditions`` the guards for people. The results are the
    bytes of the arena, then the dims of the inputs and of the outputs."""

    symbols: tuple[str, ...]
    conditions: tuple[str, ...]
    instructions: bytes
    guards: bytes
    buffers: bytes
    words: bytes
    patches: bytes
    results: bytes

    @property
    def parts(self) -> dict[str, bytes]:
        """What the native runtime takes, by its names."""
        return {name: getattr(self, name) for name in _PARTS}

    def __bytes__(self) -> bytes:
        w = Writer()
        w.each(self.symbols, Writer.text)
        w.each(self.conditions, Writer.text)
        for data in self.parts.values():
            w.block(data)
        return bytes(w.data)

    @staticmethod
    def from_bytes(data: bytes) -> SizeProgram:
        """What ``bytes`` gave."""
        r = Reader(memoryview(data))
        symbols, conditions = tuple(r.each(Reader.text)), tuple(r.each(Reader.text))
        return SizeProgram(symbols, conditions, *(r.block() for _ in _PARTS))
