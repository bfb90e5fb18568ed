"""Weights of few bits in a folder of Hugging Face's, as tensors: those of GPTQ, AWQ, MLX,
compressed-tensors and MXFP4 stay in blocks of few bits, as do those in 8-bit floats whose scales
are those of at least 32 elements each.

A module's arrays, such as ``q_proj.qweight``, ``q_proj.qzeros`` and ``q_proj.scales``, are one
tensor, ``q_proj.weight``; MXFP4's, ``down_proj_blocks`` and ``down_proj_scales``, are
``down_proj``. config.json says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.errors import ModelError, RlxError, did_you_mean
from rlx.frontends.gguf import Tensor
from rlx.quant import dequantize
from rlx.quant.codes import Codes
from rlx.quant.encode_plain import blocks
from rlx.quant.packed import codes_of, codes_of_words

__all__ = ["joined"]

Array = np.ndarray[Any, Any]
Parts = Mapping[str, Array]

_WORDS = ("qweight", "qzeros", "scales", "g_idx")
_PACKED = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
_FLOATS = ("weight", "weight_scale", "weight_scale_inv")
_ROWS = ("input_scale", "output_scale", "input_zero_point")
"""What rows would be rounded by; rows are rounded by their own largest elements here, or not."""


def joined(arrays: Mapping[str, Array], config: Mapping[str, Any]) -> dict[str, Array | Tensor]:
    """The tensors of a model by name, of its arrays and its config.json. ModelError for a method
    that is not known, and for arrays that do not fit."""
    found = _said(config)
    if found is None:
        return {**arrays}
    method = found.get("quant_method", "mlx" if "quantization" in config else None)
    if method not in _METHODS:
        hint = did_you_mean(str(method), _METHODS)
        raise ModelError(
            f"config.json says that the weights are quantised by {method!r}{hint}; read are"
            f" {', '.join(_METHODS)}"
        )
    suffixes, make = _METHODS[method]
    modules: dict[str, dict[str, Array]] = {}
    out: dict[str, Array | Tensor] = {}
    joint, end = ("_", "") if method == "mxfp4" else (".", ".weight")
    for name, array in arrays.items():
        module, _, part = name.rpartition(joint)
        if part in suffixes and (part != "weight" or _is_coded(module, arrays)):
            modules.setdefault(module, {})[part] = array
        elif part not in _ROWS:
            out[name] = array
    for module, parts in modules.items():
        try:
            own = found.get(module)
            said = {**found, **own} if isinstance(own, Mapping) else found
            out[f"{module}{end}"] = make(parts, said)
        except RlxError as e:
            raise ModelError(f"{module} (quantised by {method}): {e.message}") from None
        except KeyError as e:
            there = ", ".join(parts)
            raise ModelError(
                f"{module} (quantised by {method}) has no {e.args[0]}, but {there}"
            ) from None
    return out


def _said(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What config.json says of few bits."""
    text = config.get("text_config")
    found = config.get("quantization_config") or config.get("quantization")
    if found is None and isinstance(text, Mapping):
        found = text.get("quantization_config")
    if found is not None and not isinstance(found, Mapping):
        raise ModelError(f"config.json has {found!r} for quantization_config, expected a table")
    return found


def _is_coded(module: str, arrays: Mapping[str, Array]) -> bool:
    """Whether the weight of a module has scales beside it."""
    names = ("weight_scale", "weight_scale_inv", "scales")
    return any(f"{module}.{n}" in arrays for n in names)


def _tensor(codes: Codes) -> Tensor:
    """A weight in blocks, or in f32 where its groups are no whole ones."""
    if not codes.whole:
        return Tensor.of(codes.numpy())
    data, scheme = codes.packed()
    return Tensor(scheme, codes.numbers.shape, data)


def _by_columns(scheme: str, parts: Parts, rows: int) -> Tensor:
    """A weight that is stored ``[inputs, outputs]``."""
    shape = rows, parts["scales"].shape[-1]
    codes = codes_of(scheme, parts, shape)
    if codes is None:  # inputs whose groups lie in an order of their own
        return Tensor.of(dequantize(parts, scheme, shape).T)
    return _tensor(codes)


