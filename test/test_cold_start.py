"""What a process loads that compiles for a CPU for the first time."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import gc, sys
import numpy as np
import rlx
g = rlx.Graph("g")
x, w = g.input("x", [8, 48]), g.param("w", [48, 48])
g.set_outputs(g.softmax(g.gelu(x @ w)))
c = rlx.Session().compile(g)
c.set_param("w", np.ones((48, 48), np.float32))
{before}
c.run({{"x": np.ones((8, 48), np.float32)}})
print(gc.isenabled())
gpu = ("rlx.kernels.gpu", "rlx.kernels.triton", "rlx.lowering.families.gpu", "rlx.targets.gpu")
print(*sorted(m for m in sys.modules if m.startswith(gpu)))
"""


def _run(before: str) -> list[str]:
    script = SCRIPT.format(before=before)
    environment = {**os.environ, "RLX_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.splitlines()


def test_it_loads_no_kernels_of_gpus() -> None:
    assert _run("") == ["True", ""]


def test_the_collector_stays_off_where_it_was() -> None:
    assert _run("gc.disable()")[0] == "False"
