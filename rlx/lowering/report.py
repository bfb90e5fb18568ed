"""What a compile reports: what was fused and what was not, and which kernel runs each op."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["ArenaBuffer", "DispatchReport", "FusionReport", "MissedFusion"]


@dataclass(frozen=True)
class MissedFusion:
    """A place where a pattern nearly applied: why it did not, and what would help."""

    pattern: str
    op: str
    location: tuple[str, int]
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        file, line = self.location
        return f"{file}:{line}: {self.pattern} of {self.op}: {self.reason}{hint}"


@dataclass
class FusionReport:
    """Fused regions by pattern, and the misses."""

    fused: Counter[str] = field(default_factory=Counter)
    missed: list[MissedFusion] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"fused {n} x {pattern}" for pattern, n in sorted(self.fused.items())]
        return "\n".join([*lines, *(f"missed {m}" for m in self.missed)]) or "nothing to fuse"


@dataclass(frozen=True)
class ArenaBuffer:
    """A value in the arena: its place in bytes, and the first and last launch of main that touch
    it. The first one writes it."""

    offset: int
    size: int
    first: int
    last: int


@dataclass
class DispatchReport:
    """How many launches went each way: ``native`` by family, ``common`` and ``rewritten`` by op."""

    native: Counter[str] = field(default_factory=Counter)
    common: Counter[str] = field(default_factory=Counter)
    rewritten: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rows = [("native", self.native), ("common", self.common), ("rewritten", self.rewritten)]
        lines = [f"{path:10s}{name} x {n}" for path, c in rows for name, n in sorted(c.items())]
        return "\n".join(lines)
