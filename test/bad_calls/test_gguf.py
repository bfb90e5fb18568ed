"""GGUF files that are wrong, and what cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.errors import DTypeError, ModelError, NameError, RlxError
from rlx.frontends.gguf import Tensor, read, write
from support.gguf_files import key, raw_file, tensor, text

Q = 2
"""Q4_0's number: 32 elements in 18 bytes."""


def one(*args: Any, data: bytes = bytes(64), **more: Any) -> bytes:
    return raw_file([], [tensor(*args, **more)], data)


ROW = tensor("w", [32], Q)
FILES: list[tuple[str, bytes]] = [
    ("cannot mmap an empty file", b""),
    ("at byte 0: the magic number takes 4 bytes, and 2 are left", b"GG"),
    ("at byte 0: the magic number is b'GGML', expected b'GGUF'", raw_file([], [], magic=b"GGML")),
    ("at byte 4: the version takes 4 bytes, and 0 are left", b"GGUF"),
    ("at byte 4: the version is 4; RLX reads 1, 2 and 3", b"GGUF\x04\0\0\0" + bytes(16)),
    ("at byte 4: the version is 0", b"GGUF" + bytes(20)),
    ("at byte 4: the version is 9", b"GGUF\0\0\0\x09" + bytes(16)),
    ("at byte 8: the number of tensors takes 8 bytes, and 4 are left", raw_file([], [])[:12]),
    ("at byte 8: the number of tensors is 9223372036854775808", raw_file([], [], counts=(2**63, 0))),
    ("at byte 16: the number of metadata is 1, and 8 bytes are left", raw_file([], [], counts=(0, 1))),
    ("the length of the name of metadata 0 takes|the name of metadata 0 takes 99 bytes", raw_file([(99).to_bytes(8, "little") + bytes(20)], [])),
    ("at byte 58: the metadata have 'a' twice", raw_file([key("a", "u8", 1), key("abcdefg", "u8", 1), key("a", "u8", 2)], [])),
    ("metadata 'a' is of kind 13; known are 0 to 12", raw_file([text("a") + (13).to_bytes(4, "little") + bytes(8)], [])),
    ("metadata 'a' takes 8 bytes, and", raw_file([key("a", "u64", 1)[:-6]], [], alignment=1)),
    ("metadata 'a' is a bool, and its byte is 2", raw_file([key("a", "bool", 2)], [])),
    ("metadata 'a' is bools, and a byte is 7", raw_file([key("a", "array", ("bool", [0, 7]))], [])),
    ("the length of metadata 'a' is 1099511627776, and", raw_file([key("a", "array", ("u8", []))[:-8] + (2**40).to_bytes(8, "little")], [])),
    ("the elements of metadata 'a' is of kind 77", raw_file([text("a") + bytes([9, 0, 0, 0, 77, 0, 0, 0]) + bytes(8)], [])),
    ("metadata 'a'\\[0\\]\\[0\\]\\[0\\]\\[0\\] has arrays in arrays, deeper than 4", raw_file([key("a", "array", ("array", [("array", [("array", [("array", [("array", [("u8", [1])])])])])]))], [])),
    ("general.alignment is 24, expected a power of two as u32", raw_file([key("general.alignment", "u32", 24)], [])),
    ("general.alignment is 0,", raw_file([key("general.alignment", "u32", 0)], [])),
    ("general.alignment is 32,", raw_file([key("general.alignment", "u64", 32)], [])),
    ("general.alignment is 'x',", raw_file([key("general.alignment", "str", "x")], [])),
    ("at byte 24: tensor 'w' has 5 dims, expected at most 4", one("w", [1] * 5, 0)),
    ("at byte 24: tensor 'w': type 99, which is no type of GGML that RLX knows", one("w", [32], 99)),
    ("tensor 'w': type 4 \\(q4_2\\), which GGML reads no more", one("w", [32], 4)),
    ("tensor 'w': q4_0 has blocks of 32 elements, and its rows 33", one("w", [33], Q)),
    ("tensor 'w' begins at 8, no multiple of 32", one("w", [32], Q, 8)),
    ("tensor 'w' takes the bytes 32 to 68 of the data, which have 64", one("w", [32, 2], Q, 32)),
    ("tensor 'w' takes the bytes 0 to 18 of the data, which have 0", one("w", [32], Q, data=b"")),
    ("tensor 'w' takes the bytes 0 to 36893488147419103232", one("w", [2**60, 8], 0)),
    ("tensor 'w' has the shape \\[0, 18446744073709551615\\]", one("w", [2**64 - 1, 0], 0)),
    ("the tensor 'w' is there twice", raw_file([], [ROW, tensor("w", [32], Q, 32)], bytes(64))),
    ("the tensor 'v' overlaps 'w'", raw_file([], [tensor("w", [64], Q), tensor("v", [32], Q, 32)], bytes(64))),
    ("is one of 3 parts: give the first, named NAME-00001-of-00003.gguf", raw_file([key("split.count", "u16", 3)], [])),
    ("split.count is 'x', expected a number of parts", raw_file([key("split.count", "str", "x")], [])),
    ("split.count is 0, expected a number of parts", raw_file([key("split.count", "u16", 0)], [])),
]  # fmt: skip


