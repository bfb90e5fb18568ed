"""Kernels that RLX was installed with: found where nobody compiled, never where they do not fit."""

from __future__ import annotations

import importlib
import re
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.compiler.driver import compile_structure, lowered
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Compilation
from rlx.runtime import _native
from rlx.runtime.cache import artifacts, objects, shared, shipped
from rlx.runtime.cache.key import Part, contents_digests, kernel_tools, stamps
from rlx.targets import find_target
from rlx.targets.cpu.features import PRESETS, detect, preset
from rlx.targets.cpu.plain import target_of

ISA = detect().isa
WEIGHTS = np.eye(40, 24, dtype=np.float32), np.linspace(-1, 1, 24, dtype=np.float32)
PACKAGING = Path(__file__).parents[3] / "tools" / "packaging"


def layer() -> rlx.Graph:
    g = rlx.Graph("layer")
    x = g.input("x", [5, 40])
    w, b = WEIGHTS
    g.set_outputs([(x @ g.param("w", value=w) + g.param("b", value=b)).relu()])
    return g


def forget() -> None:
    """As in a new process of a user who has compiled nothing."""
    artifacts.in_memory.clear()
    objects.in_memory.clear()
    shipped._opened.cache_clear()
    store = shared.store()
    assert store is not None
    store.clear()


class Gathered(dict[str, bytes]):
    """A shelf without anything, which keeps what is made."""

    def read(self, kernel: str) -> None: ...
    def write(self, found: Iterator[tuple[str, bytes]]) -> None:
        self.update(found)


def tools() -> tuple[Part, ...]:
    store = shared.store()
    assert store is not None
    found = shared.tools_of_kernels(store)
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the archives lie."""
    monkeypatch.setattr(shipped, "FOLDER", str(tmp_path))
    forget()
    yield tmp_path
    shipped._opened.cache_clear()
    objects.in_memory.clear()


@cache
def kernels_of(level: str = ISA) -> dict[str, bytes]:
    """The objects of the layer's kernels by what describes them."""
    shelf = Gathered()
    objects.in_memory.clear()
    compile_structure(layer(), find_target(f"cpu:{level}"), shelf=shelf)  # type: ignore[arg-type]
    assert shelf
    return shelf


def ship(folder: Path, kernels: dict[str, bytes], level: str = ISA) -> Path:
    path = folder / f"{level}.kernels"
    path.write_bytes(shipped.packed_archive(level, tools(), kernels))
    return path


def made() -> tuple[int, int, dict[str, bytes]]:
    """How many kernels a user's first compile made and found, and their objects."""
    forget()
    f = rlx.Session("cpu").compile(layer())
    assert f._fast is not None
    return f.reports[0].kernels_made, f.reports[0].kernels_reused, dict(f._fast.variant.objects)


def test_the_first_compile_of_a_user_makes_none_of_them(folder: Path) -> None:
    count, reused, compiled = made()
    assert (count, reused) == (len(compiled), 0)
    ship(folder, kernels_of())
    count, reused, found = made()
    assert (count, reused) == (0, len(compiled))
    assert found == compiled  # the same bytes as those that are compiled here
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    f = rlx.Session("cpu").compile(layer())
    np.testing.assert_array_equal(f.run({"x": x})[0], np.maximum(x[:, :24] + WEIGHTS[1], 0))


def test_what_the_user_has_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(folder, kernels_of())
    rlx.Session("cpu").compile(layer())
    artifacts.in_memory.clear()
    objects.in_memory.clear()
    shelf = objects.Shelf(shared.store(), tools(), None)  # type: ignore[arg-type]
    (text, data), *_ = kernels_of().items()
    assert shelf.read(text) is None  # shipped ones are not copied into the user's folder
    shelf.write([(text, data)])
    assert shelf.read(text) == data


def test_an_archive_of_another_level_is_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = kernels_of()
    data = ship(folder, kernels, "x86-64-v4" if ISA != "x86-64-v4" else "x86-64-v3").read_bytes()
    (folder / f"{ISA}.kernels").write_bytes(data)
    with knobs.log.scoped(("cache",)):
        assert made()[1] == 0
    assert f"kernels is not used: it is for x86-64-v{'4' if ISA != 'x86-64-v4' else '3'}, and" in (
        capsys.readouterr().err
    )


