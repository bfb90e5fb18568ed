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
gpu = ("rlx.kernels.gpu", "rlx.kernels.triton", "rlx.lowering.families.gpu", "rlx.targets.gpu")
print(*sorted(m for m in sys.modules if m.startswith(gpu)))
"""


def test_it_loads_no_kernels_of_gpus() -> None:
    environment = {**os.environ, "RLX_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "\n"
