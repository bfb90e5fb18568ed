"""The recipes of CONTRIBUTING work, and the generated pages are in step.

The blocks that name a file are applied to a copy of the package, which is then used as a user
would, and tested by the generated tests; nothing but what the recipe says is changed.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlx.runtime._native as native
from rlx.targets.gpu import drivers

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

BLOCK = re.compile(r"^```python(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES: list[tuple[str, str]] = [(m[1], m[2]) for m in BLOCK.finditer(GUIDE) if m[1]]

TABLES = {
    "rlx/ops/__init__.py": '    "rlx.ops.pointwise.activation": (\n',
    "rlx/lowering/rules.py": "RULES: tuple[Rule, ...] = (\n",
    "test/support/jax_ops/pointwise.py": "OPS: Table = {\n",
}
"""Where in a file a row goes; other blocks go to the end of theirs."""

# A development install finds rlx in the checkout, by a hook that comes before sys.path.
COPY_FIRST = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
sys.path.insert(0, "")
import rlx, os
assert os.path.dirname(rlx.__file__) == os.path.join(os.getcwd(), "rlx"), rlx.__file__
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout to which the recipes have been applied."""
    root = tmp_path_factory.mktemp("copy")
    # With the bytecode, which holds as long as a file does: its times are copied as well.
    ignored = shutil.ignore_patterns("*.so")
    for name in ("rlx", "tools", "test"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "gpu_support.json", root / "docs")
    shutil.copy(native.__file__, root / "rlx" / "runtime")
    for name, text in RECIPES:
        path = root / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        table = TABLES.get(name)
        if table is None:
            after = f"{before}\n\n{text}" if before else text
        else:
            assert before.count(table) == 1, f"{name} has no longer the line {table!r}"
            after = before.replace(table, table + text)
        path.write_text(after, encoding="utf-8")
    return root


def run(copy: Path, code: str) -> str:
    """Run code in a process whose ``rlx`` is the copy; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", COPY_FIRST + code],
        cwd=copy, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recipes_are_there() -> None:
    assert [name for name, _ in RECIPES] == [
        "rlx/ops/pointwise/activation.py", "rlx/ops/__init__.py",
        "test/support/jax_ops/pointwise.py", "rlx/lowering/rules.py",
        "rlx/targets/gpu/languages/gles.py",
    ]  # fmt: skip


def test_the_op_of_the_recipe_works_everywhere(copy: Path) -> None:
    run(
        copy,
        """
import numpy as np
from rlx.tools.opt import main

x = np.float32([-200, -80, -17, -3, -0.0, 0.5, 90, np.inf, -np.inf, np.nan])
g = rlx.Graph("recipe")
v = g.input("x", [10])
g.set_outputs([v.log_sigmoid(), g.log_sigmoid(v * 2) + 1])
with np.errstate(invalid="ignore"):
    expected = -np.logaddexp(-x.astype(np.float64), 0)
for found in (rlx.Session("cpu").compile(g).run({"x": x}), rlx.interpret(g, {"x": x})):
    np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-38)
p = rlx.inspect_pipeline(g)
assert "mul+log_sigmoid+add" in p.fusion, p.fusion
open("recipe.mlir", "w").write(p.hir)
assert "mir.log_sigmoid" in p.hir
assert main(["recipe.mlir", "--emit=asm", "-o", "recipe.s"]) == 0
""",
    )


def test_the_generated_tests_run_on_the_op_of_the_recipe(copy: Path) -> None:
    printed = run(
        copy,
        """
import pytest
tests = [f"test/ops/test_{name}.py" for name in ("native", "reference", "derivatives", "batch")]
tests += ["test/ops/test_derivatives_jax.py::test_every_differentiable_op_has_a_counterpart_in_jax"]
sys.exit(pytest.main(["-q", "-k", "log_sigmoid or counterpart", "-p", "no:cacheprovider", *tests]))
""",
    )
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None, printed
    assert int(passed[1]) > 12, printed


def test_the_generators_of_the_recipe_know_the_op(copy: Path) -> None:
    code = "import runpy; runpy.run_path('tools/{}.py', run_name='__main__')"
    run(copy, code.format("make_stubs"))
    run(copy, f"sys.argv[1:] = ['ops.md']\n{code.format('make_docs')}")
    stub = (copy / "rlx" / "ir" / "builders.pyi").read_text(encoding="utf-8")
    assert "def log_sigmoid(self, x: Value) -> Value:" in stub
    page = (copy / "docs" / "ops.md").read_text(encoding="utf-8")
    assert "### `mir.log_sigmoid`\n\n``log(sigmoid(x))``.\n" in page


def test_the_language_of_the_recipe_runs(copy: Path) -> None:
    if shutil.which("glslangValidator") is None or not drivers.probe("vulkan").found:
        pytest.skip("no glslang, or no Vulkan device (`make drivers` has both)")
    run(
        copy,
        """
sys.path.insert(0, "test")
import numpy as np
from rlx.compiler.driver import compile_program
from rlx.runtime.devices.gpu_executable import DeviceExecutable
from rlx.targets.gpu.emit import text_target
from rlx.targets.gpu.features import preset
from rlx.targets.gpu.languages.gles import GLES
from support.shaders import ShaderDriver

class Driver(ShaderDriver):
    language = "opengl"

