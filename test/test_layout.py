"""The shape of the code base: what imports what, how long things are, and what is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from rlx.knobs import MAX_THREADS
from rlx.ops.control.bodies import MAX_DEPTH
from rlx.schedule.plan import FIRST_PARAM

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rlx"

MEDIAN_LINES, USUAL_LINES, LONG_LINES, FILE_LINES = 200, 400, 700, 900
LONG: dict[str, str] = {}
"""Why a file of the package may have more than ``LONG_LINES``."""

FUNCTION_LINES = 60

LAYERS = {
    "rlx": (
        "errors", "knobs", "base", "_mlir", "tracing", "types", "ir", "schedule", "quant", "ops",
        "optim", "random", "custom", "linalg", "sparse", "splat", "text",
        "precision", "autodiff",
        "dialects", "codegen", "kernels", "targets", "fpga",
        "lowering", "runtime", "compiler", "ane", "cortexm", "inspect",
        "view", "compat", "bench", "opt", "driver", "macros", "roofline", "functions", "xp", "nn",
        "ptq", "models", "frontends", "distributed", "llm", "training", "prelude", "tools",
        "__main__",
    ),
    "rlx.lowering": (
        "report", "compilation", "pass_base", "functions", "region", "rules", "select", "locations",
        "registry", "passes", "pass_options", "pipeline", "levels", "dump",
    ),
}  # fmt: skip
"""The modules and folders of a package, lowest first: each imports only what stands before it."""

SEAMS = {
    ("rlx.ir", "rlx.ops"): "builder methods and operators of values make ops",
    ("rlx.ir", "rlx.text"): "a graph is pickled as its text",
    ("rlx.ir", "rlx.dialects"): "Graph.to_mlir is where a user meets MLIR",
    ("rlx.ir", "rlx.inspect"): "a graph shows itself",
    ("rlx.ir", "rlx.view"): "a notebook shows graphs and values",
    ("rlx.runtime", "rlx.view"): "a notebook shows sessions, artifacts and profiles",
    ("rlx.compiler", "rlx.view"): "a notebook shows the levels of a compile",
    ("rlx.ir", "rlx.compat"): "rlx.ir has the names of the original's module of that name",
    ("rlx.quant", "rlx.ptq"): "rlx.quant has the names for graphs too",
    ("rlx.ir", "rlx.xp"): "NumPy's functions of elements, called with Values, are those of rlx.xp",
    ("rlx.ops", "rlx.compat"): "rlx.ops has the kinds of ops of the system that RLX follows",
    ("rlx.targets", "rlx.runtime"): "the native runtime reads CPUID",
    ("rlx.lowering.compilation", "rlx.lowering.region"): "made once a pass asks for regions",
    ("rlx.runtime", "rlx.compiler"): "a backend compiles when it is asked to, and not to run",
    ("rlx.compiler", "rlx.inspect"): "a module shows itself",
}
"""The imports that point up, each made inside the function that needs it."""

TOP_MODULES = 12
FOLDER_MODULES = 40
"""How many modules may lie in ``rlx/`` itself, and in any other folder, beside ``__init__``."""


def modules() -> dict[str, Path]:
    """Every module of the package with its file."""
    found: dict[str, Path] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree_of(path: Path) -> ast.Module:
    """A source, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_frozen_dataclasses_are_declared_in_one_way() -> None:
    """``@frozen`` of ``rlx.base.frozen``, but where it has no word for what is asked for."""
    plain = re.compile(r"^@dataclass\(frozen=True\)$", re.MULTILINE)
    assert not [name for name, path in MODULES.items() if plain.search(path.read_text("utf-8"))]


def statements_of(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a tree: most of its nodes are parts of expressions."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, field, ())


def test_asserts_do_no_work() -> None:
    """Python leaves them out under ``-O``."""
    harmless = {"isinstance", "issubclass", "len", "is_known"}
    found = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        for node in statements_of(tree_of(path))
        if isinstance(node, ast.Assert)
        for call in ast.walk(node.test)
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) not in harmless
    ]
    assert not found, "compute before the assert"