@pytest.mark.parametrize(("match", "data"), FILES, ids=[m[:60] for m, _ in FILES])
def test_wrong_files(match: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=match) as found:
        read(path)
    assert str(path) in str(found.value)


def part(folder: Path, n: int, count: int, names: list[str], **changed: Any) -> Path:
    path = folder / f"m-{n:05}-of-{count:05}.gguf"
    metadata = {"split.no": n - 1, "split.count": count, **changed}
    write(path, {name: np.ones(3, np.float32) for name in names}, metadata)
    return path


@pytest.mark.parametrize(
    ("match", "second"),
    [
        ("00002-of-00002.gguf: No such file", None),
        ("split.no and split.count are \\[0, 2\\], expected \\[1, 2\\]", {"split.no": 0}),
        ("split.no and split.count are \\[1, 3\\], expected", {"split.count": 3}),
        ("the tensor 'a' is in a part before it too", {"names": ["a"]}),
        ("the parts have 2 tensors, and split.tensors.count is 5", {}),
    ],
)
def test_wrong_parts(match: str, second: dict[str, Any] | None, tmp_path: Path) -> None:
    first = part(tmp_path, 1, 2, ["a"], **{"split.tensors.count": 5})
    if second is not None:
        part(tmp_path, 2, 2, second.pop("names", ["b"]), **second)
    with pytest.raises(ModelError, match=match):
        read(first)


def test_not_the_first_part(tmp_path: Path) -> None:
    part(tmp_path, 1, 2, ["a"])
    with pytest.raises(ModelError, match="is one of 2 parts: give the first"):
        read(part(tmp_path, 2, 2, ["b"]))


def written(metadata: Any = None, kinds: Any = None, tensors: Any = None) -> Callable[[Path], None]:
    return lambda path: write(path, tensors or {}, metadata, kinds)


X = np.ones((2, 32), np.float32)
REFUSED: list[tuple[type[RlxError], str, Callable[[Path], Any]]] = [
    (ModelError, "general.alignment is 24, expected a power of two", written({"general.alignment": 24})),
    (ModelError, "kinds names 'b', and no metadata has that name", written({"a": 1}, {"b": "u8"})),
    (ModelError, "metadata 'a': 3 is no 'u33'", written({"a": 3}, {"a": "u33"})),
    (ModelError, "metadata 'a': 3 is no 'u8\\[\\]'", written({"a": 3}, {"a": "u8[]"})),
    (ModelError, "metadata 'a': 300 does not fit in u8|does not fit in u8", written({"a": 300}, {"a": "u8"})),
    (ModelError, "does not fit in i32", written({"a": 0.5}, {"a": "i32"})),
    (ModelError, "does not fit in bool", written({"a": 1}, {"a": "bool"})),
    (ModelError, "does not fit in f32", written({"a": "x"}, {"a": "f32"})),
    (ModelError, "metadata 'a' is no string: \\[3\\]", written({"a": 3}, {"a": "str"})),
    (ModelError, "metadata 'a' is None; expected a number", written({"a": None})),
    (ModelError, "metadata 'a' is \\[\\].*kinds says what an empty list holds", written({"a": []})),
    (ModelError, "metadata 'a' is \\['x', 3\\]; expected", written({"a": ["x", 3]})),
    (ModelError, "metadata 'a' is float16, for which GGUF has no kind", written({"a": np.float16(1)})),
    (ModelError, "metadata 'a': no kind of GGUF holds 18446744073709551616", written({"a": 2**64})),
    (ModelError, "metadata 'a': no kind of GGUF holds -1 to 9223372036854775808", written({"a": [-1, 2**63]})),
    (ModelError, "tensor 'w' has 5 dims, and GGUF at most 4", written(tensors={"w": np.ones((1,) * 5, np.float32)})),
    (ModelError, "tensor 'w' is of a file of the other byte order", written(tensors={"w": Tensor("f32", (2, 32), X.view(np.uint8), "big")})),
    (ModelError, "GGUF has no type for the scheme int8_block", written(tensors={"w": Tensor("int8_block", (2, 32), X.view(np.uint8))})),
    (ModelError, "cannot write", lambda path: write(path / "none" / "m.gguf", {})),
    (DTypeError, "GGUF has no type for complex64", lambda path: Tensor.of(X.astype(np.complex64))),
    (DTypeError, "q4_0 has no element type: dequantize\\(\\) gives f32", lambda path: Tensor.of(X, "q4_0").numpy()),
    (NameError, "no scheme is named 'q4'", lambda path: Tensor.of(X, "q4")),
]  # fmt: skip


@pytest.mark.parametrize(("error", "match", "use"), REFUSED, ids=[m[:60] for _, m, _ in REFUSED])
def test_refused(error: type[RlxError], match: str, use: Any, tmp_path: Path) -> None:
    with pytest.raises(error, match=match):
        use(tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, {"blk.0.attn_q.weight": X})
    with pytest.raises(ModelError, match="has no tensor 'blk.0.attn_k.weight'; did you mean"):
        read(path)["blk.0.attn_k.weight"]
