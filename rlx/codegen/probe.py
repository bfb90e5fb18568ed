"""A target that nothing is compiled for: kernels are built for it to learn what they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from rlx.codegen.builder import Frame, Kernel, KernelTarget
from rlx.codegen.program import Step
from rlx.codegen.reg import Reg
from rlx.types import DType, bf16, f16, f32

__all__ = ["Probe", "step_cost"]

CALL_COST, DIVIDE_COST = 16, 8
"""About what a function of the math table, and a division or a square root, take in additions."""


class _CountingMath(dict[str, Callable[..., Reg]]):
    """A math table that has every function; each gives back its first operand."""

    calls = 0

    def __missing__(self, name: str) -> Callable[..., Reg]:
        def function(x: Reg, *_: Reg) -> Reg:
            self.calls += 1
            return x

        return function


class Probe(KernelTarget):
    """A CPU without vectors, or a GPU, whose math table counts its uses."""

    def __init__(self, frame: Frame = "cpu") -> None:
        super().__init__("probe", vector_bytes=0, registers=0, math=_CountingMath(), frame=frame)

    @property
    def calls(self) -> int:
        """How many functions of the math table were emitted."""
        assert isinstance(self.math, _CountingMath)
        return self.math.calls


@cache
def step_cost(step: Step) -> int:
    """About how many instructions a step is, by emitting it: a division or a square root counts as
    several, a function of the math table as many, and a number as none."""
    if not step.args and not step.dtypes:
        return 0
    probe = Probe()
    k = Kernel("cost", probe)
    wide = [f32 if dt in (f16, bf16) else dt for dt in step.dtypes]
    step.emit(k, *(_argument(k, f"%x{n}", dt) for n, dt in enumerate(wide)))
    lines = [x for x in k.text().text.splitlines() if " = " in x and "arith.constant" not in x]
    slow = sum("divf" in x or "math.sqrt" in x for x in lines)
    return len(lines) + CALL_COST * probe.calls + DIVIDE_COST * slow


def _argument(k: Kernel, name: str, dt: DType) -> Reg:
    if dt.is_complex:
        return k.pair(Reg(k, f"{name}re", dt.part), Reg(k, f"{name}im", dt.part))
    return Reg(k, name, dt)
