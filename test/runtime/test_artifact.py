"""Artifacts as files: they come back as they went, run to the same bits, and damage is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import (
    ArtifactError,
    DeviceError,
    DTypeError,
    FaultError,
    NameError,
    ShapeError,
)
from rlx.runtime import _native, container
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from rlx.targets.cpu.features import preset

Array = np.ndarray[Any, Any]

W1 = np.linspace(-1, 1, 16 * 48, dtype=np.float32).reshape(16, 48)
W2 = np.linspace(1, -1, 48 * 4, dtype=np.float32).reshape(48, 4)
TABLE = np.arange(30, dtype=np.float32).reshape(10, 3)
X = np.linspace(-2, 2, 5 * 16, dtype=np.float32).reshape(5, 16)
INDICES = np.array([3, 9], np.int64)


def model() -> rlx.Graph:
    """Packed params, a param in place, a constant that is no splat, and a fault's site."""
    g = rlx.Graph("model")
    x, i = g.input("x", [5, 16]), g.input("i", [2], "i64")
    h = (x @ g.param("w1", [16, 48])).gelu() @ g.param("w2", [48, 4])
    table = g.constant(TABLE)
    g.set_outputs([h + g.param("b", [4]), g.gather(table, i, axis=0).cast("bf16")])
    return g


VALUES = {"w1": W1, "w2": W2, "b": np.float32([1, 2, 3, 4])}


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return rlx.compile_artifact(model(), params=VALUES)


@pytest.fixture(scope="module")
def data(artifact: Artifact) -> bytes:
    return bytes(artifact)