def test_ops_do_not_ask_which_machine_they_are_on() -> None:
    """A declaration says what it means; LoopBuilder says what a machine is good at."""
    asking = re.compile(r"\.frame\b|\.shares\b|KernelTarget")
    found = [f for f in sorted((PACKAGE / "ops").rglob("*.py")) if asking.search(f.read_text())]
    assert not found


def test_a_target_answers_questions_and_nobody_asks_for_its_kind() -> None:
    """``KernelTarget`` has a property for what differs between CPUs and GPUs."""
    asking = re.compile(r"\.frame\b (==|!=|in\b)")
    rooms = [PACKAGE / name for name in ("ops", "codegen", "kernels", "lowering")]
    found = {
        str(f.relative_to(PACKAGE)): line.strip()
        for room in rooms
        for f in sorted(room.rglob("*.py"))
        for line in f.read_text(encoding="utf-8").splitlines()
        if asking.search(line) and "text.frame" not in line  # TTIR beside text of ours
    }
    assert found.keys() == {"codegen/builder.py"}, found


def test_no_module_has_the_name_of_an_op() -> None:
    """Else ``rlx.stack([x, y])`` would call a module, and no error would say what to write."""
    from rlx.ops import BUILDERS

    assert not {m.split(".")[1] for m in MODULES if m.count(".") == 1} & {*BUILDERS}


@pytest.mark.parametrize(
    ("header", "name", "limit"),
    [
        ("step.h", "kMaxDepth", MAX_DEPTH),
        ("step.h", "kBaseFirstParam", FIRST_PARAM),
        ("thread_count.h", "kMaxThreads", MAX_THREADS),
    ],
)
def test_numbers_of_the_native_runtime_are_those_of_python(
    header: str, name: str, limit: int
) -> None:
    text = (PACKAGE / "runtime" / "native" / header).read_text(encoding="utf-8")
    assert re.findall(rf"\b{name} = (\d+);", text) == [str(limit)]


# -- imports -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """An import of our own module by another; ``eager`` if it happens as the module is loaded."""

    source: str
    target: str
    line: int
    eager: bool

    def edges(self) -> Iterator[tuple[str, str]]:
        """What it joins in each package of LAYERS that both ends lie in."""
        for package in LAYERS:
            parts = package.count(".") + 1
            if all(end.startswith(f"{package}.") for end in (self.source, self.target)):
                source, target = (end.split(".")[parts] for end in (self.source, self.target))
                yield f"{package}.{source}", f"{package}.{target}"

    def edges_up(self) -> Iterator[tuple[str, str]]:
        """Those of them that point up."""
        for source, target in self.edges():
            if RANKS[target] > RANKS[source]:
                yield source, target


def imports() -> Iterator[Import]:
    """Every import between our modules, without those that only a type checker makes."""
    for module, path in MODULES.items():
        tree = tree_of(path)
        for node, eager in _statements(tree.body, eager=True):
            for target in _targets(node):
                if target != module:
                    yield Import(module, target, node.lineno, eager)


def _statements(body: list[ast.stmt], *, eager: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, eager
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node.body, eager=False)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from _statements(node.orelse, eager=eager)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, field, []), eager=eager)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _statements(part.body, eager=eager)


@pytest.mark.parametrize(
    ("code", "eager"),
    [
        ("import a", [True]),
        ("def f(): import a", [False]),
        ("async def f(): import a", [False]),
        ("if x: import a\nelif y: import b\nelse: import c", [True] * 3),
        ("try: import a\nexcept E: import b\nelse: import c\nfinally: import d", [True] * 4),
        ("match x:\n case 1: import a\n case _: import b", [True] * 2),
        ("class C:\n import a\n async def f(self): import b", [True, False]),
        ("if TYPE_CHECKING: import a\nelse: import b", [True]),
    ],
)
def test_imports_are_found_in_every_statement(code: str, eager: list[bool]) -> None:
    assert [e for _, e in _statements(ast.parse(code).body, eager=True)] == eager


