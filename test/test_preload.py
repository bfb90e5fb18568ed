"""The compilers' libraries are loaded on a thread, before any package of theirs is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")

SCRIPT = """
import sys, threading
from pathlib import Path
from rlx.base import preload
{before}
preload.preload()
[t.join() for t in threading.enumerate() if t.name == "rlx-preload"]
maps = Path("/proc/self/maps").read_text()
print([name in maps for name in ("libllvmlite", "libTorchMLIRAggregateCAPI")])
print([name in sys.modules for name in ("llvmlite", "torch_mlir")])
import rlx
g = rlx.Graph("g")
g.set_outputs(g.input("x", [2]) + 1.0)
print(rlx.Session().compile(g).run({{"x": [1, 2]}})[0])
"""


@pytest.mark.parametrize(
    ("before", "loaded"),
    [
        ("", "[True, True]"),
        ("preload.find_spec = lambda package: None", "[False, False]"),
        ('preload._LIBRARIES = (("llvmlite", "nowhere.so"),)', "[False, False]"),
    ],
)
def test_libraries_come_before_packages(before: str, loaded: str) -> None:
    script = SCRIPT.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [loaded, "[False, False]", "[2. 3.]"]
