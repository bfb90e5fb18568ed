"""What a process loads that compiles for a CPU for the first time."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import sys
import numpy as np
import rlx
g = rlx.Graph("g")
x, w = g.input("x", [8, 48]), g.param("w", [48, 48])
g.set_outputs(g.softmax(g.gelu(x @ w)))
c = rlx.Session().compile(g)
c.set_param("w", np.ones((48, 48), np.float32))
c.run({"x": np.ones((8, 48), np.float32)})
def of_gpus(module):
    name = module.rpartition(".")[2]
    rooms = ("rlx.kernels.", "rlx.lowering.select.", "rlx.runtime.devices.")
    if module in ("rlx.targets.gpu", "rlx.targets.gpu.drivers"):
        return False  # the table of drivers, which loads none
    return module.startswith(("rlx.codegen.triton", "rlx.targets.gpu")) or (
        module.startswith(rooms) and (name.startswith("gpu") or name == "triton")
    )
def of_others(module):
    rooms = ("rlx.distributed", "rlx.nn", "rlx.optim", "rlx.training", "rlx.kernels.conv",
        "rlx.lowering.select.conv", "rlx.kernels.fft", "rlx.kernels.attention.", "rlx.kernels.loop",
        "rlx.kernels.matmul.block_product")
    return module.startswith(rooms)
unused = {"ml_dtypes", "fractions", "rlx.text", "rlx.compat", "rlx.ops.kinds",
    "rlx.lowering.passes.lir_text", "rlx.lowering.passes.lir_reader",
    "rlx.lowering.passes.structured_control"}
print(*sorted(m for m in sys.modules if of_gpus(m) or of_others(m) or m in unused))
"""


def test_it_loads_nothing_that_its_graph_does_not_need() -> None:
    environment = {**os.environ, "RLX_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "\n"