def test_a_file_holds_the_artifact(artifact: Artifact, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.rlx"
    artifact.save(path)
    assert path.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["model.rlx"], "a staged file is left"
    again = Artifact.load(path)
    assert bytes(again) == data
    assert (again.inputs, again.outputs) == (artifact.inputs, artifact.outputs)
    assert again.params == artifact.params
    v, w = artifact.variant, again.variant
    assert (w.launches, w.sites, w.kernels, w.objects) == (
        v.launches,
        v.sites,
        v.kernels,
        v.objects,
    )
    assert again.values.keys() == VALUES.keys()


@pytest.mark.parametrize("mapped", [False, True])
def test_a_loaded_artifact_runs_to_the_same_bits(
    artifact: Artifact, tmp_path: Path, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = rlx.Session("cpu").compile(model())
    for name, value in VALUES.items():
        f.set_param(name, value)
    expected = f.run({"x": X, "i": INDICES})
    artifact.save(tmp_path / "model.rlx")
    monkeypatch.setattr("rlx.runtime.artifact.MAPPED_BYTES", 0 if mapped else 1 << 40)
    loaded = Executable(Artifact.load(tmp_path / "model.rlx"))
    for _ in range(2):  # the first run gives the pages of a mapped file back
        found = loaded.run_slots(X, INDICES)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
    assert found[1].dtype == ml_dtypes.bfloat16


def test_a_fault_of_a_loaded_artifact_names_the_line_of_the_graph(data: bytes) -> None:
    with pytest.raises(rlx.RlxError, match=r"test_artifact\.py:\d+: gather: index out of range"):
        Executable(Artifact.from_bytes(data)).run_slots(X, np.int64([0, 99]))


def place(buffer: Any) -> int:
    """The address of a buffer."""
    return np.frombuffer(buffer, np.uint8).ctypes.data


def test_control_flow_comes_back() -> None:
    g = rlx.Graph("control")
    x, n = g.input("x", [2, 17]), g.input("n", [], "i64")

    def grown(i: rlx.Value, v: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        return i + 1, rlx.cond(i.lt(2), lambda v: v * 3, lambda v: v - 1, v)

    y = rlx.while_loop(lambda i, v: i.lt(n), grown, (n - n, x), limit=9)[1]
    g.set_outputs([y, rlx.scan(lambda c, e: (c + e, c), y[0], x, reverse=True)[1]])
    made = rlx.compile_artifact(g)
    assert "While(" in str(made.variant.main) and "For(" in str(made.variant.main)
    again = Artifact.from_bytes(bytes(made))
    assert again.variant.main == made.variant.main
    f = rlx.Session("cpu").load(again)
    a = np.arange(34, dtype=np.float32).reshape(2, 17)
    y, sums = f.run({"x": a, "n": np.int64(4)})
    assert y.tolist() == (a * 9 - 2).tolist()
    assert sums.tolist() == [(y[0] + a[1]).tolist(), y[0].tolist()]
    with pytest.raises(FaultError, match=r"test_artifact\.py:\d+"):
        f.run({"x": a, "n": np.int64(10)})


def test_large_parts_lie_on_pages_and_all_on_cache_lines(artifact: Artifact) -> None:
    big = bytes(container._LARGE)
    parts = dict(artifact.files) | {"extras/big": big}
    file = b"".join(container.chunks(parts))
    found = container.parts_of(file)
    assert found.keys() == parts.keys()
    for name, part in found.items():
        at = place(part) - place(file)
        assert at % (4096 if len(part) >= len(big) else 64) == 0, name


# -- what is refused -----------------------------------------------------------------------


def refused(data: Any, *parts: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        Executable(Artifact.from_bytes(data))
    for part in parts:
        assert part in str(caught.value)


def with_header(data: bytes, at: int, form: str, value: int) -> bytes:
    """The file with a field of its header changed, and a checksum that fits."""
    head = bytearray(data[:56])
    struct.pack_into(form, head, at, value)
    return bytes(head) + _native.checksum(head).to_bytes(8, "little") + data[64:]


def test_other_files_formats_and_versions_are_refused(data: bytes) -> None:
    refused(b"", "expected an RLX artifact")
    refused(b"\x7fELF" + data[4:], "expected an RLX artifact")
    own = _native.ARTIFACT_FORMAT
    refused(
        with_header(data, 8, "<I", own + 1), f"format {own + 1}, expected format {own}", "newer"
    )
    refused(with_header(data, 8, "<I", own - 1), f"expected format {own}", "compile")
    refused(with_header(data, 12, "<I", 99), "runtime ABI 99, expected ABI 1", "compile")


def test_cut_and_lengthened_files_are_refused(data: bytes) -> None:
    for size in (8, 63, 64, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(ArtifactError, match=r"expected an RLX artifact|cut short"):
            Artifact.from_bytes(data[:size])
    refused(data + b"\0", "something follows it")


def test_a_damaged_part_is_refused_by_name(data: bytes) -> None:
    for name, part in container.parts_of(data).items():
        broken = bytearray(data)
        broken[place(part) - place(data) + len(part) // 2] ^= 1
        refused(broken, f"part '{name}': found damage")


def test_facts_of_another_number_of_launches_are_refused(artifact: Artifact) -> None:
    (v,) = artifact.variants
    assert len(v.launches) > 1
    for launches in (v.launches[1:], [*v.launches, v.launches[0]]):
        damaged = replace(artifact, variants=(replace(v, launches=launches),))
        refused(bytes(damaged), f"facts of {len(launches)} launches", str(len(v.launches)))


def test_every_byte_is_under_a_check(data: bytes) -> None:
    for at in [*range(2048), *range(2048, len(data), 97)]:
        broken = bytearray(data)
        broken[at] ^= 0x40
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(broken)


@pytest.fixture(scope="module")
def parts(data: bytes) -> dict[str, bytes]:
    return {name: bytes(part) for name, part in container.parts_of(data).items()}


WORDS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]),
)


@settings(max_examples=300)
@given(st.data())
def test_changed_words_under_sums_that_fit_are_refused_or_harmless(
    parts: dict[str, bytes], draw: st.DataObject
) -> None:
    """Nothing but ArtifactError comes of loading; it is not run, since its sizes are trusted."""
    changed = dict(parts)
    name = draw.draw(st.sampled_from(["manifest", "variants/0"]))
    words = bytearray(changed[name])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = 8 * draw.draw(st.integers(0, len(words) // 8 - 1))
        words[at : at + 8] = struct.pack("<q", draw.draw(WORDS))
    changed[name] = bytes(words)
    with contextlib.suppress(ArtifactError):
        rlx.Session("cpu").load(Artifact.from_bytes(b"".join(container.chunks(changed))))


# -- compiling and loading as a user -------------------------------------------------------


def test_equal_compiles_give_equal_files() -> None:
    cpus = ["cpu:x86-64-v4", "cpu:x86-64-v3"]
    one, other = (
        bytes(rlx.compile_artifact(model(), c, params=VALUES)) for c in (cpus, cpus[::-1])
    )
    assert one == other


def test_a_session_loads_what_was_compiled_before(tmp_path: Path) -> None:
    made = rlx.compile_artifact(model(), params=VALUES)
    path = tmp_path / "model.rlx"
    made.save(path)
    expected = Executable(made).run_slots(X, INDICES)
    for source in (made, path, str(path)):
        f = rlx.Session("cpu").load(source)
        found = f.run({"x": X, "i": INDICES})
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
    assert [name for name, _ in f.signature[0]] == ["x", "i"]
    assert [str(t) for t in f.signature[1]] == ["5x4xf32", "2x3xbf16"]
    with pytest.raises(rlx.RlxError, match="'x' has shape"):
        f.run({"x": X[:2], "i": INDICES})


def test_params_that_are_not_carried_are_set_later() -> None:
    f = rlx.Session("cpu").load(rlx.compile_artifact(model(), params={"b": VALUES["b"]}))
    with pytest.raises(NameError, match=r"params 'w1', 'w2'; call set_param"):
        f.run({"x": X, "i": INDICES})
    for name in ("w1", "w2"):
        f.set_param(name, VALUES[name])
    full = rlx.Session("cpu").load(rlx.compile_artifact(model(), params=VALUES))
    feeds = {"x": X, "i": INDICES}
    assert f.run(feeds)[0].tobytes() == full.run(feeds)[0].tobytes()
    full.set_param("b", np.zeros(4, np.float32))  # a carried one can be changed
    np.testing.assert_allclose(full.run(feeds)[0] + VALUES["b"], f.run(feeds)[0], rtol=1e-5)


def test_an_artifact_does_not_change_with_the_arrays_that_it_was_given() -> None:
    b = np.ones(4, np.float32)
    made = rlx.compile_artifact(model(), params={**VALUES, "b": b})
    f, feeds = rlx.Session("cpu").load(made), {"x": X, "i": INDICES}
    before = f.run(feeds)[0]
    b[:] = 7
    assert f.run(feeds)[0].tobytes() == before.tobytes()
    assert rlx.Session("cpu").load(made).run(feeds)[0].tobytes() == before.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        made.values["b"][:] = 7


def test_params_given_to_the_compile_are_checked() -> None:
    with pytest.raises(NameError, match="no param is called 'w3'"):
        rlx.compile_artifact(model(), params={"w3": W1})
    with pytest.raises(ShapeError, match="'w1' has shape"):
        rlx.compile_artifact(model(), params={"w1": W2})
    with pytest.raises(DTypeError, match="'w1' is f32"):
        rlx.compile_artifact(model(), params={"w1": W1.astype(np.float16)})


def test_other_targets_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"one kind of target.*found cpu, cuda; compile one"):
        rlx.compile_artifact(model(), ["cuda", "cpu"])
    with pytest.raises(DeviceError, match=r"one kind of target, such as 'cpu'$"):
        rlx.compile_artifact(model(), [])
    with pytest.raises(DeviceError, match=r"'sm_91'; did you mean 'sm_90'.*emits PTX for sm_75"):
        rlx.compile_artifact(model(), "cuda:sm_91")
    with pytest.raises(ArtifactError, match="made for 'cpu', this session is for 'interpret'"):
        rlx.Session("interpret").load(rlx.compile_artifact(model()))


def test_the_best_variant_that_the_machine_has_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    presets = ["cpu:aarch64", "cpu:x86-64-v3", "cpu:x86-64-v4"]
    made = Artifact.from_bytes(bytes(rlx.compile_artifact(model(), presets, params=VALUES)))
    assert [v.features for v in made.variants] == ["x86-64-v4", "x86-64-v3", "aarch64"]
    v3 = preset("x86-64-v3").has
    for machine, has, expected in (
        ("x86_64", preset("x86-64-v4").has | {"more"}, "x86-64-v4"),
        ("x86_64", v3, "x86-64-v3"),
        ("aarch64", {"neon"}, "aarch64"),
    ):
        monkeypatch.setattr(_native, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(_native, "cpu_features", lambda has=has: frozenset(has))
        assert replace(made).variant.features == expected
    monkeypatch.setattr(_native, "machine", lambda: "x86_64")
    monkeypatch.setattr(_native, "cpu_features", lambda: v3 - {"fma"})
    with pytest.raises(ArtifactError, match=r"x86-64-v3 needs fma; aarch64 needs aarch64"):
        _ = replace(made).variant


def test_a_variant_for_another_length_of_registers_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    presets = ["cpu:aarch64", "cpu:neoverse-v1"]
    made = Artifact.from_bytes(bytes(rlx.compile_artifact(model(), presets, params=VALUES)))
    whole = preset("neoverse-v1").has
    monkeypatch.setattr(_native, "machine", lambda: "aarch64")
    for has, expected in (
        (whole, preset("neoverse-v1").name),
        (whole - {"sve256"} | {"sve512"}, "aarch64"),
        (whole - {"sve256"}, "aarch64"),
    ):
        monkeypatch.setattr(_native, "cpu_features", lambda has=has: has)
        assert replace(made).variant.features == expected
    only = replace(made, variants=made.variants[:1])
    with pytest.raises(ArtifactError, match=r"aarch64-sve256\+bf16\+dotprod\+i8mm needs sve256"):
        _ = only.variant


def test_variants_share_what_is_equal() -> None:
    made = rlx.compile_artifact(model(), ["cpu:x86-64-v3", "cpu:x86-64-v4"], params=VALUES)
    folders = [name.split("/")[0] for name in made.files]
    assert {f: folders.count(f) for f in folders if f != "objects"} == {
        "manifest": 1, "variants": 2, "constants": 1, "params": 3,
    }  # fmt: skip


RUN_IT = """
import sys

class NothingElse:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] not in {"numpy", "ml_dtypes", "rlx", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"{name} is not installed")

sys.meta_path.insert(0, NothingElse())
import numpy as np
import rlx

f = rlx.Session("cpu").load(sys.argv[1])
x, i = np.load(sys.argv[2]), np.load(sys.argv[3])
sys.stdout.write(f.run({"x": x, "i": i})[0].tobytes().hex())
unwanted = ("torch_mlir", "llvmlite", "rlx.compiler.driver", "rlx._mlir")
loaded = [m for m in unwanted if m in sys.modules]
assert not loaded, loaded
"""


def test_a_process_that_loads_and_runs_needs_numpy_alone(tmp_path: Path) -> None:
    made = rlx.compile_artifact(model(), params=VALUES)
    made.save(tmp_path / "m.rlx")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "i.npy", INDICES)
    files = [str(tmp_path / name) for name in ("m.rlx", "x.npy", "i.npy")]
    done = subprocess.run(
        [sys.executable, "-c", RUN_IT, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == Executable(made).run_slots(X, INDICES)[0].tobytes()


def test_extras_travel_along(artifact: Artifact) -> None:
    extras = {"notes/a.txt": b"text", "key": b""}
    again = Artifact.from_bytes(bytes(replace(artifact, extras=extras)))
    assert again.extras == extras
    with pytest.raises(ArtifactError, match="no name of a part"):
        bytes(replace(artifact, extras={"../up": b""}))


def test_files_that_are_not_there_are_named(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read .*none\.rlx"):
        Artifact.load(tmp_path / "none.rlx")
    (tmp_path / "text.rlx").write_text("a text")
    for path in (tmp_path / "no" / "m.rlx", tmp_path / "text.rlx" / "m.rlx", tmp_path):
        with pytest.raises(ArtifactError, match="cannot write"):
            artifact.save(path)
    with pytest.raises(ArtifactError, match=r"text\.rlx: .*expected an RLX artifact"):
        Artifact.load(tmp_path / "text.rlx")


def test_what_does_not_fit_together_is_no_executable() -> None:
    artifact = rlx.compile_artifact(model())
    variant = dataclasses.replace(artifact.variant, arena_bytes=-1)
    with pytest.raises(ArtifactError, match="the artifact is malformed"):
        Executable(dataclasses.replace(artifact, variants=(variant,)))


def test_what_an_artifact_shows_of_itself() -> None:
    g = rlx.Graph("told")
    g.set_outputs({"y": g.input("x", ["n", 4]) + 1})
    artifact = rlx.compile_artifact(g, "cpu")
    assert repr(artifact) == "Artifact for cpu: (x: nx4xf32) -> y: nx4xf32"
