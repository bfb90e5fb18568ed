"""The safetensors reader: what it gives, and every way in which a file can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import ModelError
from rlx.models.safetensors import SafeTensors


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_every_dtype_in_place(tmp_path: Path) -> None:
    types = {
        "F64": "f8", "F32": "f4", "F16": "f2", "BF16": ml_dtypes.bfloat16, "BOOL": "?",
        "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
        "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "C64": "c8",
    }  # fmt: skip
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    arrays = {n: np.arange(6).reshape(2, 3).astype(dt) for n, dt in types.items()}
    for name, a in arrays.items():
        header[name] = entry(name, [2, 3], len(data), len(data) + a.nbytes)
        data += a.tobytes()
    header["empty"] = entry("F32", [0, 3], len(data), len(data))
    header["scalar"] = entry("F32", [], len(data), len(data) + 4)
    f = SafeTensors(write(tmp_path / "x", header, data + np.float32(7).tobytes()))
    assert f.metadata == {"format": "pt"} and len(f) == len(types) + 2
    for name, a in arrays.items():
        assert f[name].dtype == a.dtype and np.array_equal(f[name], a)
        assert not f[name].flags.writeable and not f[name].flags.owndata
    assert f["empty"].shape == (0, 3) and f["scalar"] == 7


@pytest.mark.parametrize(
    ("header", "data", "match"),
    [
        (b"[1, 2]", b"", "not a JSON object"),
        (b"{nonsense", b"", "not JSON"),
        (b"\xff\xfe", b"", "not JSON"),
        (b'{"a": 1, "a": 2}', b"", "there twice"),
        ({"a": 3}, b"", "lacks dtype, shape or data_offsets"),
        ({"__metadata__": 3}, b"", "__metadata__"),
        ({"a": entry("F4", [1], 0, 4)}, bytes(4), "has dtype 'F4'"),
        ({"a": entry("F32", [-1], 0, 4)}, bytes(4), r"shape \[-1\]"),
        ({"a": entry("F32", [1.0], 0, 4)}, bytes(4), r"shape \[1.0\]"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, bytes(4), "data_offsets"),
        ({"a": entry("F32", [2], 0, 4)}, bytes(4), "needs 8 bytes"),
        ({"a": entry("F32", [2], 0, 8)}, bytes(4), "of 4 bytes of data"),
        ({"a": entry("F32", [2], 8, 0)}, bytes(8), "needs 8 bytes"),
        ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, bytes(4), "overlaps"),
        ({"a": entry("F32", [1], 4, 8)}, bytes(8), "a gap"),
        ({"a": entry("F32", [1], 0, 4)}, bytes(6), "2 bytes follow"),
    ],
)
def test_malformed_files(tmp_path: Path, header: Any, data: bytes, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        SafeTensors(write(tmp_path / "x", header, data))


def test_cut_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        SafeTensors(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(ModelError, match="cannot mmap an empty file"):
        SafeTensors(tmp_path / "empty")
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(ModelError, match="it has 4 bytes"):
        SafeTensors(tmp_path / "short")
    with pytest.raises(ModelError, match="its header should have 1000 bytes"):
        SafeTensors(write(tmp_path / "x", {}, length=1000))


def test_unknown_names(tmp_path: Path) -> None:
    f = SafeTensors(write(tmp_path / "x", {"weight": entry("F32", [1], 0, 4)}, bytes(4)))
    with pytest.raises(ModelError, match="did you mean 'weight'"):
        f["weigth"]
    assert "weigth" not in f and list(f) == ["weight"]
