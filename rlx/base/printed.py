"""What is best read as it is printed: reports of several lines."""

from __future__ import annotations

from typing import Any

__all__ = ["Printed"]


class Printed:
    """Shows itself at a prompt of IPython as ``print`` does; ``repr`` still has the fields."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython and Jupyter ask for text."""
        printer.text(str(self))
