"""Bad model directories and safetensors files, and bad calls of an encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.errors import DTypeError, FaultError, ModelError, RlxError, ShapeError
from rlx.models import Embed
from rlx.models.safetensors import SafeTensors
from support import tiny_bert
from support.bad_calls import Bad, check, ids

HUGE = 2**63


def header(length: int | None = None, data: bytes = bytes(8), **entries: Any) -> bytes:
    """A file of a header (of a length that may be a lie) and data."""
    text = json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def raw(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


FILES: list[tuple[str, bytes]] = [
    ("cannot mmap an empty file", b""),
    ("it has 1 bytes, and the header's length alone takes 8", b"x"),
    ("it has 7 bytes", bytes(7)),
    ("header is not JSON", bytes(8)),
    ("its header should have 9223372036854775808 bytes, the file has 18", header(HUGE)[:32]),
    ("its header should have 18446744073709551615 bytes", header(2**64 - 1)),
    ("its header should have 3 bytes, the file has 10", header(3)[:8] + b"{}"),
    ("header is not JSON", raw(b"{")),
    ("header is not JSON", raw(b"{}}")),
    ("header is not JSON", raw(b"\xff\xfe{}")),
    ("header is not JSON", raw(b'{"a": NaNN}')),
    ("header is not JSON .*there twice", raw(b'{"a": 1, "a": 2}')),
    ("header is not JSON", raw(b"[" * 100_000)),
    ("header is not JSON", raw(b'{"a":' * 50_000)),
    ("not a JSON object", raw(b"[]")),
    ("not a JSON object", raw(b"3")),
    ("not a JSON object", raw(b"null")),
    ("not a JSON object", raw(b'"text"')),
    ("__metadata__ is 3", header(__metadata__=3)),
    ("__metadata__ is \\[\\]", header(__metadata__=[])),
    ("entry of 'a' lacks dtype, shape or data_offsets", header(a=3)),
    ("entry of 'a' lacks", header(a=None)),
    ("entry of 'a' lacks", header(a={"dtype": "F32", "shape": [2]})),
    ("'a' has dtype 'F31'; known are F16", header(a=entry("F31"))),
    ("'a' has dtype 'f32'; known are F16", header(a=entry("f32"))),
    ("'a' has dtype None", header(a=entry(None))),
    ("'a' has dtype \\['F32'\\]", header(a=entry(["F32"]))),
    ("'a' has dtype {}", header(a=entry({}))),
    ("'a' has shape \\[-2\\]", header(a=entry(shape=[-2]))),
    ("'a' has shape \\[2.0\\]", header(a=entry(shape=[2.0]))),
    ("'a' has shape \\[True\\]", header(a=entry(shape=[True]))),
    ("'a' has shape \\['2'\\]", header(a=entry(shape=["2"]))),
    ("'a' has shape 2", header(a=entry(shape=2))),
    ("'a' has shape None", header(a=entry(shape=None))),
    ("'a' has shape \\[\\[2\\]\\]", header(a=entry(shape=[[2]]))),
    ("data_offsets \\[0\\]", header(a=entry(offsets=[0]))),
    ("data_offsets \\[0, 4, 8\\]", header(a=entry(offsets=[0, 4, 8]))),
    ("data_offsets \\[-8, 0\\]", header(a=entry(offsets=[-8, 0]))),
    ("data_offsets {}", header(a=entry(offsets={}))),
    ("needs 8 bytes for F32 \\[2\\], its data_offsets are \\[8, 0\\]", header(a=entry(offsets=[8, 0]))),
    ("needs 8 bytes .* \\[0, 4\\]", header(a=entry(offsets=[0, 4]))),
    ("needs 8 bytes .* of 4 bytes of data", header(data=bytes(4), a=entry())),
    ("'a': a tensor 9223372036854775808xf32 has more than 2..56 bytes", header(a=entry(shape=[HUGE]))),
    ("9223372036854775808x0xf32 has more than 2..56 bytes", header(a=entry(shape=[HUGE, 0]))),
    ("9223372036854775808x9223372036854775808xf32 has more", header(a=entry(shape=[HUGE, HUGE]))),
    ("at most 64 dims, found 65", header(a=entry(shape=[1] * 65))),
    ("of 8 bytes of data", header(a=entry(offsets=[HUGE, HUGE + 8]))),
    ("'b' overlaps the tensor before it .*begins at 4, expected 8", header(data=bytes(12), a=entry(), b=entry(offsets=[4, 12]))),
    ("'b' overlaps the tensor before it", header(a=entry(), b=entry())),
    ("'b' leaves a gap before it .*begins at 12, expected 8", header(data=bytes(20), a=entry(), b=entry(offsets=[12, 20]))),
    ("'a' leaves a gap before it", header(data=bytes(16), a=entry(offsets=[8, 16]))),
    ("4 bytes follow the last tensor", header(data=bytes(12), a=entry())),
    ("8 bytes follow the last tensor", header()),
]  # fmt: skip


@pytest.mark.parametrize(("says", "data"), FILES, ids=range(len(FILES)))
def test_a_bad_safetensors_file(says: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(data)
    check(Bad(ModelError, f"(?s)weights.safetensors.*{says}", lambda: SafeTensors(path)))


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(header(weight=entry()))
    f = SafeTensors(path)
    check(Bad(ModelError, "has no tensor 'wieght'; did you mean 'weight'", lambda: f["wieght"]))
    check(Bad(ModelError, "has no tensor 3", lambda: f[3]))
    check(Bad(ModelError, "cannot read .*: Is a directory", lambda: SafeTensors(tmp_path)))
    check(Bad(ModelError, "cannot read .*: No such file", lambda: SafeTensors(tmp_path / "x")))
    check(Bad(ModelError, "cannot read .*null", lambda: SafeTensors("a\0b")))


def write(name: str, data: bytes | str) -> Callable[[Path], Any]:
    def change(path: Path) -> None:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data.encode() if isinstance(data, str) else data)

    return change


def config(**changed: Any) -> Callable[[Path], Any]:
    return write("config.json", json.dumps(tiny_bert.CONFIG | changed))


def without(key: str) -> Callable[[Path], Any]:
    return write("config.json", json.dumps({k: v for k, v in tiny_bert.CONFIG.items() if k != key}))


def tensors(**changed: Any) -> Callable[[Path], Any]:
    def change(path: Path) -> None:
        now = {**tiny_bert.weights(), **{k.replace("__", "."): v for k, v in changed.items()}}
        kept = {n: a for n, a in now.items() if a is not None}
        tiny_bert.write_safetensors(path / "model.safetensors", kept)

    return change


DIRECTORIES: list[tuple[str, Callable[[Path], Any]]] = [
    ("has no config.json; a model directory needs it", lambda p: (p / "config.json").unlink()),
    ("has no model.safetensors", lambda p: (p / "model.safetensors").unlink()),
    ("has no tokenizer.json", lambda p: (p / "tokenizer.json").unlink()),
    ("config.json", write("config.json", "")),
    ("config.json", write("config.json", "{")),
    ("config.json holds a list, expected a JSON object", write("config.json", "[]")),
    ("config.json holds a NoneType, expected a JSON object", write("config.json", "null")),
    ("config.json", write("config.json", b"\xff")),
    ("config.json", write("config.json", "[" * 100_000)),
    ("model_type.*'gpt2'.*bert", config(model_type="gpt2")),
    ("model_type", without("model_type")),
    ("position_embedding_type.*'relative'", config(position_embedding_type="relative")),
    ("hidden_act.*'mish'", config(hidden_act="mish")),
    ("hidden_act", config(hidden_act=["gelu"])),
    ("hidden_act", without("hidden_act")),
    ("config.json has no 'vocab_size'", without("vocab_size")),
    ("config.json has no 'num_hidden_layers'", without("num_hidden_layers")),
    ("config.json is malformed: .*'many'", config(num_hidden_layers="many")),
    ("config.json is malformed", config(hidden_size=None)),
    ("config.json is malformed", config(hidden_size=[8])),
    ("hidden_size is -8", config(hidden_size=-8)),
    ("hidden_size is 0", config(hidden_size=0)),
    ("num_attention_heads is 0", config(num_attention_heads=0)),
    ("num_attention_heads is -2", config(num_attention_heads=-2)),
    ("num_attention_heads is 3, which does not divide hidden_size, 8", config(num_attention_heads=3)),
    ("num_hidden_layers is -1", config(num_hidden_layers=-1)),
    ("vocab_size is 0", config(vocab_size=0)),
    ("max_position_embeddings is 0", config(max_position_embeddings=0)),
    ("type_vocab_size is 0", config(type_vocab_size=0)),
    ("layer_norm_eps is .*nan", config(layer_norm_eps=float("nan"))),
    ("layer_norm_eps is -1", config(layer_norm_eps=-1)),
    ("hidden_size is 1000.*expected 1 or more, below", config(hidden_size=10**400)),
    ("layer_norm_eps is inf", config(layer_norm_eps=float("inf"))),
    ("config.json is malformed", config(hidden_size=float("inf"))),
    ("has shape \\[20, 8\\], config.json says \\[20, 16\\]", config(hidden_size=16)),
    ("has no tensor 'encoder.layer.2", config(num_hidden_layers=3)),
    ("no tensor 'embeddings.LayerNorm.bias'", tensors(embeddings__LayerNorm__bias=None)),
    ("has shape \\[9\\], config.json says \\[8\\]", tensors(embeddings__LayerNorm__bias=np.ones(9, np.float32))),
    ("model.safetensors", write("model.safetensors", b"")),
    ("model.safetensors", write("model.safetensors", b"PK\3\4" + bytes(100))),
    ("sentence_bert_config.json", write("sentence_bert_config.json", "{")),
    ("config.json holds a list", write("sentence_bert_config.json", "[]")),
    ("max_seq_length is 'long'", write("sentence_bert_config.json", '{"max_seq_length": "long"}')),
    ("max_seq_length is -4", write("sentence_bert_config.json", '{"max_seq_length": -4}')),
    ("modules.json", write("modules.json", "{")),
    ("modules.json holds an int, expected a JSON array", write("modules.json", "3")),
    ("modules.json lists 3, expected objects", write("modules.json", "[3]")),
    ("1_Pooling", write("modules.json", '[{"type": "x.Pooling", "path": "1_Pooling"}]')),
    ("modules.json", write("modules.json", '[{"type": 3}]')),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert.write(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(("says", "change"), DIRECTORIES, ids=range(len(DIRECTORIES)))
def test_a_bad_model_directory(says: str, change: Any, tmp_path: Path) -> None:
    change(tiny_bert.write(tmp_path))
    check(Bad(ModelError, says, lambda: Embed.from_dir(tmp_path, device="interpret")))


ONES = np.ones((1, 3), np.int64)
CALLS = [
    Bad(DTypeError, "found one str; write .text.", lambda m: m.encode("text")),
    Bad(DTypeError, "found int at index 1", lambda m: m.encode(["a", 3])),
    Bad(DTypeError, "found NoneType at index 0", lambda m: m.encode([None])),
    Bad(DTypeError, "encode takes a list of texts, found None", lambda m: m.encode(None)),
    Bad(DTypeError, "encode takes a list of texts, found 3", lambda m: m.encode(3)),
    Bad(ShapeError, "at least one text", lambda m: m.encode([])),
    Bad(ShapeError, "batch_size must be 1 or more, found 0", lambda m: m.encode(["a"], 0)),
    Bad(ShapeError, "batch_size must be 1 or more, found 'x'", lambda m: m.encode(["a"], "x")),
    Bad(ShapeError, "batch_size must be 1 or more, found 1.5", lambda m: m.encode(["a"], 1.5)),
    Bad(DTypeError, "ids must be an int64 array, found list", lambda m: m.encode_ids([[1]], ONES)),
    Bad(
        DTypeError,
        "mask must be an int64 array, found float64",
        lambda m: m.encode_ids(ONES, ONES * 1.0),
    ),
    Bad(
        ShapeError,
        "one shape .batch, tokens.*found .1, 3. and .3.",
        lambda m: m.encode_ids(ONES, ONES[0]),
    ),
    Bad(ShapeError, "no dim 0", lambda m: m.encode_ids(ONES[:0], ONES[:0])),
    Bad(
        ShapeError,
        "100 positions, found 101",
        lambda m: m.encode_ids(np.ones((1, 101), np.int64), np.ones((1, 101), np.int64)),
    ),
    Bad(
        FaultError,
        "token id 20 is out of range; the vocabulary has 20",
        lambda m: m.encode_ids(ONES * 20, ONES),
    ),
    Bad(FaultError, "token id -1 is out of range", lambda m: m.encode_ids(-ONES, ONES)),
    Bad(FaultError, "mask must be 1 for tokens", lambda m: m.encode_ids(ONES, ONES * 2)),
]


@pytest.mark.parametrize("bad", CALLS, ids=ids(CALLS))
def test_a_bad_call_of_an_encoder(bad: Bad, model: Path) -> None:
    check(bad, Embed.from_dir(model, device="interpret"))


def test_no_room_for_a_text(tmp_path: Path) -> None:
    write("sentence_bert_config.json", '{"max_seq_length": 2}')(tiny_bert.write(tmp_path))
    model = Embed.from_dir(tmp_path, device="interpret")
    check(
        Bad(ModelError, "adds 2 tokens to every text.*takes 2 in all", lambda: model.encode(["a"]))
    )


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    for text in ("", "{", "[]", "null", '{"model": 3}'):
        write("tokenizer.json", text)(tiny_bert.write(tmp_path))
        with pytest.raises(RlxError, match=r"cannot read .*tokenizer\.json"):
            Embed.from_dir(tmp_path, device="interpret").encode(["a"])
