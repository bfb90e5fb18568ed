"""Folders of Hugging Face's with weights of few bits, against the same weights in f32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx import quant
from rlx.errors import ModelError
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.few_bits import joined
from rlx.llm.weights import from_hf
from rlx.models.safetensors import write_safetensors
from rlx.quant.packed import _words
from rlx.quant.table import scheme_named
from support.tiny_llm import PROMPT, weights

Array = np.ndarray[Any, Any]

SHAPES = json.loads((Path(__file__).parent / "fixtures/shapes.json").read_text(encoding="utf-8"))


def by_scheme(name: str, w: Array) -> tuple[dict[str, Array], Array]:
    """The arrays of a weight, and what they stand for."""
    scheme: Any = scheme_named(name)
    turned = w if name == "mlx_affine" else w.T
    group = next(g for g in (32, 16) if turned.shape[turned is w] % g == 0)
    parts = scheme.encode(np.ascontiguousarray(turned), group)
    known = quant.dequantize(parts, name, turned.shape)
    return parts, known if turned is w else known.T


def in_order(w: Array) -> tuple[dict[str, Array], Array]:
    """GPTQ's, with inputs whose groups lie in an order of their own."""
    parts, _ = by_scheme("gptq", w)
    parts["g_idx"] = parts["g_idx"][::-1].copy()
    return parts, quant.dequantize(parts, "gptq", w.T.shape).T


def compressed(w: Array, zero: bool = False) -> tuple[dict[str, Array], Array]:
    """Integers in words."""
    size = 16
    parts = w.reshape(len(w), -1, size)
    scale = (np.abs(parts).max(2) / 7).astype(np.float16)
    shift = np.full(scale.shape, 3 if zero else 8)
    wide = scale.astype(np.float32)[:, :, None]
    codes = np.clip(np.rint(parts / wide) + shift[:, :, None], 0, 15)
    arrays = {
        "weight_packed": _words(codes.reshape(w.shape), 4), "weight_scale": scale,
        "weight_shape": np.array(w.shape, np.int64),
    }  # fmt: skip
    if zero:
        arrays["weight_zero_point"] = np.ascontiguousarray(_words(shift.T, 4).T)
    return arrays, ((codes - shift[:, :, None]) * wide).reshape(w.shape).astype(np.float32)


