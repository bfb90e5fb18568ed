"""What a key depends on, and what not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import UnsupportedError
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Options
from rlx.ops.movement.constant import Constant
from rlx.runtime.cache import key as keys
from rlx.runtime.cache import shared
from rlx.runtime.cache.fingerprint import structure
from rlx.runtime.cache.key import Key, Part, artifact_parts, toolchain

ROOT = Path(__file__).resolve().parents[3]


def small(
    *,
    name: str = "x",
    param: str = "w",
    width: int = 4,
    dtype: str = "f32",
    scale: float = 0.5,
    table: Any = (1.0, 2.0),
    axis: int = -1,
    op: str = "exp",
    swap: bool = False,
    outputs: int = 1,
    batch: int = 2,
) -> Graph:
    g = Graph("small")
    x = g.input(name, ["batch", width], dtype)
    w = g.param(param, [width], dtype)
    c = g.constant(np.array(table), dtype).reshape((len(table), 1))
    y = getattr(x * scale, op)()
    z = (w - y) if swap else (y - w)
    z = g.softmax(z, axis=axis)
    g.set_outputs([z, y][:outputs] if not swap else [z])
    h = g.bind({"batch": batch})
    assert c.shape == (len(table), 1)
    return h


def key(
    graph: Graph | None = None,
    target: str = "cpu",
    features: str = "x86-64-v3",
    tools: tuple[Part, ...] | None = None,
    **options: Any,
) -> Key:
    parts = toolchain("0") if tools is None else tools
    whole = graph or small()
    return Key("artifact", artifact_parts(whole, target, features, Options(**options), parts))


def with_tool(name: str) -> tuple[Part, ...]:
    return tuple(Part(p.name, "another" if p.name == name else p.text) for p in toolchain("0"))


FLIPS: dict[str, Callable[[], Key]] = {
    "graph": lambda: key(small(op="tanh")),
    "dims": lambda: key(small(batch=3)),
    "option dispatch": lambda: key(dispatch="common"),
    "option fuse": lambda: key(fuse=False),
    "option force_common": lambda: key(force_common=("exp",)),
    "option force_native": lambda: key(force_native=("exp",)),
    "option donate": lambda: key(donate=((0, 0),)),
    "option most_rounds": lambda: key(most_rounds=65536),
    "option constant_folding": lambda: key(constant_folding=False),
    "target": lambda: key(target="other"),
    "features": lambda: key(features="x86-64-v4"),
    "rlx": lambda: key(tools=toolchain("1")),
    "mlir": lambda: key(tools=with_tool("mlir")),
    "llvm": lambda: key(tools=with_tool("llvm")),
    "numpy": lambda: key(tools=with_tool("numpy")),
    "ml_dtypes": lambda: key(tools=with_tool("ml_dtypes")),
}


def test_every_part_is_flipped_below() -> None:
    assert [p.name for p in key().parts] == list(FLIPS)


@pytest.mark.parametrize("part", FLIPS)
def test_each_part_decides(part: str) -> None:
    other = FLIPS[part]()
    assert other.digest != key().digest
    (difference,) = key().differences(other)
    assert difference.startswith(part)


CHANGES: list[dict[str, Any]] = [
    {"name": "y"}, {"param": "v"}, {"width": 5}, {"dtype": "f64"}, {"scale": 0.25},
    {"scale": np.nextafter(np.float32(0.5), np.float32(1))}, {"scale": -0.5}, {"axis": 0},
    {"op": "sin"}, {"swap": True}, {"outputs": 2},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_structure_has_every_detail(change: dict[str, Any]) -> None:
    assert structure(small(**change)) != structure(small())


@given(st.lists(st.floats(width=32), min_size=1, max_size=6), st.data())
@settings(max_examples=50)
def test_any_bit_of_a_constant_counts(values: list[float], data: st.DataObject) -> None:
    def graph(a: Any) -> Graph:
        g = Graph()
        g.set_outputs([Constant(a).out])
        return g

    a = np.array(values, np.float32)
    b = a.copy()
    at = data.draw(st.integers(0, a.nbytes * 8 - 1))
    b.view(np.uint8)[at // 8] ^= 1 << at % 8
    assert structure(graph(a)) == structure(graph(a.copy()))
    assert structure(graph(a)) != structure(graph(b))
    assert structure(graph(a)) != structure(graph(a.reshape(1, -1)))
    assert structure(graph(a)) != structure(graph(a.view(np.int32)))


LEAVES = st.tuples(
    st.sampled_from(["x", "y", 'a"', "a\n"]), st.lists(st.integers(1, 3), max_size=3)
)


@given(LEAVES, LEAVES)
@settings(max_examples=100)
def test_two_declarations_are_equal_only_if_they_are(a: Any, b: Any) -> None:
    def graph(name: str, shape: list[int]) -> Graph:
        g = Graph()
        g.set_outputs(g.input(name, shape))
        return g

    assert (structure(graph(*a)) == structure(graph(*b))) == (a == b)


def test_a_graph_bound_by_steps_has_the_key_of_one_bound_at_once() -> None:
    def graph() -> Graph:
        g = Graph()
        g.set_outputs(g.input("x", ["a", "b"]).exp())
        return g

    once = graph().bind({"a": 2, "b": 3})
    assert key(graph().bind({"b": 3}).bind({"a": 2})).digest == key(once).digest


def test_a_graph_changed_after_it_was_bound_is_another() -> None:
    bound = small()
    bound.set_outputs(bound.outputs[0] + 1.0)
    assert key(bound).digest != key().digest
    other = small()
    other.input("more", [1])
    assert key(other).digest != key().digest
    g = Graph()
    x = g.input("x", ["n"])
    g.set_outputs(x.exp())
    first = g.bind({"n": 2})
    g.set_outputs(x.sin())
    assert "mir.exp" in key(first).parts[0].text


def test_names_order_and_places_do_not_count() -> None:
    expected = key().digest
    assert key(elsewhere()).digest == expected
    shuffled = small()
    assert shuffled.origin is not None
    for v in shuffled.origin.outputs:
        assert v.op is not None
        v.op.attrs = dict(reversed(v.op.attrs.items()))
    assert key(shuffled).digest == expected
    named = small()
    named.name = "another name"
    named.param_values["w"] = np.ones(4, np.float32)
    assert key(named).digest == expected


def elsewhere() -> Graph:
    """``small``, as written in another file."""
    source = "\n" * 500 + ROOT.joinpath("test/runtime/cache/test_key.py").read_text("utf-8")
    space: dict[str, Any] = {"__name__": "elsewhere", "__file__": __file__}
    exec(compile(source, "another/file.py", "exec"), space)
    graph = space["small"]()
    assert {file for _, (file, _) in graph.places()} == {"another/file.py"}
    return graph


PRINT = """
import sys
sys.path[:0] = [{root!r}, {root!r} + '/test']
import importlib.util
spec = importlib.util.spec_from_file_location('t', {file!r})
t = importlib.util.module_from_spec(spec)
spec.loader.exec_module(t)
print(t.key().digest)
"""


def test_processes_agree(tmp_path: Path) -> None:
    code = PRINT.format(root=str(ROOT), file=__file__)
    environments = [
        {"PYTHONHASHSEED": "1", "LANG": "C"},
        {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "RLX_NUM_THREADS": "1", "SOME": "THING"},
    ]
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **e}, cwd=cwd, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for e, cwd in zip(environments, (tmp_path, ROOT), strict=True)
    }  # fmt: skip
    assert found == {key().digest}


def test_an_attribute_without_a_fingerprint_is_refused() -> None:
    g = small()
    assert g.origin is not None and g.origin.outputs[0].op is not None
    g.origin.outputs[0].op.attrs["axis"] = object()
    with pytest.raises(UnsupportedError, match="has no fingerprint"):
        structure(g.origin)


def test_attributes_of_any_kind_have_a_text() -> None:
    inner = small()
    g = Graph()
    g.set_outputs(g.input("x", [2]).exp())
    op = g.outputs[0].op
    assert op is not None
    texts: set[str] = set()
    kinds = [1, 1.0, True, "1", None, (1,), ("1",), {"a": 1}, {"a": 2}, inner, small(op="sin")]
    for value in kinds:
        op.attrs["extra"] = value
        texts.add(structure(g))
    assert len(texts) == len(kinds)
    op.attrs["extra"] = {"b": 1, "a": 2}
    one = structure(g)
    op.attrs["extra"] = {"a": 2, "b": 1}
    assert structure(g) == one


# -- what RLX itself is made of ----------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of a part of RLX."""
    copy = tmp_path / "rlx"
    copy.mkdir()
    (copy / "base").mkdir()
    for name in ("errors.py", "types.py", "base/dims.py"):
        shutil.copy(Path(shared.PACKAGE) / name, copy / name)
    return copy


