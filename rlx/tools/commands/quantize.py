"""``rlx quantize IN OUT --scheme q8_0``: the weights of a file in blocks of few bits, as GGUF.

With ``--calibrate TEXT`` those of a language model are chosen so that what the layers give for such
texts changes least (``rlx.llm.calibration``).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ModelError, RlxError
from rlx.frontends.gguf import Tensor, read, write
from rlx.models.safetensors import SafeTensors
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.tools.arrays import check_free
from rlx.tools.options import add_force

__all__ = ["add_arguments", "run"]


METHODS = ("awq", "gptq", "awq+gptq")
"""Of ``rlx.llm.calibration``."""

_INTEGERS = ("i8", "i16", "i32", "i64")


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The files and the scheme."""
    p.add_argument("input", help="a GGUF file (of a split model the first part) or .safetensors")
    p.add_argument("output", help="the GGUF file to write")
    p.add_argument("--scheme", required=True, help="such as q8_0, q4_k or q6_k")
    p.add_argument("--calibrate", metavar="TEXT", help="a text file, for a language model in GGUF")
    p.add_argument(
        "--method", choices=METHODS, help="how, with --calibrate: by default awq+gptq where the"
        " scheme has gptq, else awq",
    )  # fmt: skip
    add_force(p)


def run(args: argparse.Namespace) -> int:
    """Quantise each tensor of two dims and more whose rows are whole blocks; print its error."""
    scheme = scheme_named(args.scheme)
    if not isinstance(scheme, BlockScheme) or scheme.encode is None or scheme.ggml is None:
        raise ModelError(f"rlx quantize makes schemes of blocks, such as q8_0, found {scheme}")
    check_free(args.output, args.force)
    tensors, metadata, kinds = _opened(args.input)
    out: dict[str, Tensor] = {}
    if args.calibrate is not None:
        out = _calibrated(args, scheme)
    elif args.method is not None:
        raise ModelError("--method is how weights are calibrated: give --calibrate a text file")
    for name, t in tensors.items():
        if name in out:
            continue
        try:
            out[name] = _quantised(name, t, scheme)
        except RlxError as e:
            raise ModelError(f"{args.input}: tensor {name!r}: {e.message}") from None
    write(args.output, {name: out[name] for name in tensors}, metadata, kinds)
    before, after = (sum(t.nbytes for t in ts.values()) for ts in (tensors, out))
    print(f"{args.output}: {before / 2**20:.1f} MiB are {after / 2**20:.1f} MiB")
    return 0


def _calibrated(args: argparse.Namespace, scheme: BlockScheme) -> dict[str, Tensor]:
    """The tensors that a text decides."""
    if args.input.endswith(".safetensors"):
        raise ModelError(f"{args.input}: a language model to calibrate is a GGUF file")
    from rlx.llm.calibration import calibrated, chunks_of
    from rlx.ptq.feedback import FEEDBACK

    try:
        text = Path(args.calibrate).read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise ModelError(f"cannot read {args.calibrate}: {e}") from None
    method = args.method or ("awq+gptq" if scheme.name in FEEDBACK else "awq")
    found: dict[str, Tensor] = {}
    file = read(args.input)
    for name, t in calibrated(file, chunks_of(file, text), scheme, method):
        found[name] = t
        shape = "x".join(map(str, t.shape))
        print(f"{name:40s} {shape:16s} {file[name].scheme:8s} -> {t.scheme} by {method}")
    return found


def _opened(path: str) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, str]]:
    """The tensors of a file, its metadata and their kinds."""
    if path.endswith(".safetensors"):
        return {name: Tensor.of(x) for name, x in SafeTensors(path).items()}, {}, {}
    file = read(path)
    left = [key for key in file.metadata if key.startswith("split.")]
    metadata = {k: v for k, v in file.metadata.items() if k not in left}
    return dict(file.items()), metadata, {k: v for k, v in file.kinds.items() if k not in left}


def _quantised(name: str, t: Tensor, scheme: BlockScheme) -> Tensor:
    """A tensor in a scheme, or as it is where its rows are no whole blocks."""
    shape = "x".join(map(str, t.shape))
    if len(t.shape) < 2 or t.shape[-1] % scheme.block or t.scheme in _INTEGERS:
        print(f"{name:40s} {shape:16s} {t.scheme:8s} stays")
        return t
    x = t.dequantize()
    out = Tensor.of(x, scheme.name)
    size = math.sqrt(float(np.sum(np.square(x, dtype=np.float64))))
    lost = math.sqrt(float(np.sum(np.square(x - out.dequantize(), dtype=np.float64))))
    error = lost / size if size else 0.0
    print(f"{name:40s} {shape:16s} {t.scheme:8s} -> {scheme} error {error:.3g}")
    return out
