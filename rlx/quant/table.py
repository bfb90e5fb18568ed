"""The table of schemes. A new format is a row."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from rlx.errors import NameError, did_you_mean
from rlx.quant.scheme import BlockScheme, PartsScheme, QuantScheme

__all__ = ["ORIGINAL", "by_ggml", "scheme_named", "schemes"]

_D, _M, _MIN = ("d", "<f2"), ("m", "<f2"), ("dmin", "<f2")
_PLAIN, _K, _GRID = "decode_plain", "decode_k", "decode_grid"


def _bytes(**counts: int) -> list[Any]:
    return [(name, "u1", n) for name, n in counts.items()]


_SIGNED_POINTS = [("points", "u1", 4), ("signs", "<u4")]

_GGML: dict[str, tuple[int, int, list[Any], str, str]] = {
    "f32": (0, 1, [("x", "<f4")], _PLAIN, "encode_plain"),
    "f16": (1, 1, [("x", "<f2")], _PLAIN, "encode_plain"),
    "bf16": (30, 1, [("x", "<u2")], _PLAIN, "encode_plain"),
    "q4_0": (2, 32, [_D, *_bytes(qs=16)], _PLAIN, "encode_plain"),
    "q4_1": (3, 32, [_D, _M, *_bytes(qs=16)], _PLAIN, "encode_plain"),
    "q5_0": (6, 32, [_D, *_bytes(qh=4, qs=16)], _PLAIN, "encode_plain"),
    "q5_1": (7, 32, [_D, _M, *_bytes(qh=4, qs=16)], _PLAIN, "encode_plain"),
    "q8_0": (8, 32, [_D, ("qs", "i1", 32)], _PLAIN, "encode_plain"),
    "q2_k": (10, 256, [*_bytes(scales=16, qs=64), _D, _MIN], _K, "encode_k"),
    "q3_k": (11, 256, [*_bytes(hmask=32, qs=64, scales=12), _D], _K, "encode_k"),
    "q4_k": (12, 256, [_D, _MIN, *_bytes(scales=12, qs=128)], _K, "encode_k"),
    "q5_k": (13, 256, [_D, _MIN, *_bytes(scales=12, qh=32, qs=128)], _K, "encode_k"),
    "q6_k": (14, 256, [*_bytes(ql=128, qh=64), ("scales", "i1", 16), _D], _K, "encode_k"),
    "q8_k": (
        15, 256, [("d", "<f4"), ("qs", "i1", 256), ("sums", "<i2", 16)], _PLAIN, "encode_plain",
    ),
    "iq2_xxs": (16, 256, [_D, ("qs", _SIGNED_POINTS, 8)], _GRID, ""),
    "iq2_xs": (17, 256, [_D, ("qs", "<u2", 32), *_bytes(scales=8)], _GRID, ""),
    "iq2_s": (22, 256, [_D, *_bytes(qs=32, signs=32, qh=8, scales=8)], _GRID, ""),
    "iq3_xxs": (18, 256, [_D, *_bytes(qs=64), ("signs", "<u4", 8)], _GRID, ""),
    "iq3_s": (21, 256, [_D, *_bytes(qs=64, qh=8, signs=32, scales=4)], _GRID, ""),
    "iq1_s": (19, 256, [_D, *_bytes(qs=32), ("qh", "<u2", 8)], _GRID, ""),
    "iq1_m": (29, 256, [*_bytes(qs=32, qh=16), ("scales", "<u2", 4)], _GRID, ""),
    "iq4_nl": (20, 32, [_D, *_bytes(qs=16)], _PLAIN, "encode_codes"),
    "iq4_xs": (
        23, 256, [_D, ("scales_h", "<u2"), *_bytes(scales_l=4, qs=128)], _K, "encode_k",
    ),
    "tq1_0": (34, 256, [*_bytes(qs=48, qh=4), _D], _PLAIN, "encode_plain"),
    "tq2_0": (35, 256, [*_bytes(qs=64), _D], _PLAIN, "encode_plain"),
    "mxfp4": (39, 32, [("e", "u1"), *_bytes(qs=16)], _PLAIN, "encode_codes"),
    "nvfp4": (40, 64, _bytes(d=4, qs=32), _PLAIN, "encode_codes"),
    "q1_0": (41, 128, [_D, *_bytes(qs=16)], _PLAIN, "encode_plain"),
}  # fmt: skip
"""GGML's types by their names in lower case: number, elements of a block, the fields of a block in
the order of its bytes (ggml-common.h), and the modules that decode and encode it. Of Q8_1, which
holds rows in flight and no weights, there is no row, as GGML decodes none."""

_WIDE: dict[str, tuple[list[Any], str]] = {
    "q4_0_f32": ([("d", "<f4"), *_bytes(qs=16)], "q4_0"),
    "q4_1_f32": ([("d", "<f4"), ("m", "<f4"), *_bytes(qs=16)], "q4_1"),
    "q8_0_f32": ([("d", "<f4"), ("qs", "i1", 32)], "q8_0"),
    "q8_1_f32": ([("d", "<f4"), ("m", "<f4"), *_bytes(qs=32)], "q8_1"),
    "q2_1_f32": ([("d", "<f4"), ("m", "<f4"), *_bytes(qs=8)], "q2_1"),
    "fp8_e4m3_f32": ([("d", "<f4"), *_bytes(qs=32)], "e4m3"),
    "fp8_e5m2_f32": ([("d", "<f4"), *_bytes(qs=32)], "e5m2"),
}
"""Blocks of 32 as GGML has them, such of 8 and 2 bits with a least value, and such of 8-bit floats,
with scales and least values in f32, as those of ONNX's weights of few bits and of Hugging Face's
8-bit floats are; and the functions that decode them."""

_PARTS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "int8_block": ("blocks", 32, ("q", "scale")),
    "int8_block_asym": ("blocks", 32, ("q", "scale", "zero")),
    "int4_block": ("blocks", 32, ("q", "scale")),
    "int4_block_asym": ("blocks", 32, ("q", "scale", "zero")),
    "fp8_e4m3": ("blocks", 0, ("q", "scale")),
    "fp8_e5m2": ("blocks", 0, ("q", "scale")),
    "nvfp4_block": ("blocks", 16, ("q", "scale", "global_scale")),
    "gptq": ("packed", 128, ("qweight", "qzeros", "scales", "g_idx")),
    "gptq_v2": ("packed", 128, ("qweight", "qzeros", "scales", "g_idx")),
    "awq": ("packed", 128, ("qweight", "qzeros", "scales")),
    "mlx_affine": ("packed", 64, ("weight", "scales", "biases")),
}
"""Schemes of several arrays: the module of ``rlx.quant`` that reads and makes them, how many
elements have a scale together (0: a column), and their arrays."""

ORIGINAL = {
    "Int8Block": "int8_block", "Int8BlockAsym": "int8_block_asym", "Int4Block": "int4_block",
    "Int4BlockAsym": "int4_block_asym", "Fp8E4m3": "fp8_e4m3", "Fp8E5m2": "fp8_e5m2",
    "Nvfp4Block": "nvfp4_block",
    **{f"GgufQ{n}K": f"q{n}_k" for n in (2, 3, 4, 5, 6, 8)}, "GgufQ4_0": "q4_0",
    "GgufQ8_0": "q8_0",
}  # fmt: skip
"""The names that the system that RLX follows has for its schemes."""


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module of ``rlx.quant``, which is loaded as it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(f"rlx.quant.{module}"), name)(*args, **kwargs)

    return call


def _block_row(name: str) -> BlockScheme:
    number, block, fields, decoder, encoder = _GGML[name]
    return BlockScheme(
        name,
        block,
        np.dtype(fields),
        _later(decoder, name),
        _later(encoder, name) if encoder else None,
        number,
        encoder == "encode_k" or name in ("iq4_nl", "nvfp4"),
    )


def _wide_row(name: str) -> BlockScheme:
    fields, function = _WIDE[name]
    encode = partial(_later("encode_plain", "wide"), name)
    decode, whole = _later(_PLAIN, function), not name.startswith("fp8")
    return BlockScheme(name, 32, np.dtype(fields), decode, encode, whole=whole)


def _parts_row(name: str) -> PartsScheme:
    module, group, parts = _PARTS[name]
    return PartsScheme(
        name,
        parts,
        partial(_later(module, "decode"), name),
        partial(_later(module, "encode"), name),
        group,
    )


@cache
def schemes() -> dict[str, QuantScheme]:
    """Every scheme by its name."""
    return {
        **{name: _block_row(name) for name in _GGML},
        **{name: _wide_row(name) for name in _WIDE},
        **{name: _parts_row(name) for name in _PARTS},
    }


@cache
def by_ggml() -> dict[int, BlockScheme]:
    """The schemes of GGML's types, by number."""
    return {
        s.ggml: s for s in schemes().values() if isinstance(s, BlockScheme) and s.ggml is not None
    }


def scheme_named(name: str | QuantScheme) -> QuantScheme:
    """The scheme of a name, RLX's own or the original's. NameError if there is none."""
    if isinstance(name, QuantScheme):
        return name
    found = schemes().get(ORIGINAL.get(name, name))
    if found is None:
        hint = did_you_mean(name, [*schemes(), *ORIGINAL])
        raise NameError(f"no scheme is named {name!r}{hint}; rlx.quant.schemes() has them all")
    return found