def digest_of(package: Path) -> str:
    return keys.contents_digests(package, keys.stamps(package))[0]


def test_every_source_file_counts_and_its_path_does_not(package: Path, tmp_path: Path) -> None:
    before = digest_of(package)
    package.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert digest_of(moved) == before
    (moved / "notes.txt").write_text("no source")
    (moved / "__pycache__").mkdir()
    (moved / "__pycache__" / "errors.py").write_text("no source either")
    assert digest_of(moved) == before
    (moved / "base" / "dims.py").write_bytes((moved / "base" / "dims.py").read_bytes() + b"\n")
    changed = digest_of(moved)
    (moved / "base" / "dims.py").rename(moved / "base" / "sizes.py")
    assert len({before, changed, digest_of(moved)}) == 3


def test_a_change_that_keeps_size_and_time_changes_the_stamps(package: Path) -> None:
    path = package / "errors.py"
    before, s = keys.stamps(package), path.stat()
    # The system's clock of changes goes in ticks: the change must not be in that of the copy.
    (probe := package / "probe").touch()
    while probe.stat().st_ctime_ns <= s.st_ctime_ns:
        probe.touch()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns))
    assert path.stat().st_size == s.st_size and path.stat().st_mtime_ns == s.st_mtime_ns
    assert keys.stamps(package) != before


def test_the_installed_versions_are_those_that_metadata_says() -> None:
    from importlib.metadata import version

    texts = {p.name: p.text for p in toolchain("abc")}
    assert texts["mlir"] == f"torch-mlir {version('torch-mlir')}"
    assert texts["llvm"] == f"llvmlite {version('llvmlite')}"
    assert texts["numpy"] == np.__version__
    assert texts["ml_dtypes"] == f"ml-dtypes {version('ml-dtypes')}"
    assert texts["rlx"] == f"{rlx.__version__} with sources abc"


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert keys._version("no_such_package_x", "no-such-package-x") == "no no-such-package-x"


def test_a_difference_names_the_line() -> None:
    one, two = Part("graph", "a\nb\nc"), Part("graph", "a\nB\nc")
    assert one.difference(two) == "graph differs in line 2:\n  here   b\n  there  B"
    longer = Part("graph", "a\nb\nc\nd")
    assert "line 4" in one.difference(longer)
    key_one, key_two = Key("k", (one,)), Key("k", (Part("new", "1"),))
    assert key_one.differences(key_two) == [
        "graph is 'a\\nb\\nc' here, and no part of the key there",
        "new is no part of the key here",
    ]