def _targets(node: ast.stmt) -> Iterator[str]:
    """The modules of ours that an import names."""
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.name in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
        for a in node.names:
            inner = f"{node.module}.{a.name}"
            yield inner if inner in MODULES else node.module


@cache
def inner_imports() -> list[Import]:
    """Those between modules within the package."""
    return [i for i in imports() if "." in i.source and "." in i.target]


RANKS = {f"{p}.{name}": n for p, names in LAYERS.items() for n, name in enumerate(names)}


def test_the_page_of_the_tree_has_the_order() -> None:
    page = (ROOT / "docs/layout.md").read_text("utf-8")
    rows = [re.split(" {2,}", n)[0] for n in page.splitlines() if n.startswith("rlx/")]
    named = [word.removeprefix("rlx/") for row in rows for word in row.split()]
    order = [word.removesuffix("/").removesuffix(".py") for word in named]
    layers = [n for n in LAYERS["rlx"] if n not in ("_mlir", "roofline", "prelude", "__main__")]
    assert order == layers


@pytest.mark.parametrize("package", LAYERS)
def test_every_module_has_a_layer(package: str) -> None:
    parts = package.count(".") + 1
    found = {m.split(".")[parts] for m in MODULES if m.startswith(f"{package}.")}
    assert found == set(LAYERS[package])


def test_imports_point_one_way() -> None:
    wrong = [i for i in inner_imports() for e in i.edges_up() if i.eager or e not in SEAMS]
    listed = [f"{i.source}:{i.line} imports {i.target}" for i in wrong]
    assert not wrong, f"these imports point up: {listed}; LAYERS is the order"


def test_every_exception_is_in_use() -> None:
    assert {e for i in inner_imports() for e in i.edges_up()} == set(SEAMS)


def test_folders_are_small() -> None:
    counts = Counter(p.parent for p in MODULES.values() if not p.stem.startswith("__"))
    wrong = {
        str(folder.relative_to(ROOT)): n
        for folder, n in counts.items()
        if n > (TOP_MODULES if folder == PACKAGE else FOLDER_MODULES)
    }
    assert not wrong, "put modules into the folder of their stage or family"


def test_no_module_imports_itself_through_others() -> None:
    needs: dict[str, set[str]] = {m: set() for m in MODULES}
    for i in inner_imports():
        if i.eager:
            needs[i.source].add(i.target)
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the cycle


INTERWOVEN = {"rlx.ops"}
"""Packages whose folders import one another both ways: an op of one family is defined by others."""


def test_no_folder_imports_itself_through_its_neighbours() -> None:
    """So the folders of a package have an order, which need not be written down."""
    found: set[str] = set()
    for package in (m for m, path in MODULES.items() if path.stem == "__init__"):
        depth = package.count(".") + 1
        needs: dict[str, set[str]] = {}
        for i in inner_imports():
            ends = (i.source, i.target)
            if i.eager and all(end.startswith(f"{package}.") for end in ends):
                source, target = (end.split(".")[depth] for end in ends)
                needs.setdefault(source, set()).update({target} - {source})
        try:
            TopologicalSorter(needs).prepare()
        except CycleError:
            found.add(package)
    assert found == INTERWOVEN


@pytest.mark.parametrize(
    ("package", "owner"), [("torch_mlir", "rlx._mlir"), ("llvmlite", "rlx.targets.llvm.machine")]
)
def test_a_toolchain_package_has_one_owner(package: str, owner: str) -> None:
    pattern = re.compile(rf"^\s*(?:import|from)\s+{package}\b", re.MULTILINE)
    found = [m for m, p in MODULES.items() if pattern.search(p.read_text(encoding="utf-8"))]
    assert found == [owner]


def python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_rlx_loads_nothing_else() -> None:
    loaded = "sorted(m for m in sys.modules if m.startswith(('rlx', 'numpy')))"
    assert python(f"import sys, rlx; print({loaded})") == "['rlx']"


