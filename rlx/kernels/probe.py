"""A target that nothing is compiled for: kernels are built for it to learn what they hold."""

from __future__ import annotations

from collections.abc import Callable

from rlx.kernels.builder import KernelTarget
from rlx.kernels.reg import Reg

__all__ = ["Probe"]


class _CountingMath(dict[str, Callable[..., Reg]]):
    """A math table that has every function; each gives back its first operand."""

    calls = 0

    def __missing__(self, name: str) -> Callable[..., Reg]:
        def function(x: Reg, *_: Reg) -> Reg:
            self.calls += 1
            return x

        return function


class Probe(KernelTarget):
    """A CPU without vectors, whose math table counts its uses."""

    def __init__(self) -> None:
        super().__init__("probe", vector_bytes=0, registers=0, math=_CountingMath())

    @property
    def calls(self) -> int:
        """How many functions of the math table were emitted."""
        assert isinstance(self.math, _CountingMath)
        return self.math.calls
