"""Numbers with units and nouns, for people."""

from __future__ import annotations

__all__ = ["bytes_text", "counted"]


def bytes_text(n: int) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB"):
        if n < 10240:
            return f"{n} {unit}"
        n = round(n / 1024)
    return f"{n} GiB"


def counted(n: int, noun: str) -> str:
    """``1 param``, ``2 params``."""
    return f"{n} {noun}{'s' * (n != 1)}"
