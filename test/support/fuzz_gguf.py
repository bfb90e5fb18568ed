"""Mutated GGUF files: each is read to the last element, or refused."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlx import quant
from rlx.errors import ModelError
from rlx.frontends.gguf import read
from support.fuzzing import Target
from support.gguf_files import Raw, key, raw_file, tensor
from support.mutation import mutated_bytes

__all__ = ["GGUF"]


def _valid() -> list[bytes]:
    """Small files of all versions and byte orders, of which one says where the next part is."""
    x = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    parts = [(2, quant.quantize(x, "q4_0")), (12, quant.quantize(x, "q4_k")), (0, x.view(np.uint8))]
    parts.append((16, np.random.default_rng(1).integers(0, 256, (2, 66), np.uint8)))
    out: list[bytes] = []
    for version, order in ((3, "<"), (2, "<"), (1, "<"), (3, ">"), (1, ">")):
        raw = Raw(version, order)
        keys = [
            key("general.architecture", "str", "llama", raw),
            key("general.alignment", "u32", 32, raw),
            key("a.bool", "bool", 1, raw),
            key("a.f64", "f64", 0.5, raw),
            key("tokens", "array", ("str", ["a", "bc", ""]), raw),
            key("scores", "array", ("f32", [0.5, 1.5]), raw),
            key("deep", "array", ("array", [("i16", [1, 2])]), raw),
        ]
        infos, data = [], b""
        for n, (kind, values) in enumerate(parts):
            infos.append(tensor(f"t{n}", [256, 2], kind, len(data), raw))
            data += values.tobytes() + bytes(-values.size % 32)
        out.append(raw_file(keys, infos, data, raw=raw))
        out.append(raw_file(keys[:1], infos[:1], data[:576], raw=raw))
    return out


def _changed(valid: list[bytes], r: random.Random) -> bytes:
    data = r.choice(valid)
    return mutated_bytes(data, r, range(min(len(data), 700)))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _attempt(data: bytes) -> None:
    path = Path(_folder().name) / "m-00001-of-00002.gguf"
    path.write_bytes(data)
    file: Any = read(path)
    repr((file.metadata, file.kinds))
    for t in file.values():
        if t.data.size < 1 << 20:
            assert t.dequantize().shape == t.shape


GGUF = Target(_valid, _changed, _attempt, allowed=(ModelError,))