@pytest.mark.skipif(_native.machine() != "x86_64", reason="the levels are those of x86-64")
def test_a_forged_level_brings_no_kernel_to_a_cpu_without_its_features(folder: Path) -> None:
    """The kernels of a higher level, under a first line that says the lower one."""
    forged = kernels_of("x86-64-v4")
    assert all(b"v4" in kernel.encode() for kernel in forged)
    ship(folder, forged, "x86-64-v3")
    with knobs.cpu.scoped("x86-64-v3"):
        count, reused, found = made()
    assert (count, reused) == (len(found), 0)
    assert not set(found.values()) & set(forged.values())


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda d: b"", ""),
        (lambda d: b"rlx-kernels 2" + d[13:], "does not begin as an archive"),
        (lambda d: d.replace(b" 1 ", b" one ", 1), "does not begin as an archive"),
        (lambda d: re.sub(rb"[0-9a-f]{32}", b"0" * 32, d, count=1), "made by other versions"),
        (lambda d: d[: d.index(b"\n") + 30], "its index is damaged"),
        (lambda d: d[:-40], "is damaged: "),
    ],
)
def test_a_damaged_archive_is_none(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: object, why: str
) -> None:
    path = ship(folder, kernels_of())
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with knobs.log.scoped(("cache",)):
        count, _, found = made()
    assert count > 0
    assert set(found.values()) <= set(kernels_of().values())
    assert why in capsys.readouterr().err


def test_sources_in_python_tell_versions_and_the_native_module_does_not(tmp_path: Path) -> None:
    def digests(**files: str) -> tuple[str, str]:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return contents_digests(tmp_path, stamps(tmp_path))

    first = digests(a_py="1", b_so="1")
    other = digests(b_so="2")
    assert first[0] != other[0]
    assert first[1] == other[1] != digests(a_py="2")[1]


@pytest.mark.parametrize(
    ("family", "config", "plain"),
    [
        ("contraction", "ContractionConfig(a=rlx.f32, b=rlx.f32)", True),
        ("copy", "Program(inputs=(rlx.u32, rlx.bool, rlx.i64, rlx.f64))", True),
        ("contraction", "ContractionConfig(a=rlx.bf16, b=rlx.f32)", False),
        ("elementwise", "Program(inputs=(rlx.f32, rlx.i8))", False),
        ("conv", "ConvConfig(dtype=rlx.i32, words=Words(signed=True))", False),
        ("conv", "ConvConfig(dtype=rlx.f32, words=None)", True),
        ("block_product", "Config(dtype=rlx.f32)", False),
    ],
)
def test_kernels_of_wide_types_are_made_for_a_level_alone(
    family: str, config: str, plain: bool
) -> None:
    target = find_target("cpu:x86-64-v4+avx512vnni+avx512bf16")
    found = target_of(family, config, target)
    assert found.features.name == ("x86-64-v4" if plain else target.features.name)
    assert target_of(family, config, find_target("cuda")).name == "cuda"


def test_extras_change_no_kernel_of_wide_types() -> None:
    """So that it costs nothing to make these without them."""
    extra = "x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512fp16+avx512vnni"
    if _native.machine() != "x86_64":
        extra = f"{ISA}+{'+'.join(sorted(detect().has - PRESETS[ISA].has))}".rstrip("+")
    g = rlx.Graph("wide")
    x = g.input("x", [6, 40])
    y = (x @ g.param("w", [40, 24]) + 1.0).gelu()
    g.set_outputs([y.softmax(-1), y.sum(0)])
    whole, base = find_target(f"cpu:{extra}"), find_target(f"cpu:{preset(extra).isa}")
    for k in lowered(g, Compilation(whole)).kernels:
        assert target_of(k.family, repr(k.config), whole).features == base.features
        one, other = (
            t.emitter.emit([emit_kernel(k.family, "k", k.config, t.kernels)], "object")
            for t in (whole, base)
        )
        assert one == other


