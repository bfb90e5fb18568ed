"""Kernel families: emitters of kernels, each kernel named by a config.

A config is a frozen dataclass that holds what the emitted code depends on (element types, the
pointwise program, tile variants) and nothing else: sizes and strides are run-time arguments, so
one object serves every shape. ``Launch`` carries them, in the order in which ``emit`` declares
its buffers and sizes; both functions stand side by side in the family's file. The literals of
pointwise programs become arguments behind the sizes (``literals``), of which families know nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget, KernelText

__all__ = ["Family", "Launch"]


@frozen
class Launch:
    """The run-time side of a kernel: its parallel range, and its size arguments in order.

    ``grain`` is the smallest share of the range worth giving to a thread; ``scratch`` is the
    number of bytes that each worker needs.
    """

    range: int
    grain: int
    sizes: tuple[int, ...]
    scratch: int = 0


class Family(Protocol):
    """A kernel family. ``launch`` is the family's own: its arguments are its shapes and strides."""

    name: str

    def emit(self, name: str, config: Any, target: KernelTarget) -> KernelText:
        """The text of the kernel ``name`` for a config."""
        ...