def floats(w: Array, name: str, shape: tuple[int, ...]) -> tuple[dict[str, Array], Array]:
    """8-bit floats and their scales."""
    scale = (np.random.default_rng(0).random(shape) / 100 + 0.01).astype(np.float32)
    each = scale
    if name == "weight_scale_inv":
        each = np.repeat(np.repeat(scale, 16, 0), 16, 1)[: len(w), : w.shape[1]]
    codes = np.clip(w / each, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": codes, name: scale}, codes.astype(np.float32) * each


def blocks(w: Array) -> tuple[dict[str, Array], Array]:
    return floats(w, "weight_scale_inv", tuple(-(-d // 16) for d in w.shape))


METHODS: dict[str, tuple[dict[str, Any], Any, set[str]]] = {
    "gptq": ({"quant_method": "gptq"}, lambda w: by_scheme("gptq", w), {"q4_1_f32", "f32"}),
    "gptq v2": ({"quant_method": "gptq", "checkpoint_format": "gptq_v2"},
                lambda w: by_scheme("gptq_v2", w), {"q4_1_f32", "f32"}),
    "gptq in order": ({"quant_method": "gptq"}, in_order, {"q4_1_f32", "f32"}),
    "awq": ({"quant_method": "awq"}, lambda w: by_scheme("awq", w), {"q4_1_f32", "f32"}),
    "mlx": ({}, lambda w: by_scheme("mlx_affine", w), {"q4_1_f32", "f32"}),
    "compressed": ({"quant_method": "compressed-tensors"}, compressed, {"f32"}),
    "compressed with zero points": ({"quant_method": "compressed-tensors"},
                                    lambda w: compressed(w, True), {"f32"}),
    "8-bit floats": ({"quant_method": "compressed-tensors"},
                     lambda w: floats(w, "weight_scale", (len(w), 1)),
                     {"fp8_e4m3_f32", "f32"}),
    "8-bit floats by one scale": ({"quant_method": "compressed-tensors"},
                                  lambda w: floats(w, "weight_scale", (1,)),
                                  {"fp8_e4m3_f32", "f32"}),
    "8-bit floats in blocks": ({"quant_method": "fp8", "weight_block_size": [16, 16]}, blocks,
                               {"f32"}),
}  # fmt: skip


def folders(tmp_path: Path, said: Any, make: Any) -> tuple[Path, Path]:
    """A model in few bits, and in f32."""
    row = SHAPES["llama"]
    mlx = not said
    said = {"quantization": {"bits": 4, "group_size": 32}} if mlx else {"quantization_config": said}
    plain, few = dict[str, Array](), dict[str, Array]()
    for name, w in weights(row["shapes"]).items():
        if w.ndim < 2 or not (mlx or "_proj" in name):
            plain[name] = few[name] = w
            continue
        parts, plain[name] = make(w)
        few |= {f"{name.removesuffix('.weight')}.{part}": a for part, a in parts.items()}
    for folder, arrays, more in (("few", few, said), ("plain", plain, {})):
        (tmp_path / folder).mkdir()
        config = json.dumps({**row["config"], **more})
        (tmp_path / folder / "config.json").write_text(config, encoding="utf-8")
        kept = {n: np.ascontiguousarray(a) for n, a in arrays.items()}
        write_safetensors(tmp_path / folder / "model.safetensors", kept)
    return tmp_path / "few", tmp_path / "plain"


@pytest.mark.parametrize("name", METHODS)
def test_weights_of_few_bits_are_read(name: str, tmp_path: Path) -> None:
    said, make, schemes = METHODS[name]
    config = ModelConfig.from_hf(SHAPES["llama"]["config"])
    few, plain = (from_hf(str(f), config) for f in folders(tmp_path, said, make))
    assert few.keys() == plain.keys()
    for key, tensor in few.items():
        found, expected = tensor.dequantize(), plain[key].dequantize()
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    first = {t.scheme for n, t in few.items() if n.startswith("blk.0.") and len(t.shape) == 2}
    assert first == schemes


def test_a_model_of_few_bits_runs_as_that_in_f32(tmp_path: Path) -> None:
    said, make, _ = METHODS["mlx"]
    few, plain = (Decoder.load(f, threads=1, context=64, cache="f32")
                  for f in folders(tmp_path, said, make))  # fmt: skip
    found, expected = (m.step(StepRows.of([(PROMPT, 0, [0, 1])], every=True)) for m in (few, plain))
    assert np.abs(found - expected).max() <= 5e-5 * expected.std()


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize(
    ("shape", "size", "scales"),
    [
        ((64, 96), (32, 32), (2, 3)),
        ((64, 192), (128, 128), (1, 2)),
        ((80, 160), (64, 64), (2, 3)),
        ((64, 192), None, (1, 2)),
    ],
)
def test_each_block_has_its_scale(
    kind: Any, shape: tuple[int, int], size: tuple[int, int] | None, scales: tuple[int, int]
) -> None:
    w = (np.arange(shape[0] * shape[1]) % 7 - 3.0).reshape(shape).astype(kind)
    scale = (1 + np.arange(scales[0] * scales[1], dtype=np.float32)).reshape(scales)
    said = {"quant_method": "fp8", **({"weight_block_size": [*size]} if size else {})}
    arrays = {"a.weight": w, "a.weight_scale_inv": scale}
    found: Any = joined(arrays, {"quantization_config": said})["a.weight"]
    assert found.scheme.startswith("fp8")
    high, wide = size or (128, 128)
    expected = np.array([[w[i, j].astype(np.float32) * scale[i // high, j // wide]
                          for j in range(shape[1])] for i in range(shape[0])])  # fmt: skip
    np.testing.assert_array_equal(found.dequantize(), expected)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Array], str]] = {
    "a method": ({"quantization_config": {"quant_method": "gtpq"}}, {}, "by 'gtpq'.*'gptq'"),
    "no table": ({"quantization_config": 4}, {}, "has 4 for quantization_config"),
    "a version": ({"quantization_config": {"quant_method": "awq", "version": "gemv"}},
                  {"a.scales": np.ones((1, 8))}, "AWQ of version 'gemv'"),
    "a mode": ({"quantization": {"mode": "mxfp4"}}, {"a.weight": np.ones((1, 8)),
               "a.scales": np.ones((1, 1))}, "MLX's mode 'mxfp4'"),
    "bits": ({"quantization": {"bits": 7}}, {"a.weight": np.ones((1, 8)),
             "a.scales": np.ones((1, 1))}, "has 7 for bits"),
    "sizes": ({"quantization_config": {"quant_method": "fp8", "weight_block_size": 3}},
              {"a.weight": np.ones((4, 8)), "a.weight_scale_inv": np.ones((2, 2))},
              "has 3 for weight_block_size"),
    "a part": ({"quantization_config": {"quant_method": "gptq"}}, {"a.qweight": np.ones((1, 8))},
               "has no qzeros, but qweight"),
    "no scale": ({"quantization_config": {"quant_method": "fp8"}},
                 {"a.weight": np.ones((4, 8)), "a.scales": np.ones(1)},
                 "has no weight_scale, but weight"),
    "axes": ({"quantization_config": {"quant_method": "fp8"}},
             {"a.weight": np.ones(8), "a.weight_scale": np.ones(1)}, "expected two axes"),
    "an order": ({"quantization_config": {"quant_method": "compressed-tensors"}},
                 {"a.weight_packed": np.ones((1, 8)), "a.weight_g_idx": np.ones(8)},
                 "an order of their own"),
    "a shape": ({"quantization_config": {"quant_method": "fp8"}},
                {"a.weight": np.ones((4, 8)), "a.weight_scale": np.ones(3)}, "do not fit"),
    "blocks": ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 4]}},
               {"a.weight": np.ones((4, 8)), "a.weight_scale_inv": np.ones((3, 2))},
               r"scales of shape \[3, 2\] do not fit"),
    "groups": ({"quantization_config": {"quant_method": "compressed-tensors"}},
               {"a.weight": np.ones((4, 9)), "a.weight_scale": np.ones((4, 2))}, "do not fit"),
    "a type": ({"quantization_config": {"quant_method": "awq"}},
               {"a.scales": np.ones((1, 8), np.float32), "a.qweight": np.ones((8, 1), np.float32),
                "a.qzeros": np.ones((1, 1), np.int32)}, "qweight is float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    config, arrays, match = REFUSED[name]
    with pytest.raises(ModelError, match=match):
        joined(arrays, config)
