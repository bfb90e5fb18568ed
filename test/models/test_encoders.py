"""Encoders and cross-encoders of every family, against what transformers computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, ModelError, ShapeError
from rlx.models import Embed, Rerank
from rlx.models.encoders import config_of, encoder_graph, score_graph
from rlx.models.modernbert import ModernBertConfig
from rlx.tools.cli import main
from support import tiny_bert
from support.tiny_encoders import CONFIGS, LABELLED, inputs, with_tokenizer, write_encoder

FIXTURES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "fixtures" / "encoders.json").read_text(encoding="utf-8")
)


def folder(tmp_path: Path, name: str, **changed: Any) -> Path:
    return write_encoder(tmp_path / name, name, FIXTURES[name]["shapes"], **changed)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_those_of_transformers(name: str, device: str, tmp_path: Path) -> None:
    path = folder(tmp_path, name)
    graph = (score_graph if name in LABELLED else encoder_graph)(path)
    given = inputs(name)
    feeds = {str(n.name): given[str(n.name)] for n in graph.inputs}
    (found,) = rlx.Session(device).compile(graph).run(feeds)
    wanted = np.array(FIXTURES[name]["result"])
    np.testing.assert_allclose(found, wanted, atol=2e-5 * max(1, np.abs(wanted).max()))


TEXTS = ["a", "b c d e f", "p o n", "a", "b " * 80]


@pytest.mark.parametrize("name", LABELLED[:2])
def test_rerank(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    path = with_tokenizer(folder(tmp_path, name))
    model = Rerank.from_dir(path, device="interpret")
    longest = config_of(path).longest
    assert repr(model) == f"Rerank: scores of texts beside a query, {longest} tokens together"
    found = model.score("c d", TEXTS, batch_size=2)
    graph = rlx.Session("interpret").compile(score_graph(path))
    for text, score in zip(TEXTS, found, strict=True):
        query, words = tiny_bert.tokens("c d"), tiny_bert.tokens(text)[1:]
        words = [*words[: longest - len(query) - 1], 2] if len(words) > longest - 4 else words
        ids = np.array([[*query, *words]])
        kinds = np.array([[0] * len(query) + [1] * len(words)])
        given = {"ids": ids, "kinds": kinds, "mask": np.ones_like(ids)}
        (logit,) = graph.run({n: given[n] for n in model._inputs})
        assert score == pytest.approx(1 / (1 + np.exp(-logit[0, 0])), abs=1e-5)
    assert found[0] == found[3], "a score does not depend on the other texts"
    assert model.rank("c d", TEXTS, progress=True)
    assert "score" in capsys.readouterr().err
    ranked = model.rank("c d", TEXTS, top=3)
    assert [n for n, _ in ranked] == [*np.argsort(-found, kind="stable")[:3]]
    assert ranked[0][1] == found.max()


def test_scores_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    plain = with_tokenizer(folder(tmp_path / "a", "bert-scores"))
    named = {"activation_fn": "torch.nn.modules.linear.Identity"}
    raw = with_tokenizer(folder(tmp_path / "b", "bert-scores", sentence_transformers=named))
    own, logits = (Rerank.from_dir(p, device="interpret").score("c", TEXTS) for p in (plain, raw))
    np.testing.assert_allclose(own, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    other = folder(tmp_path / "c", "bert-scores", sentence_transformers={"activation_fn": "x.Tanh"})
    with pytest.raises(ModelError, match=r"the activation is 'x.Tanh'; supported are Sigmoid"):
        Rerank.from_dir(with_tokenizer(other), device="interpret")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    path = str(with_tokenizer(folder(tmp_path, "bert-scores")))
    texts = ["a", "b c", "p o n"]
    assert main(["rerank", path, "c d", *texts, "-k", "2"]) == 0
    ranked = Rerank.from_dir(path).rank("c d", texts)
    assert [line.split(None, 2) for line in capsys.readouterr().out.splitlines()] == [
        [f"{score:.3f}", str(n + 1), texts[n]] for n, score in ranked[:2]
    ]
    assert main(["rerank", path, "c", "a", "-k", "0"]) == 1
    assert "expected 1 or more" in capsys.readouterr().err


def test_wrong_calls(tmp_path: Path) -> None:
    model = Rerank.from_dir(with_tokenizer(folder(tmp_path, "bert-scores")), device="interpret")
    with pytest.raises(DTypeError, match="a query is a str, found int"):
        model.score(3, ["a"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(DTypeError, match=r"score takes a list of texts, found one str"):
        model.score("a", "b")
    with pytest.raises(ShapeError, match="batch_size must be 1 or more"):
        model.score("a", ["b"], batch_size=0)
    with pytest.raises(ShapeError, match="top must be 1 or more, found -1"):
        model.rank("a", ["b"], top=-1)
    with pytest.raises(DTypeError, match=r"cannot be UTF-8 .a lone surrogate.: \('a', 'x.+d800'\)"):
        model.score("a", ["b", "x\ud800"])


def test_ranks_of_scores_that_are_one_number(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")

    class Runs:
        def run(self, feeds: Any, /) -> Any:
            return [np.array([20.0, 40.0, -100.0, 5.0], np.float32).reshape(-1, 1)]

    path = with_tokenizer(folder(tmp_path, "bert-scores"))
    model = Rerank(Runs(), ["ids", "mask"], path / "tokenizer.json", 32, sigmoid=True)
    with np.errstate(all="raise", under="ignore"):
        found = model.rank("a", ["b"] * 4)
    assert [n for n, _ in found] == [1, 0, 3, 2] and found[0][1] == found[1][1] == 1.0


def test_what_is_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has 2 labels \(id2label\), and a reranker has one"):
        score_graph(folder(tmp_path, "bert"))
    three = folder(tmp_path / "3", "bert-scores", id2label={"0": "a", "1": "b", "2": "c"})
    with pytest.raises(ModelError, match="has 3 labels"):
        score_graph(three)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"hidden_activation": "mish"}, "hidden_activation is 'mish'"),
        ({"vocab_size": None}, "malformed"),
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types is"),
        ({"layer_types": ["full_attention"]}, "1 layer_types, 4 layers"),
        ({"num_attention_heads": 16}, "a multiple of twice num_attention_heads; found 16 and 16"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "is scaled .yarn. is not"),
        ({"rope_parameters": [1]}, "rope_parameters is .1., expected an object for each kind"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max'; .* takes 'cls', 'mean'"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0, expected 1"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1, expected 0 or more"),
        ({"local_attention": -9}, "local_attention is -9, expected 0"),
        ({"norm_eps": -1}, "norm_eps is -1.0, expected a number from 0 on"),
        ({"model_type": "mpnet"}, "'mpnet'; this encoder takes 'bert', .* 'modernbert'"),
    ],
)
def test_modernberts_that_do_not_fit(tmp_path: Path, changed: Any, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        encoder_graph(folder(tmp_path, "modernbert", **changed))


def test_older_modernberts_of_one_rotary_embedding(tmp_path: Path) -> None:
    config = config_of(folder(tmp_path, "modernbert", local_rope_theta=None))
    assert isinstance(config, ModernBertConfig) and set(config.thetas) == {1000.0}


def test_a_configuration_without_sizes(tmp_path: Path) -> None:
    path = folder(tmp_path, "modernbert")
    (path / "config.json").write_text('{"model_type": "modernbert", "num_hidden_layers": 2}')
    with pytest.raises(ModelError, match="has no 'vocab_size'"):
        encoder_graph(path)


def test_embed_of_other_families(tmp_path: Path) -> None:
    """Texts that are padded have the vectors of those that are not."""
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    for name in ("xlm-roberta", "modernbert"):
        path = with_tokenizer(folder(tmp_path, name))
        padded, plain = (Embed.from_dir(path, device=d).encode(TEXTS) for d in ("interpret", "cpu"))
        np.testing.assert_allclose(padded, plain, atol=1e-5)
