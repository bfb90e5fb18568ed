"""The compilers' libraries are loaded on a thread, before any package of theirs is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")

SCRIPT = """
import sys, threading
from pathlib import Path
from rlx.base import preload
{before}
{loads}
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
    ("before", "packages", "loaded"),
    [
        ("", ("torch_mlir",), "[False, True]"),
        ("", ("torch_mlir", "llvmlite"), "[True, True]"),
        ("preload.find_spec = lambda package: None", ("torch_mlir", "llvmlite"), "[False, False]"),
        ('preload._LIBRARIES["llvmlite"] = "nowhere.so"', ("llvmlite",), "[False, False]"),
    ],
)
def test_libraries_come_before_packages(
    before: str, packages: tuple[str, ...], loaded: str
) -> None:
    loads = "\n".join(f"preload.preload({p!r})" for p in packages)
    script = SCRIPT.format(before=before, loads=loads)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [loaded, "[False, False]", "[2. 3.]"]


KERNELS = """
import numpy, rlx
g = rlx.Graph("g")
g.set_outputs(g.input("x", [3]) * 3.0)
print(rlx.Session().compile(g).run({"x": [1, 2, 3]})[0])
print("libllvmlite" in open("/proc/self/maps").read())
"""


def test_llvm_is_loaded_where_a_kernel_is_made(tmp_path: Path) -> None:
    def said() -> list[str]:
        command = [sys.executable, "-c", KERNELS]
        environment = {**os.environ, "RLX_CACHE_DIR": str(tmp_path), "RLX_CACHE": "on"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.splitlines()

    assert said() == ["[3. 6. 9.]", "True"]
    for kept in tmp_path.glob("*/artifact/*"):
        kept.unlink()
    assert said() == ["[3. 6. 9.]", "False"]  # compiled anew, of kernels that are there
