"""Artifacts as files: they come back as they went, run to the same bits, and damage is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.compiler import compile_graph
from rlx.errors import ArtifactError
from rlx.runtime import _native, container
from rlx.runtime.artifact import Artifact
from rlx.runtime.executable import Executable
from rlx.targets.cpu import make_target

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
    return compile_graph(model(), make_target())[0].with_values(VALUES)


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
    assert (w.places, w.sites, w.kernels, w.objects) == (v.places, v.sites, v.kernels, v.objects)
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
    found = Executable(Artifact.load(tmp_path / "model.rlx")).run_slots(X, INDICES)
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
    refused(with_header(data, 8, "<I", 2), "found format 2, expected format 1", "newer")
    refused(with_header(data, 8, "<I", 0), "found format 0, expected format 1", "compile")
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


def test_every_byte_is_under_a_check(data: bytes) -> None:
    for at in [*range(2048), *range(2048, len(data), 97)]:
        broken = bytearray(data)
        broken[at] ^= 0x40
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(broken)
