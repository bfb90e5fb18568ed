"""Weights of few bits beside what the packages that write them make of the same bytes.

    python tools/few_bits_judges.py             # all packages that are found
    python tools/few_bits_judges.py awq mlx

The judges are the PyTorch code of auto-gptq and autoawq, mlx, and compressed-tensors. Every word is
random, so that each code and each zero point occurs. Differences are counted by bits and size of
groups; there should be none. Modules of packages are loaded by their files, since the packages
themselves want GPUs: ``pip install --no-deps auto-gptq autoawq compressed-tensors`` and
``pip install 'mlx[cpu]' torch==2.13.0 transformers``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.frontends.gguf import Tensor
from rlx.llm.few_bits import joined
from rlx.quant import dequantize

Array = np.ndarray[Any, Any]
Pairs = Iterator[tuple[str, Array, Array]]
"""What was decoded, by RLX and by the judge."""

INPUTS, OUTPUTS = 512, 256


def module(package: str, path: str) -> Any:
    """A module of a package, by its file."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    file = Path(found.submodule_search_locations[0]) / path
    spec = importlib.util.spec_from_file_location(f"judge_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def words(rng: np.random.Generator, *shape: int) -> Array:
    """Random words."""
    return rng.integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)


def scales(rng: np.random.Generator, *shape: int) -> Array:
    """Scales that f16 holds."""
    return rng.normal(0, 0.05, shape).astype(np.float16)


def gptq(rng: np.random.Generator) -> Pairs:
    """auto-gptq. Of 3 bits its zero points do not wrap around, and no model of ours has one of 0
    there: fields of all ones are left out."""
    linear = module("auto_gptq", "nn_modules/qlinear/qlinear_cuda_old.py").QuantLinear
    torch = importlib.import_module("torch")
    for bits in (2, 3, 4, 8):
        for group in (32, 128):
            made = linear(bits, group, INPUTS, OUTPUTS, bias=False)
            groups = INPUTS // group
            parts = {
                "qweight": words(rng, INPUTS * bits // 32, OUTPUTS),
                "qzeros": words(rng, groups, OUTPUTS * bits // 32),
                "scales": scales(rng, groups, OUTPUTS),
            }
            if bits == 3:
                parts["qzeros"] &= 0x55555555
            made.qweight, made.qzeros = map(torch.tensor, (parts["qweight"], parts["qzeros"]))
            made.scales = torch.tensor(parts["scales"].astype(np.float32))
            expected = made(torch.eye(INPUTS)).numpy()
            shape = INPUTS, OUTPUTS
            yield f"{bits} bits, groups of {group}", dequantize(parts, "gptq", shape), expected


def awq(rng: np.random.Generator) -> Pairs:
    """autoawq."""
    decode = module("awq", "utils/packing_utils.py").dequantize_gemm
    torch = importlib.import_module("torch")
    for group in (32, 64, 128):
        groups = INPUTS // group
        parts = {
            "qweight": words(rng, INPUTS, OUTPUTS // 8),
            "qzeros": words(rng, groups, OUTPUTS // 8),
            "scales": scales(rng, groups, OUTPUTS),
        }
        given = (torch.tensor(parts["qweight"]), torch.tensor(parts["qzeros"]))
        wide = torch.tensor(parts["scales"].astype(np.float32))
        expected = decode(*given, wide, 4, group).numpy()
        yield f"groups of {group}", dequantize(parts, "awq", (INPUTS, OUTPUTS)), expected


def mlx(rng: np.random.Generator) -> Pairs:
    """mlx, of what it makes of normal numbers."""
    mx = importlib.import_module("mlx.core")
    w = rng.normal(0, 1, (OUTPUTS, INPUTS)).astype(np.float32)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            made = mx.quantize(mx.array(w), group_size=group, bits=bits)
            expected = np.array(mx.dequantize(*made, group_size=group, bits=bits))
            weight, scale, bias = map(np.array, made)
            parts = {"weight": weight, "scales": scale, "biases": bias}
            found = dequantize(parts, "mlx_affine", w.shape)
            yield f"{bits} bits, groups of {group}", found, expected


def compressed(rng: np.random.Generator) -> Pairs:
    """compressed-tensors: its packing, and its formula."""
    pack = module("compressed_tensors", "compressors/pack_quantized/helpers.py").pack_to_int32
    torch = importlib.import_module("torch")
    for bits in (4, 8):
        for group in (32, 128, INPUTS):
            for shifted in (False, True):
                half = 2 ** (bits - 1)
                q = rng.integers(-half, half, (OUTPUTS, INPUTS), np.int8)
                groups = OUTPUTS, INPUTS // group
                scale = scales(rng, *groups)
                zero = rng.integers(-half, half, groups, np.int8) * shifted
                arrays: dict[str, Array] = {
                    "l.weight_packed": pack(torch.tensor(q), bits).numpy(),
                    "l.weight_scale": scale, "l.weight_shape": np.array(q.shape, np.int64),
                }  # fmt: skip
                if shifted:
                    packed = pack(torch.tensor(zero), bits, packed_dim=0).numpy()
                    arrays["l.weight_zero_point"] = packed
                said = {
                    "quant_method": "compressed-tensors", "format": "pack-quantized",
                    "config_groups": {"g": {"weights": {
                        "num_bits": bits, "group_size": group, "symmetric": not shifted,
                        "type": "int", "strategy": "group",
                    }}},
                }  # fmt: skip
                tensor = joined(arrays, {"quantization_config": said})["l.weight"]
                wide, shift = (np.repeat(a.astype(np.float32), group, 1) for a in (scale, zero))
                found = tensor.dequantize() if isinstance(tensor, Tensor) else tensor
                name = f"{bits} bits, groups of {group}{', zero points' * shifted}"
                yield name, found, (q.astype(np.float32) - shift) * wide


JUDGES: Mapping[str, Callable[[np.random.Generator], Pairs]] = {
    "gptq": gptq, "awq": awq, "mlx": mlx, "compressed": compressed
}  # fmt: skip


def main() -> int:
    """A row for each case; 1 where any number differs."""
    parser = argparse.ArgumentParser(description="Weights of few bits beside their packages")
    parser.add_argument("judges", nargs="*", choices=[*JUDGES, []], help="all unless given")
    wrong = 0
    for name in parser.parse_args().judges or JUDGES:
        try:
            for case, found, expected in JUDGES[name](np.random.default_rng(0)):
                differ = int((found != expected).sum())
                wrong += differ
                print(f"{name:11} {case:32} {differ} of {expected.size} differ", flush=True)
        except ModuleNotFoundError as e:
            print(f"{name:11} not judged: {e}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
