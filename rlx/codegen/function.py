"""The functions that a CPU kernel calls."""

from __future__ import annotations

from rlx.base.frozen import frozen

__all__ = ["Function"]


@frozen
class Function:
    """A function of a kernel's text: ``types`` are those of its arguments, the last of which are
    ``words``, literals and sizes. One that is ``shared`` is named by its text, and equal in all
    kernels that have it.
    """

    name: str
    lines: tuple[str, ...]
    types: tuple[str, ...]
    words: tuple[str, ...]
    shared: bool

    @property
    def text(self) -> str:
        """Its MLIR text."""
        return "\n".join(self.lines)

    @property
    def declaration(self) -> str:
        """What stands for it where it is defined elsewhere."""
        return f"  func.func private @{self.name}({', '.join(self.types)})"
