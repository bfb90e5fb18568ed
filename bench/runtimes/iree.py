"""IREE on the StableHLO that JAX makes of a case, compiled for this CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iree.compiler
import iree.runtime
import jax
import numpy as np

from bench.case import Case, Run
from bench.runtimes.jax import function


class Result:
    """A result on IREE's device, copied when it is looked at."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.value.to_host(), dtype)


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The function of a compiled module on arrays of its device."""
    f, arguments = function(case)
    arguments = [np.asarray(jax.numpy.asarray(a)) for a in arguments]  # in JAX's own types
    text = jax.jit(f).lower(*arguments).as_text()
    code = iree.compiler.compile_str(
        text, input_type="stablehlo", target_backends=["llvm-cpu"],
        extra_args=[
            "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3",
            # Its own limit refuses the norms of MiniLM.
            f"--iree-llvmcpu-stack-allocation-limit={1 << 20}",
        ],
    )  # fmt: skip
    if threads > 1:
        iree.runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = iree.runtime.Config("local-task" if threads > 1 else "local-sync")
    context = iree.runtime.SystemContext(config=config)
    module = iree.runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    main = context.modules[module.name]["main"]
    given = [iree.runtime.asdevicearray(config.device, a) for a in arguments]
    return lambda: Result(main(*given))
