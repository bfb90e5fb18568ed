"""What a process takes that loads a file of weights in packed blocks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx import quant

LOAD = """
import re, sys
import numpy as np
import rlx
from rlx.frontends import gguf

def resident(kind):
    return int(re.search(kind + r":\\s*(\\d+) kB", open("/proc/self/status").read())[1]) << 10

file = gguf.read(sys.argv[1])
g = rlx.Graph("layers")
x, ids = g.input("x", [1, 2048]), g.input("ids", [3], "i64")
outs = []
for name in file:
    w = g.param(name, file[name].data.shape, "u8")
    outs.append(x.dequant_matmul(w, scheme="q4_0").max())
outs.append(w.dequantize_blocks("q4_0").gather(ids).max())  # as a tied embedding
g.set_outputs(outs)
f = rlx.Session("cpu", "q8").compile(g)
before = resident("VmRSS")
for name in file:
    f.set_param(name, file[name].data)
f.run({"x": np.ones((1, 2048), np.float32), "ids": np.arange(3)})
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process has")
def test_a_file_in_q4_0_takes_at_most_a_quarter_more_than_its_size(tmp_path: Path) -> None:
    from rlx.frontends import gguf

    rows = np.random.default_rng(0).standard_normal((64, 2048), np.float32)
    data = np.tile(quant.quantize(rows, "q4_0"), (64, 1))
    tensors = {f"w{n}": gguf.Tensor("q4_0", (4096, 2048), data) for n in range(8)}
    # As large as all others: an embedding, whose pages go while it is packed.
    tensors["w8"] = gguf.Tensor("q4_0", (32768, 2048), np.tile(data, (8, 1)))
    path = tmp_path / "model.gguf"
    gguf.write(path, tensors, {"general.architecture": "none"})
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 1.25 * path.stat().st_size