g = rlx.Graph("recipe")
g.set_outputs([g.input("x", [3, 200]).softmax(axis=-1)])
program, _ = compile_program(g, text_target("gles", preset("webgpu"), GLES))
assert program.kernels[0].code.startswith(b"#version 320 es")
x = np.linspace(-3, 3, 600, dtype=np.float32).reshape(3, 200)
(found,) = DeviceExecutable(program, Driver()).run_slots(x)
np.testing.assert_allclose(found, rlx.interpret(g, {"x": x})[0], rtol=1e-5)
""",
    )


def test_the_rule_of_the_recipe_applies(copy: Path) -> None:
    code = """
from rlx.tools.opt import main

text = '''func.func @main(%x: tensor<4x{0}>) -> tensor<4x{0}> {{
  %0 = "mir.abs"(%x) : (tensor<4x{0}>) -> tensor<4x{0}>
  %1 = "mir.relu"(%0) : (tensor<4x{0}>) -> tensor<4x{0}>
  return %1 : tensor<4x{0}>
}}'''
for kind in ("f32", "i32"):
    open(kind, "w").write(text.format(kind))
    assert main([kind, "--simplify"]) == 0
"""
    as_float, as_int = re.findall(r"^module.*?^}", run(copy, code), re.MULTILINE | re.DOTALL)
    assert "mir.abs" in as_float
    assert "mir.relu" not in as_float
    assert "mir.relu" in as_int, "the rule does not hold for integers"


def test_the_backend_of_the_recipe_is_registered(copy: Path) -> None:
    (plain,) = (m[2] for m in BLOCK.finditer(GUIDE) if not m[1])
    assert run(copy, plain).split() == ["mine"]


def test_the_guide_is_short() -> None:
    assert len(GUIDE.splitlines()) <= 230


def test_the_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    make_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_docs)
    for name, text in make_docs.PAGES.items():
        written = (make_docs.DOCS / name).read_text(encoding="utf-8")
        assert written == text(), f"docs/{name} is old: run tools/make_docs.py"


@pytest.mark.parametrize(
    "name", ["autodiff", "cortexm", "devices", "fourier", "fpga", "linalg", "sparse", "splat"]
)
def test_the_examples_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})


FRAGMENTS = {
    "quantization": "",
    "precision": """
import rlx
from rlx.types import bf16, f32, i8, u8
g = rlx.Graph()
x, w = g.input("x", [2, 64]), g.input("w", [64, 32])
w_i8, x_i8 = g.input("w_i8", [64, 32], i8), g.input("x_i8", [2, 64], i8)
w_bf16, x_u8 = g.input("w_bf16", [64, 32], bf16), g.input("x_u8", [2, 64], u8)
scale = g.input("scale", [32])
x_zero, w_zero = g.input("x_zero", [], u8), g.input("w_zero", [], i8)
g.set_outputs(x @ w)
""",
    "profiling": """
from pathlib import Path
import numpy as np
import rlx.roofline
from support import tiny_bert
tiny_bert.write(Path("all-MiniLM-L6-v2"))
g = rlx.Graph()
ids, mask = np.zeros(4, np.int64), np.ones((4, 2), np.float32)
g.set_outputs(g.input("ids", [4], "i64").cast("f32").expand([2, 4]) @ g.input("mask", [4, 2]))
compiled = rlx.Session("cpu").compile(g)
""",
    "ane": "",
    "mlx": "",
    "onnx": """
import numpy as np
import rlx
g = rlx.Graph()
ids = np.ones(4, np.int64)
g.set_outputs({"logits": g.input("input_ids", [4], "i64").cast("f32").exp()})
rlx.to_onnx(g, "model.onnx")
""",
    "tpu": "",
    "view": """
import rlx
graph = rlx.Graph()
graph.set_outputs(graph.input("x", [4]).exp())
""",
}
"""What the reader of a page has already, whose examples are parts of a program."""


@pytest.mark.parametrize("name", FRAGMENTS)
def test_the_parts_of_programs_on_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if needed := {"ane": "coremltools", "onnx": "onnx"}.get(name):
        pytest.importorskip(needed, reason=f"the page uses the package {needed}")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert code
    exec("\n".join([FRAGMENTS[name], *code]), {})


def test_no_page_has_examples_that_nothing_runs() -> None:
    docs = ROOT / "docs"
    with_python = {
        str(p.relative_to(docs).with_suffix(""))
        for p in docs.rglob("*.md")
        if "```python\n" in p.read_text(encoding="utf-8")
    }
    run_as_programs = {n for n in with_python if n.startswith(("tutorials/", "howto/"))}
    others = {
        "autodiff", "cortexm", "devices", "distributed", "extending", "fourier", "fpga", "linalg",
        "llm", "serving",
        "sparse", "splat", "training",
    }  # fmt: skip
    assert with_python - others - run_as_programs - set(FRAGMENTS) == {"jax", "torch"}, (
        "which need other packages"
    )


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_page_on_a_framework_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: it is a peer only")
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, capture_output=True)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_runs(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode and "the model is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_the_page_on_extending_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = "\n".join(m[2] for m in BLOCK.finditer(text))
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path)


def test_the_page_on_training_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    script = tmp_path / "page.py"
    script.write_text(code + "\nassert accuracy > 0.97\n", encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, capture_output=True)
