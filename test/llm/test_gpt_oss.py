"""gpt-oss with experts in MXFP4, from a folder and a GGUF file, against the same weights in f32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import ModelError
from rlx.frontends import gguf
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.few_bits import joined
from rlx.llm.weights import from_hf
from rlx.models.safetensors import write_safetensors
from support.tiny_llm import PROMPT, weights

Array = np.ndarray[Any, Any]

ROW = json.loads((Path(__file__).parent / "fixtures/shapes.json").read_text(encoding="utf-8"))
ROW = ROW["gpt-oss"]
SAID = {"quantization_config": {"quant_method": "mxfp4"}}
# Its layer's second norm has the name that other families give to another one.
RENAMED = {"ffn_norm": "post_attention_norm"}


def blocks(shape: list[int], rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Blocks and scales of a stack ``[experts, in, out]``, and its numbers, by ml_dtypes."""
    experts, inner, outer = shape
    codes = rng.integers(0, 256, (experts, outer, inner // 32, 16), np.uint8)
    scales = rng.integers(122, 126, codes.shape[:-1]).astype(np.uint8)
    both = np.stack([codes & 15, codes >> 4], -1).view(ml_dtypes.float4_e2m1fn)
    wide = both.astype(np.float32).reshape(*scales.shape, 32)
    wide = wide * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)[..., None]
    return codes, scales, wide.reshape(experts, outer, inner).swapaxes(1, 2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder in few bits, and one in f32."""
    rng, made = np.random.default_rng(0), tmp_path_factory.mktemp("gpt-oss")
    few, plain = dict[str, Array](), dict[str, Array]()
    for name, w in weights(ROW["shapes"]).items():
        plain[name] = w
        if name.endswith("_proj") and ".experts." in name:
            few[f"{name}_blocks"], few[f"{name}_scales"], numbers = blocks(list(w.shape), rng)
            plain[name] = np.ascontiguousarray(numbers)
        else:
            few[name] = w
    for folder, arrays, more in (("few", few, SAID), ("plain", plain, {})):
        (made / folder).mkdir()
        config = json.dumps({**ROW["config"], **more})
        (made / folder / "config.json").write_text(config, encoding="utf-8")
        write_safetensors(made / folder / "model.safetensors", arrays)
    return made / "few", made / "plain"


def logits(path: Path) -> Array:
    m = Decoder.load(path, threads=1, context=64, cache="f32")
    return m.step(StepRows.of([(PROMPT, 0, [0, 1])], every=True))


def in_gguf(folder: Path) -> Path:
    """The folder as a GGUF file."""
    c = ModelConfig.from_hf(ROW["config"])
    tensors = {
        ".".join(RENAMED.get(part, part) for part in name.split(".")): t
        for name, t in from_hf(str(folder), c).items()
    }
    sizes: dict[str, Any] = {
        "embedding_length": c.hidden, "block_count": c.layers, "context_length": c.context,
        "attention.head_count": c.heads, "attention.head_count_kv": c.kv_heads,
        "attention.key_length": c.head_dim, "feed_forward_length": c.inner,
        "expert_feed_forward_length": c.expert_inner, "expert_count": c.experts,
        "expert_used_count": c.experts_used, "attention.sliding_window": 9,
        "attention.layer_norm_rms_epsilon": c.eps, "rope.freq_base": c.rotary.theta,
        "rope.scaling.type": "yarn", "rope.scaling.factor": c.rotary.factor,
        "rope.scaling.original_context_length": int(c.rotary.original),
    }  # fmt: skip
    metadata = {"general.architecture": "gpt-oss", **{f"gpt-oss.{k}": v for k, v in sizes.items()}}
    gguf.write(folder / "model.gguf", tensors, metadata)
    return folder / "model.gguf"


def test_experts_in_mxfp4_are_those_in_f32(folders: tuple[Path, Path]) -> None:
    config = ModelConfig.from_hf(ROW["config"])
    few, plain = (from_hf(str(f), config) for f in folders)
    assert sum(t.scheme == "mxfp4" for t in few.values()) == 3 * config.layers
    for name, tensor in few.items():
        np.testing.assert_array_equal(tensor.dequantize(), plain[name].dequantize(), err_msg=name)
    found, expected = map(logits, folders)
    assert np.abs(found - expected).max() <= 5e-5 * expected.std()


def test_a_gguf_file_is_the_folder(folders: tuple[Path, Path]) -> None:
    few, _ = folders
    path = in_gguf(few)
    file = gguf.GGUF(path)
    assert file["blk.0.ffn_down_exps.weight"].scheme == "mxfp4"
    found = ModelConfig.from_gguf(file.metadata, 96)
    wanted = ModelConfig.from_hf(ROW["config"])
    assert (found.windows, found.rotary) == (wanted.windows, wanted.rotary)
    # The files have no key for the limit of units: theirs is that of the models there are.
    assert (found.unit_limit, found.unit_slope) == (7.0, 1.702)
    config = json.loads((few / "config.json").read_text(encoding="utf-8"))
    (few / "config.json").write_text(json.dumps({**config, "swiglu_limit": 7.0}), encoding="utf-8")
    np.testing.assert_array_equal(logits(path), logits(few))


def test_blocks_and_scales_must_fit() -> None:
    arrays = {"a_blocks": np.zeros((2, 4, 1, 16), np.uint8), "a_scales": np.zeros((2, 4), np.uint8)}
    with pytest.raises(ModelError, match=r"scales of shape \[2, 4\] do not fit its blocks"):
        joined(arrays, SAID)
    with pytest.raises(ModelError, match="has no scales, but blocks"):
        joined({"a_blocks": arrays["a_blocks"]}, SAID)