@pytest.fixture
def ship_kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, whose list is one layer."""
    monkeypatch.syspath_prepend(str(PACKAGING))
    for name in ("ship_kernels", "layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module, layers = importlib.import_module("ship_kernels"), importlib.import_module("layers")
    monkeypatch.setattr(layers, "graphs", lambda: iter([layer()]))
    return module


RECORD = "rlx-1.dist-info/RECORD"


def wheel_of(folder: Path, **sources: str) -> Path:
    """A wheel of a part of RLX's sources, and others."""
    path = folder / "rlx-1-cp312-abi3-manylinux_2_28_x86_64.whl"
    own = (Path(rlx.__file__).parent / "types.py").read_text()
    with zipfile.ZipFile(path, "w") as z:
        for name, text in {"rlx/types.py": own, **sources}.items():
            z.writestr(name, text)
        z.writestr(RECORD, f"rlx/types.py,,\n{RECORD},,\n")
    return path


@pytest.mark.skipif(_native.machine() != "x86_64", reason="the levels are those of x86-64")
def test_a_wheel_gets_the_kernels_of_its_levels(tmp_path: Path, ship_kernels: Any) -> None:
    objects.in_memory.clear()
    wheel = wheel_of(tmp_path)
    for _ in range(2):  # the second time in their place
        ship_kernels.into_wheel(wheel)
    levels = [f"rlx/shipped/x86-64-v{n}.kernels" for n in (3, 4)]
    with zipfile.ZipFile(wheel) as z:
        assert z.testzip() is None
        assert sorted(z.namelist()) == sorted([RECORD, "rlx/types.py", *levels])
        lines = z.read(RECORD).decode().splitlines()
        data = z.read(levels[1])
        z.extractall(tmp_path / "unpacked")
    package = tmp_path / "unpacked" / "rlx"
    tools = kernel_tools(contents_digests(package, stamps(package))[1])
    (tmp_path / "x86-64-v4.kernels").write_bytes(data)
    found = shipped._opened(
        str(tmp_path / "x86-64-v4.kernels"), "x86-64-v4", shipped.tools_digest(tools)
    )
    assert found is not None
    for text, made in kernels_of("x86-64-v4").items():
        assert found.read(text) == made
    assert lines[:2] == ["rlx/types.py,,", f"{RECORD},,"]
    assert [line.rpartition(",")[2] for line in lines[3:]] == [str(len(data))]


def test_records_have_the_sums_that_wheels_have(ship_kernels: Any) -> None:
    # What sha256sum says of "new", in the base 64 of URLs.
    expected = "a.kernels,sha256=EVB6Di9eadXfpApiob17buV-a82FxnybhDGzb_8hxDc,3"
    assert ship_kernels._record(("a.kernels", b"new")) == expected


def test_a_wheel_of_other_sources_gets_none(tmp_path: Path, ship_kernels: Any) -> None:
    wheel = wheel_of(tmp_path, **{"rlx/base/dims.py": "x = 1"})
    with pytest.raises(SystemExit, match=r"is of other sources: .*dims\.py differs"):
        ship_kernels.into_wheel(wheel)


@pytest.mark.parametrize("tag", ["any", "manylinux_2_28_riscv64"])
def test_a_wheel_of_a_machine_without_levels(tmp_path: Path, ship_kernels: Any, tag: str) -> None:
    wheel = wheel_of(tmp_path).rename(tmp_path / f"rlx-1-cp312-abi3-{tag}.whl")
    before = wheel.read_bytes()
    with pytest.raises(SystemExit, match=rf"is for '{tag}', and kernels are made for x86_64, "):
        ship_kernels.into_wheel(wheel)
    assert wheel.read_bytes() == before


def test_the_layers_are_graphs_that_can_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGING))
    layers = importlib.import_module("layers")
    listed = list(layers.graphs())
    assert len({g.name for g in listed}) == len(listed) > 100
    (one,) = (g for g in listed if g.name == "texts of 128x32")
    assert lowered(one, Compilation(find_target("cpu"))).kernels
