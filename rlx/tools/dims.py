"""``--dims batch=8,tokens=32`` of commands."""

from __future__ import annotations

from rlx.errors import GraphError

__all__ = ["parse_dims"]


def parse_dims(text: str) -> dict[str, int]:
    """Sizes by name; GraphError for text of another form."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not name or not n.isdecimal() for name, _, n in pairs):
        raise GraphError(f"--dims={text}: expected names and sizes, such as batch=8,tokens=32")
    return {name: int(n) for name, _, n in pairs}
