"""The lit suite: IR in, IR out. ``.venv/bin/lit test/lit`` runs it from the root of the checkout.

The tools run under the interpreter that runs lit: on Linux in forks of one process, which has
imported them (Inputs/forks.py). RLX_CPU is fixed, and Triton off, so that what a pass prints does
not depend on the machine; a test that asks for another CPU says so with --target.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from shutil import which

import lit.formats

# ruff: noqa: F821 (lit defines config)

root = Path(__file__).resolve().parents[2]
inputs = str(Path(__file__).parent / "Inputs")
# A tool that hangs fails its test after a minute. lit's own limit needs one more package.
limit = "timeout 60 " if which("timeout") else ""
python = limit + quote(sys.executable)
sys.path[:0] = [str(root), inputs]
targets = import_module("rlx.targets").TARGETS

config.name = "RLX"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".py"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(root / "build" / "lit")
config.environment.update(
    PYTHONPATH=os.pathsep.join([str(root), inputs, *filter(None, [os.environ.get("PYTHONPATH")])]),
    RLX_CPU="x86-64-v3",
    RLX_TRITON="off",
)
if sys.platform == "linux":  # elsewhere a process with threads may not be forked, or none may
    forks = import_module("forks")
    name = forks.serve(config.environment)
    python = f"{quote(sys.executable)} -I -S {quote(forks.__file__)} {name}"
config.substitutions += [
    ("%rlx-opt", f"{python} -m rlx.tools.opt"),
    ("%filecheck", f"{python} -m filecheck"),
    ("%python", python),
    ("%inputs", quote(inputs)),
]
config.available_features |= {f"target-{name}" for name in targets}
if find_spec("rlx.runtime._native"):
    config.available_features.add("native")