@pytest.mark.parametrize(
    "use",
    [
        "import rlx.types, rlx.ir.graph, rlx.ops; rlx.ops.load_all()",
        "import rlx; g = rlx.Graph(); g.set_outputs(g.input('x', [2]).gelu());"
        "rlx.interpret(g, {'x': [1, 2]})",
        "from rlx.kernels.registry import FAMILIES, load_families; load_families(FAMILIES)",
        "import rlx.runtime.session, rlx.runtime.interpreted, rlx.runtime.artifact",
        "import rlx.models.embed, rlx.tools.cli, rlx.tools.opt",
        "import rlx; g = rlx.Graph(); g.set_outputs(g.input('x', [2]).gelu());"
        "from rlx.text import parse_graph, graph_text; parse_graph(graph_text(g))",
    ],
    ids=["ops", "interpret", "kernels", "runtime", "models and tools", "text of a graph"],
)
def test_only_compiling_loads_the_toolchain(use: str) -> None:
    code = f"import sys; {use}; print([m for m in ('torch_mlir', 'llvmlite') if m in sys.modules])"
    assert python(code) == "[]"


# -- the prelude ---------------------------------------------------------------------------


def test_no_module_hides_a_public_name() -> None:
    """Importing ``rlx.x`` sets the attribute ``x`` of the package: a name of the prelude must not
    be that of a module."""
    import rlx

    assert not {f"rlx.{name}" for name in rlx.__all__} & set(MODULES)


# -- size ----------------------------------------------------------------------------------


