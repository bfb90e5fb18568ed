"""Sentence embedding on a small random BERT, against its forward pass in numpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.errors import DTypeError, FaultError, ModelError, RlxError, ShapeError
from rlx.models import BertConfig, Embed, bert_encoder
from rlx.runtime import _native
from support import tiny_bert

pytest.importorskip("tokenizers")

TEXTS = ["a b c", "d", "", "a " * 40, "p o n m l k j i h g f e d c b a", "zzz unknown", "a b c"]
IDS = [tiny_bert.tokens(t) for t in TEXTS]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(path: Path) -> Embed:
    return Embed.from_dir(path, device="interpret")


def expected(pooling: str = "mean") -> Any:
    return np.stack([tiny_bert.encode(r, tiny_bert.weights(), pooling) for r in IDS])


def test_encode_is_the_models_forward_pass(model: Embed) -> None:
    assert repr(model) == "Embed: f32[texts, 8] of texts of up to 100 tokens"
    found = model.encode(TEXTS)
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), model.dim) == (7, 8)
    np.testing.assert_allclose(found, expected(), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_products_in_8_bits(path: Path, device: str) -> None:
    found = Embed.from_dir(path, device=device, precision="int8").encode(TEXTS)
    assert np.abs(found - expected()).max() > 1e-5
    assert (found * expected()).sum(1).min() > 0.99, "of vectors of length 1: their cosine"


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_order_and_batching_do_not_matter(model: Embed, batch_size: int) -> None:
    found = model.encode(TEXTS[::-1], batch_size=batch_size)
    np.testing.assert_allclose(found[::-1], expected(), atol=2e-6)


def test_padding_follows_from_a_texts_own_length(model: Embed) -> None:
    lengths = [1, 16, 17, 64, 65, 96, 97, 100]
    assert [model._runs.padded(n) for n in lengths] == [16, 16, 32, 64, 96, 96, 100, 100]


def test_texts_of_one_length_run_together_on_a_cpu(path: Path) -> None:
    model = Embed.from_dir(path, device="cpu")
    assert [model._runs.padded(n) for n in (1, 17, 100)] == [1, 17, 100]
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=2), expected(), atol=2e-6)


def test_few_shapes_are_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    class Counting:
        def run(self, feeds: Any) -> list[Any]:
            shapes.append(feeds["ids"].shape)
            return [np.zeros((len(feeds["ids"]), 8), np.float32)]

    config, tokenizer = BertConfig.from_dir(path), path / "tokenizer.json"
    texts = ["a"] * 29 + ["a " * 20] * 11
    Embed(config, Counting(), tokenizer, 100).encode(texts, batch_size=10)
    assert shapes == [*[(10, 16)] * 2, (8, 16), (1, 16), (10, 32), (1, 32)]
    shapes.clear()
    monkeypatch.setattr(_native, "num_threads", lambda: 1)
    Embed(config, Counting(), tokenizer, 100, pads=False).encode(texts, batch_size=10)
    assert shapes == [(9, 3), (10, 3), (10, 3), (5, 22), (6, 22)], "no more than 256 tokens"


def test_long_texts_are_cut_with_their_last_token_kept(path: Path, tmp_path: Path) -> None:
    small = tiny_bert.write(tmp_path / "small")
    (small / "sentence_bert_config.json").write_text('{"max_seq_length": 6, "do_lower_case": true}')
    model = Embed.from_dir(small, device="interpret")
    assert model.max_tokens == 6
    want = tiny_bert.encode([1, 4, 5, 6, 7, 2], tiny_bert.weights())
    np.testing.assert_allclose(model.encode(["A b C d e f g"])[0], want, atol=2e-6)


def test_encode_ids(model: Embed) -> None:
    ids, mask = np.zeros((2, 5), np.int64), np.zeros((2, 5), np.int64)
    ids[0, :4], mask[0, :4] = [1, 4, 5, 2], 1
    found = model.encode_ids(ids, mask)
    np.testing.assert_allclose(
        found[0], tiny_bert.encode([1, 4, 5, 2], tiny_bert.weights()), atol=2e-6
    )
    assert np.array_equal(found[1], np.zeros(8))  # a row without tokens


def test_cls_pooling_and_other_forms_of_the_files(tmp_path: Path) -> None:
    tensors = {"bert." + n: a for n, a in tiny_bert.weights().items()}
    path = tiny_bert.write(tmp_path / "m", tensors)
    modules = [{"type": "models.Transformer"}, {"type": "models.Pooling", "path": "pool"}]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "pool").mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (path / "pool" / "config.json").write_text(json.dumps(modes))
    found = Embed.from_dir(path, device="interpret").encode(TEXTS)
    np.testing.assert_allclose(found, expected("cls"), atol=2e-6)


def test_half_precision_files_are_read(tmp_path: Path) -> None:
    half = {n: a.astype(np.float16) for n, a in tiny_bert.weights().items()}
    model = Embed.from_dir(tiny_bert.write(tmp_path / "m", half), device="interpret")
    want = tiny_bert.encode(IDS[0], half)
    np.testing.assert_allclose(model.encode(TEXTS[:1])[0], want, atol=2e-6)


@pytest.mark.parametrize(
    ("texts", "error", "match"),
    [
        ("one text", DTypeError, r"write \[text\]"),
        ([], ShapeError, "empty list"),
        (["a", 3], DTypeError, "found int at index 1"),
        ([b"a"], DTypeError, "found bytes at index 0"),
    ],
)
def test_texts_that_are_none(model: Embed, texts: Any, error: type[RlxError], match: str) -> None:
    with pytest.raises(error, match=match):
        model.encode(texts)


def test_batch_size_is_checked(model: Embed) -> None:
    with pytest.raises(ShapeError, match="batch_size must be 1 or more"):
        model.encode(["a"], batch_size=0)


OK = np.ones((1, 3), np.int64)


@pytest.mark.parametrize(
    ("ids", "mask", "error", "match"),
    [
        (OK.astype(np.int32), OK, DTypeError, "ids must be an int64 array, found int32"),
        (OK, [[1, 1, 1]], DTypeError, "mask must be an int64 array, found list"),
        (OK[0], OK[0], ShapeError, "one shape"),
        (OK, OK[:, :2], ShapeError, r"\[1, 3\] and \[1, 2\]"),
        (OK[:, :0], OK[:, :0], ShapeError, "no dim 0"),
        (np.ones((1, 101), np.int64),) * 2 + (ShapeError, "100 positions, found 101"),
        (OK * 20, OK, FaultError, "id 20 is out of range; the vocabulary has 20"),
        (OK * -1, OK, FaultError, "id -1 is out of range"),
        (OK, OK * 2, FaultError, "mask must be 1"),
    ],
)
def test_ids_that_do_not_fit(
    model: Embed, ids: Any, mask: Any, error: type[RlxError], match: str
) -> None:
    with pytest.raises(error, match=match):
        model.encode_ids(ids, mask)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    path = tiny_bert.write(tmp_path / "m")
    (path / name).unlink()
    with pytest.raises(ModelError, match=f"has no {name}"):
        Embed.from_dir(path)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"model_type": "t5"}, "model_type is 't5'; this encoder takes 'bert', 'roberta'"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_size": None}, "malformed"),
        ({"vocab_size": 21}, r"has shape \[20, 8\], config.json says \[21, 8\]"),
        ({"num_hidden_layers": 3}, "no tensor 'encoder.layer.2"),
    ],
)
def test_models_that_do_not_fit(tmp_path: Path, changed: dict[str, Any], match: str) -> None:
    path = tiny_bert.write(tmp_path / "m", **changed)
    with pytest.raises(ModelError, match=match):
        Embed.from_dir(path, device="interpret")


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("config.json", "{", "cannot read"),
        ("config.json", "{}", "model_type is None"),
        ("modules.json", '[{"type": "models.Dense"}]', "module 'Dense', which is not supported"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "pooling_mode_max_tokens"),
        ("tokenizer.json", "{}", r"cannot read .*tokenizer.json"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, name: str, text: str, match: str) -> None:
    path = tiny_bert.write(tmp_path / "m")
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(text)
    with pytest.raises(ModelError, match=match):
        Embed.from_dir(path, device="interpret").encode(["a"])


def test_the_graph_has_the_names_of_the_checkpoint() -> None:
    config = BertConfig(vocab=20, hidden=8, layers=2, heads=2, inner=12, positions=100)
    g = bert_encoder(config, normalize=False)
    assert {str(p.name): p.type.shape for p in g.params} == {
        n: a.shape for n, a in tiny_bert.weights().items()
    }
    assert g.symbols == {"batch", "tokens"} and str(g.outputs[0].type) == "batchx8xf32"


def test_models_import_neither_tokenizers_nor_the_compiler() -> None:
    code = (
        "import sys, rlx.models; from rlx.models import Embed;"
        "print([m for m in ('tokenizers', 'torch_mlir', 'llvmlite') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