def _gptq(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    bits = parts["qzeros"].shape[-1] * 32 // max(parts["scales"].shape[-1], 1)
    scheme = "gptq_v2" if said.get("checkpoint_format") == "gptq_v2" else "gptq"
    return _by_columns(scheme, parts, parts["qweight"].shape[0] * 32 // max(bits, 1))


def _awq(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    version = str(said.get("version", "gemm")).lower()
    if version != "gemm":
        raise ModelError(f"AWQ of version {version!r}; the layout of 'gemm' is read")
    return _by_columns("awq", parts, parts["qweight"].shape[0])


def _mlx(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    if said.get("mode", "affine") != "affine":
        raise ModelError(f"MLX's mode {said['mode']!r}; 'affine' is read")
    rows = len(parts["weight"])
    bits = said.get("bits", 4)
    if bits not in (2, 3, 4, 5, 6, 8):
        raise ModelError(f"config.json has {bits!r} for bits, expected 2 to 8")
    size = parts["weight"].shape[-1] * 32 // bits
    found = codes_of("mlx_affine", parts, (rows, size))
    assert found is not None
    return _tensor(found)


def _compressed(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    """Signed integers around 0, packed along the last axis, or 8-bit floats and integers."""
    if "weight_packed" not in parts:
        return _scaled(parts, said)
    if "weight_g_idx" in parts:
        raise ModelError("its inputs are in an order of their own (weight_g_idx)")
    return _tensor(codes_of_words(parts, tuple(int(n) for n in parts["weight_shape"])))


def _scaled(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    """Numbers times a scale for all, for each row, or for each block: in blocks of 32 if they are
    8-bit floats, and each of the blocks has one scale."""
    w = parts["weight"]
    scale = parts.get("weight_scale_inv", parts.get("weight_scale"))
    if scale is None:
        raise KeyError("weight_scale")
    if w.ndim != 2:
        raise ModelError(f"its weight has shape {list(w.shape)}, expected two axes")
    scale = scale.astype(np.float32)
    shape = list(scale.shape)
    high, wide = _block_size(said)
    if scale.shape == (-(-len(w) // high), -(-w.shape[1] // wide)):
        scale = np.repeat(scale, high, 0)[: len(w)]
        scale = np.repeat(scale, wide, 1)[:, : w.shape[1]]
    elif scale.ndim == 2 and w.shape[1] % max(scale.shape[1], 1) == 0:
        scale = np.repeat(scale, w.shape[1] // max(scale.shape[1], 1), 1)
    elif scale.ndim == 1:
        scale = scale.reshape(-1, 1)
    try:
        scale = np.broadcast_to(scale, w.shape)
    except ValueError:
        raise ModelError(
            f"its scales of shape {shape} do not fit its weight {list(w.shape)}"
        ) from None
    scheme = {"float8_e4m3fn": "fp8_e4m3_f32", "float8_e5m2": "fp8_e5m2_f32"}.get(w.dtype.name)
    if scheme and w.shape[1] % 32 == 0:
        each = scale.reshape(len(w), -1, 32)
        if (each == each[..., :1]).all():
            codes = w.view(np.uint8).reshape(-1, 32)
            found = blocks(scheme, d=each[..., 0].reshape(-1), qs=codes)
            return Tensor(scheme, w.shape, found.view(np.uint8).reshape(len(w), -1))
    zero = parts.get("weight_zero_point")
    plain = w.astype(np.float32)
    return Tensor.of((plain if zero is None else plain - zero.astype(np.float32)) * scale)


def _block_size(said: Mapping[str, Any]) -> tuple[int, int]:
    """The rows and columns that have one scale where blocks have them."""
    size = said.get("weight_block_size") or [128, 128]
    if not isinstance(size, list) or [type(n) for n in size] != [int, int] or min(size) < 1:
        raise ModelError(f"config.json has {size!r} for weight_block_size, expected two sizes")
    return size[0], size[1]


def _mxfp4(parts: Parts, said: Mapping[str, Any]) -> Tensor:
    """Stacks of matrices in 4-bit floats, 32 to a scale: bytes have neighbours here, and numbers 16
    apart in GGUF's blocks."""
    blocks, scales = parts["blocks"], parts["scales"]
    if blocks.ndim != 4 or blocks.shape[-1] != 16 or scales.shape != blocks.shape[:-1]:
        raise ModelError(
            f"its scales of shape {list(scales.shape)} do not fit its blocks {list(blocks.shape)}"
        )
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*scales.shape, 32)
    halves = codes[..., :16] | codes[..., 16:] << 4
    data = np.concatenate([scales[..., None], halves], -1)
    experts, rows, groups = scales.shape
    return Tensor("mxfp4", (experts, rows, groups * 32), data.reshape(experts, rows, -1))


_METHODS: dict[str, tuple[tuple[str, ...], Callable[[Parts, Mapping[str, Any]], Tensor]]] = {
    "gptq": (_WORDS, _gptq),
    "awq": (_WORDS, _awq),
    "mlx": (("weight", "scales", "biases"), _mlx),
    "compressed-tensors": ((*_PACKED, *_FLOATS), _compressed),
    "fp8": (_FLOATS, _scaled),
    "mxfp4": (("blocks", "scales"), _mxfp4),
}
"""By the name in config.json: the arrays of a module, and what makes a tensor of them."""
