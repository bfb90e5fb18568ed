"""What a process loads that finds its graph compiled: nothing that compiling alone needs, nor what
takes longer to import than to do without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.llm_models import Shape, write
from rlx.runtime._native import __file__ as NATIVE
from support import tiny_bert

LOADED = """
unwanted = ("torch_mlir", "llvmlite", "ml_dtypes", "rlx.compiler.driver", "rlx.dialects",
    "rlx.kernels", "rlx.codegen", "rlx.base.preload", "rlx.targets.base", "rlx.targets.llvm",
    "rlx.text", "rlx.runtime.cache.objects", "rlx.runtime.devices.gpu_executable",
    "rlx.base.device_names", "rlx.runtime.claims", "rlx.ops.control",
    "rlx.schedule.codec", "rlx.schedule.plan", "rlx.schedule.steps",
    "rlx.distributed", "rlx.llm.calls", "rlx.llm.grammar", "rlx.llm.lora", "rlx.llm.text",
    "glob", "hashlib", "importlib.metadata", "pathlib", "random", "secrets", "subprocess", "urllib")
print(*sorted(m for m in unwanted if m in sys.modules and m not in others))
"""

SMALL = """
import rlx
g = rlx.Graph("g")
x, w = g.input("x", ["n", 4]), g.param("w", [4, 4], value=[[1.0] * 4] * 4)
g.set_outputs(g.softmax(x @ w))
c = rlx.Session().compile(g)
assert c.run({"x": [[1.0] * 4]})[0].shape == (1, 4)
print(c.reports[0].cache.split()[0])
from rlx.runtime.background import waited
waited()  # for the variant of all sizes, which the next process finds too
"""

MODEL = """
from rlx.models import Embed
model = Embed.from_dir(sys.argv[1])
assert model.encode(["a b c"]).shape == (1, 8)
print(model.reports[0].cache.split()[0])
"""

LANGUAGE_MODEL = """
import rlx
llm = rlx.LLM(sys.argv[1])
assert len(llm.generate([[1, 2, 3]], max_new_tokens=2)[0].ids) == 2
print(llm.decoder.layers.reports[0].cache.split()[0])
from rlx.runtime.background import waited
waited()
"""


def _said(script: str, others: str, *args: str) -> list[str]:
    """What a new process says that has imported other packages, whatever they need, before."""
    # Without site, which imports what other packages of this machine ask it to.
    before = f"import sys\nsys.path += {sys.path!r}\nimport {others}\nothers = set(sys.modules)\n"
    # Nor what finds the native part of an editable install.
    native = f"import rlx.runtime\nrlx.runtime.__path__.append({os.path.dirname(NATIVE)!r})\n"
    command = [sys.executable, "-S", "-c", before + native + script + LOADED, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_graph_that_is_there() -> None:
    assert _said(SMALL, "numpy")[0] == "miss"
    assert _said(SMALL, "numpy") == ["hit", ""]


def test_a_model_that_is_there(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = str(tiny_bert.write(tmp_path))
    assert _said(MODEL, "numpy, tokenizers", path)[0] == "miss"
    assert _said(MODEL, "numpy, tokenizers", path) == ["hit", ""]


def test_a_language_model_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write(path, Shape("llama", 64, 32, 2, 2, 1, 16, 32, 1e4, 1e-5), "q8_0")
    assert _said(LANGUAGE_MODEL, "numpy", str(path))[0] == "miss"
    assert _said(LANGUAGE_MODEL, "numpy", str(path)) == ["hit", ""]
