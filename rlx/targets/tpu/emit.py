"""The stages of a TPU's program: StableHLO text, its portable form, and the executable."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.targets.graph.rows import ROWS, Rows
from rlx.targets.graph.system import Asked
from rlx.targets.graph.tensor import Tensor
from rlx.targets.tpu.features import TpuFeatures
from rlx.targets.tpu.hlo import Hlo
from rlx.targets.tpu.text import tensor

__all__ = ["STAGES", "Tpu", "stablehlo_text"]

STAGES = ("stablehlo", "vhlo", "tpu")
"""StableHLO text; a portable artifact (VHLO), which any XLA reads that is younger than three months
less; and the executable of libtpu, which is of its own version."""


def stablehlo_text(asked: Asked) -> str:
    """The module of a program, whose function ``main`` takes params, then inputs."""
    k = Hlo(asked.kernels)
    args = [Tensor(k, f"%arg{i}", dt, shape) for i, (_, dt, shape) in enumerate(asked.arguments)]
    outs = asked.walk(k, args)
    takes = ", ".join(f"{a.handle}: {tensor(a.dtype, a.shape)}" for a in args)
    types = ", ".join(tensor(o.dtype, o.shape) for o in outs)
    given = ", ".join(o.handle for o in outs)
    body = "\n".join([*k.lines, f"    return {given} : {types}" if outs else "    return"])
    head = f"  func.func public @main({takes}) -> ({types}) {{"
    return f"module @{asked.name} {{\n{head}\n{body}\n  }}\n}}\n"


class Tpu:
    """XLA for one generation of TPUs."""

    object_stage = "vhlo"

    def __init__(self, features: TpuFeatures) -> None:
        self.features = features

    @property
    def rows(self) -> Rows:
        """Those of all systems: XLA fuses what they write."""
        return ROWS

    def write(self, asked: Asked, stage: str) -> bytes:
        """The file of a stage; ToolchainError for "tpu" where libtpu is not."""
        text = stablehlo_text(asked)
        if stage == "stablehlo":
            return text.encode()
        from rlx._mlir import portable_stablehlo

        portable = portable_stablehlo(text)
        if stage == "vhlo":
            return portable
        from rlx.targets.tpu.ahead import compiled

        return compiled(portable, self.features).executable

    def ahead(self, code: bytes) -> Mapping[str, bytes]:
        """The executable and a report of it, where libtpu is; else a report that says so."""
        from rlx.targets.tpu.ahead import compiled
        from rlx.targets.tpu.pjrt import find_libtpu

        _, why = find_libtpu()
        if why:
            return {"report": f"not compiled for {self.features.name}: {why}\n".encode()}
        made = compiled(code, self.features)
        return {"executable": made.executable, "report": made.report().encode()}