def test_files_are_short() -> None:
    found = [p for kind in ("*.py", "*.cpp", "*.h") for p in PACKAGE.rglob(kind)]
    sources = [p for p in found if "third_party" not in p.parts]
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in sources}
    in_order = sorted(lengths.values())
    assert in_order[len(in_order) // 2] <= MEDIAN_LINES
    assert in_order[len(in_order) * 9 // 10] <= USUAL_LINES
    long = {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > LONG_LINES}
    assert long.keys() == LONG.keys()
    assert not {p: n for p, n in long.items() if n > FILE_LINES}


def test_functions_are_short() -> None:
    long: dict[str, int] = {}
    for module, path in MODULES.items():
        for node in statements_of(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long[f"{module}.{node.name}"] = lines
    assert not long


# -- documentation -------------------------------------------------------------------------


def undocumented(module: str) -> Iterator[str]:
    """What a module makes public and says nothing of: itself, classes, functions, methods.

    A method is documented by the base class of ours that declares it.
    """
    tree = tree_of(MODULES[module])
    if ast.get_docstring(tree) is None:
        yield module
    loaded = importlib.import_module(module)
    public = getattr(loaded, "__all__", None)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if public is not None and node.name not in public:
            continue
        if any(ast.unparse(d) == "overload" for d in node.decorator_list):
            continue
        if ast.get_docstring(node) is None:
            yield f"{module}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_methods(node, getattr(loaded, node.name))


def _undocumented_methods(node: ast.ClassDef, cls: type) -> Iterator[str]:
    bases = [b for b in cls.__mro__[1:] if b.__module__.startswith("rlx")]
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        declared = any(method.name in {**vars(b), **inspect.get_annotations(b)} for b in bases)
        if ast.get_docstring(method) is None and not declared:
            yield f"{cls.__module__}.{cls.__name__}.{method.name}"


def test_what_is_public_is_documented() -> None:
    missing = [name for module in MODULES for name in undocumented(module)]
    assert not missing, f"{len(missing)} have no docstring"


# -- removal -------------------------------------------------------------------------------

REMOVE = """
import ast, importlib.util, sys
import rlx.ops

op, cls, module = sys.argv[1:]
rlx.ops.FAMILIES[module] = tuple(n for n in rlx.ops.FAMILIES[module] if n != op)
del rlx.ops.OP_MODULES[op], rlx.ops.BUILDERS[op.split(".")[1]]
spec = importlib.util.find_spec(module)
tree = ast.parse(open(spec.origin, encoding="utf-8").read())
tree.body = [n for n in tree.body if getattr(n, "name", "") != cls]
family = importlib.util.module_from_spec(spec)
sys.modules[module] = family
exec(compile(tree, spec.origin, "exec"), family.__dict__)
rlx.ops.load_all()

import numpy as np
import rlx
from rlx.tools.opt import main

assert op not in rlx.ir.op.registry
g = rlx.Graph("hello")
x = g.input("x", [1, 4])
g.set_outputs(x @ g.param("w", [4, 2], value=np.float32([1, 0, 0, 1, 1, 0, 0, 1])))
assert rlx.Session("cpu").compile(g).run({"x": [[1, 2, 3, 4]]})[0].tolist() == [[4, 6]]

g = rlx.Graph("mlp")
h = (g.input("x", [3, 8]) @ g.param("w1", [8, 16]) + g.param("b1", [16])).gelu()
g.set_outputs((h @ g.param("w2", [16, 4])).softmax(axis=-1))
shapes = dict(x=(3, 8), w1=(8, 16), b1=16, w2=(16, 4))
feeds = {n: np.ones(shape, np.float32) for n, shape in shapes.items()}
f = rlx.Session("cpu").compile(g)
for v in g.params:
    f.set_param(v.name, feeds[v.name])
np.testing.assert_allclose(f.run({"x": feeds["x"]})[0], rlx.interpret(g, feeds)[0], rtol=1e-5)

open("mlp.mlir", "w").write(str(g.to_mlir()))
assert main(["mlp.mlir", "--emit=asm", "-o", "mlp.s"]) == 0
open("removed.mlir", "w").write(
    'func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\\n'
    f'  %y = "{op}"(%x) : (tensor<2xf32>) -> tensor<2xf32>\\n'
    '  return %y : tensor<2xf32>\\n}\\n'
)
assert main(["removed.mlir"]) == 1
"""


def remove(op: str, cls: str, module: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a small graph, an MLP and rlx-opt in a process in which a class does not exist."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}){REMOVE}"
    return subprocess.run(
        [sys.executable, "-c", code, op, cls, module],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def test_removing_an_op_leaves_the_rest_working(tmp_path: Path) -> None:
    done = remove("mir.floor", "Floor", "rlx.ops.pointwise.unary", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mir.floor" in done.stderr, "rlx-opt does not name the op that is not there"


def test_an_op_that_others_need_is_named_there_by_class(tmp_path: Path) -> None:
    """So that its removal is an error as the code is loaded, and one of the type checker."""
    done = remove("mir.silu", "Silu", "rlx.ops.pointwise.activation", tmp_path)
    assert "cannot import name 'Silu'" in done.stderr


# -- what does not belong into the repository ----------------------------------------------

PLACES = re.compile(r"(?<![\w.~/-])/(?:home|root|work|tmp|mnt|opt|Users)/\w")
REGISTRIES = re.compile(
    r"https?://[^\s\"'<>)]*(?:pypi|pythonhosted|/simple\b)|--(?:extra-)?index-url"
)


def tracked() -> list[Path]:
    """The files that git tracks or would track; skips where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no git checkout: {e}")
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [p for p in paths if p.is_file()]


@pytest.mark.parametrize("pattern", [PLACES, REGISTRIES], ids=["places", "registries"])
def test_no_file_names_a_place_of_one_machine(pattern: re.Pattern[str]) -> None:
    found: list[str] = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found


def test_the_top_of_the_tree_has_what_belongs_there() -> None:
    """A dump that is left there would be read as a part of the project by whoever looks first."""
    found = {p.name for p in tracked() if p.parent == ROOT}
    assert found == {
        ".clang-format", ".gitignore", "CHANGELOG.md", "CMakeLists.txt", "CONTRIBUTING.md",
        "LICENSE", "Makefile", "README.md", "pyproject.toml",
    }  # fmt: skip


def test_the_patterns_find_what_they_look_for() -> None:
    assert PLACES.search("model = '/" + "home/someone/model'")
    assert not PLACES.search("test/" + "home/page")
    assert REGISTRIES.search("https:" + "//pypi.org/simple/")
