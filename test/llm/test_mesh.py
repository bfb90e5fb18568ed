"""A language model on several ranks: the numbers and the answers of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import run_threads
from rlx.errors import GraphError, RlxError, ShapeError
from rlx.frontends.gguf import Tensor
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.share import Share
from support.tiny_llm import CONFIGS, PROMPT, config, write_model, write_talker

FIXTURES = Path(__file__).parent / "fixtures"
PAGES = [3, 1, 0, 2, 5, 4, 6, 7]
OPTIONS: dict[str, Any] = {"cache": "f32", "page_size": 16, "threads": 1, "context": 128}

Array = np.ndarray[Any, Any]


def drawn(decoder: Decoder, count: int) -> tuple[Array, list[int]]:
    """The logits of a prompt, and the likeliest tokens that follow."""
    every = found = decoder.step(StepRows.of([(PROMPT, 0, PAGES)], every=True))
    tokens: list[int] = []
    for n in range(count):
        tokens.append(int(found[-1].argmax()))
        found = decoder.step(StepRows.of([(tokens[-1:], len(PROMPT) + n, PAGES)]))
    return every, tokens


def is_of_one_rank(made: Callable[..., Decoder], ranks: int, count: int = 8) -> None:
    """``made`` gives a decoder of a mesh, or of none."""
    mesh = rlx.Mesh(model=ranks)
    logits, tokens = drawn(made(), count)
    found = run_threads(mesh, lambda rank: drawn(made(mesh=mesh), count))
    for own in found:
        assert np.abs(own[0] - logits).max() <= 1e-5 * np.abs(logits).max()
        assert own[1] == tokens
        assert own[0].tobytes() == found[0][0].tobytes()


ALL = [pytest.param(name, n, 9, marks=pytest.mark.slow) for name in CONFIGS for n in (2, 4)]


@pytest.mark.parametrize(("name", "ranks", "layers"), [("qwen3-moe", 2, 1), ("olmo2", 4, 1), *ALL])
def test_every_family_is_that_of_one_rank(
    name: str, ranks: int, layers: int, tmp_path: Path
) -> None:
    made = json.loads((FIXTURES / "shapes.json").read_text(encoding="utf-8"))[name]
    whole = made["config"]
    counts = "n_layer" if "n_layer" in whole else "num_hidden_layers"
    whole[counts] = layers = min(layers, whole[counts])
    beyond = tuple(f"model.layers.{n}." for n in range(layers, 9))
    shapes = {n: s for n, s in made["shapes"].items() if not n.startswith(beyond)}
    write_model(tmp_path, whole, shapes)
    is_of_one_rank(lambda **o: Decoder.load(tmp_path, **OPTIONS, **o), ranks)


def blocks(scheme: str) -> Callable[..., Decoder]:
    """A decoder whose matrices are in blocks: three groups of two heads, five blocks between the
    products of the network, a vocabulary that is no multiple of 2."""
    own = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32,
           "intermediate_size": 160, "vocab_size": 97, "num_hidden_layers": 1}  # fmt: skip
    c = ModelConfig.from_hf({**config("llama"), **own})
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> Tensor:
        return Tensor.of(rng.standard_normal(shape, np.float32) / 8, scheme)

    q, k = c.heads * c.head_dim, c.kv_heads * c.head_dim
    ones = Tensor.of(np.ones(c.hidden, np.float32))
    weights = {"token_embd.weight": matrix(c.vocab, c.hidden), "output_norm.weight": ones}
    weights["output.weight"] = matrix(c.vocab, c.hidden)
    for i in range(c.layers):
        shapes = {
            "attn_q": (q, c.hidden), "attn_k": (k, c.hidden), "attn_v": (k, c.hidden),
            "attn_output": (c.hidden, q), "ffn_gate": (c.inner, c.hidden),
            "ffn_up": (c.inner, c.hidden), "ffn_down": (c.hidden, c.inner),
        }  # fmt: skip
        weights |= {f"blk.{i}.{name}.weight": matrix(*s) for name, s in shapes.items()}
        weights |= {f"blk.{i}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    return lambda **options: Decoder(c, weights, **OPTIONS, **options)


@pytest.mark.parametrize("scheme", ["q4_0", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_blocks_are_cut_in_unequal_shares(scheme: str) -> None:
    is_of_one_rank(blocks(scheme), 2)


def test_shares_end_at_blocks() -> None:
    c = ModelConfig.from_hf({**config("llama"), "num_attention_heads": 8, "num_key_value_heads": 4,
                             "head_dim": 64, "intermediate_size": 5 * 256})  # fmt: skip
    down = Tensor("q4_k", (32, 5 * 256), np.zeros((32, 5 * 144), np.uint8))
    output = Tensor("q4_k", (32, 512), np.zeros((32, 2 * 144), np.uint8))
    weights = {"blk.0.ffn_down.weight": down, "blk.0.attn_output.weight": output}
    first, second = (Share.of(c, weights, rlx.Mesh(model=2)["model"], n) for n in range(2))
    assert first.units(c.inner) == range(512) and second.units(c.inner) == range(512, 1280)
    assert first.heads == range(4) and second.kv_heads == range(2, 4)
    with pytest.raises(ShapeError, match="8 heads, 4 of keys and values, are not cut for 4 ranks,"):
        Share.of(c, weights, rlx.Mesh(model=4)["model"], 0)
    with pytest.raises(ShapeError, match=r"1280 units .* are 5 blocks .* not cut for 8 ranks"):
        Share.of(c, {"ffn_down.weight": down}, rlx.Mesh(model=8)["model"], 0)


# -- answers -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
    return write_talker(tmp_path_factory.mktemp("talker"), num_hidden_layers=1)


SMALL: dict[str, Any] = {"threads": 1, "context": 256, "sequences": 4, "precision": "f32"}


def test_all_ranks_have_the_answers_of_one(folder: Path) -> None:
    """Where all call it alike, and where the first alone does."""
    texts = ["Hi", "x" * 200]
    one, mesh = rlx.LLM(folder, **SMALL), rlx.Mesh(data=1, model=2)
    wanted = [c.ids for c in one.generate(texts, max_new_tokens=6, ignore_eos=True)]
    logits, vector = one.logits(texts[1]), one.embed("Hi", pooling="mean")

    def run(rank: int) -> Any:
        llm = rlx.LLM(folder, mesh=mesh, **SMALL)
        given = llm.generate(texts, max_new_tokens=6, ignore_eos=True)
        free = llm.generate("Hi", max_new_tokens=6, temperature=2.0)
        np.testing.assert_allclose(llm.embed("Hi", pooling="mean"), vector, atol=1e-5)
        if rank:
            llm.take_part()
        else:
            with pytest.raises(GraphError, match="is for the ranks of a mesh but the first"):
                llm.take_part()
            llm.idle()
            found = llm.logits(texts[1])  # more pages than a message has words for
            np.testing.assert_allclose(found, logits, atol=1e-5 * np.abs(logits).max())
            llm.embed("Hi", pooling="last")
            llm.close()
        return [c.ids for c in given], free[0].ids

    found = run_threads(mesh, run)
    assert found[0] == found[1] and found[0][0] == wanted


def test_ranks_that_call_otherwise_are_told(folder: Path) -> None:
    mesh = rlx.Mesh(model=2)

    def run(rank: int) -> None:
        rlx.LLM(folder, mesh=mesh, **SMALL).logits([1, 2, 3 + rank])

    with pytest.raises(GraphError, match="rank 1 of 2 along 'model' was to take another step than"):
        run_threads(mesh, run)


BAD: dict[str, tuple[Any, str]] = {
    "no mesh": (2, "mesh is 2, expected a Mesh"),
    "axes": (rlx.Mesh(data=2, expert=2), "has no axis 'model'; a model is cut along it"),
    "no rank": (rlx.Mesh(model=2), "this process is no rank, expected one of Mesh"),
}


@pytest.mark.parametrize("name", BAD)
def test_meshes(name: str, folder: Path) -> None:
    mesh, said = BAD[name]
    with pytest.raises(RlxError, match=said):
        rlx.LLM(folder, mesh=mesh, **SMALL)
