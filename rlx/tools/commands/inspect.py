"""``rlx inspect FILE``: what a file of weights, or an artifact, holds."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

from rlx.frontends.gguf import GGUF, read
from rlx.tools.artifact_page import is_artifact, lines_of

__all__ = ["add_arguments", "run"]

_SHOWN = 60
"""Characters of a value."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The file."""
    p.add_argument("file", help="an artifact, or a GGUF file; of a split model the first part")
    p.add_argument("--metadata", action="store_true", help="the metadata alone")
    p.add_argument("--tensors", action="store_true", help="the tensors alone")


def run(args: argparse.Namespace) -> int:
    """Print of an artifact the signature and the variants, of weights the metadata, the tensors,
    and what they take by scheme."""
    if is_artifact(args.file):
        from rlx.runtime.artifact import Artifact

        print("\n".join(lines_of(args.file, Artifact.load(args.file))))
        return 0
    file = read(args.file)
    print(f"{file.file}: GGUF {file.version}, {file.byteorder} endian, {len(file)} tensors")
    if args.metadata or not args.tensors:
        _metadata(file)
    if args.tensors or not args.metadata:
        _tensors(file)
    return 0


def _metadata(file: GGUF) -> None:
    width = max(map(len, file.metadata), default=0)
    for key, value in file.metadata.items():
        print(f"  {key:{width}s}  {file.kinds[key]:6s} {_value(value)}")


def _value(value: Any) -> str:
    if isinstance(value, list | np.ndarray):
        first = ", ".join(map(repr, np.asarray(value[:4]).tolist()))
        more = ", ..." if len(value) > 4 else ""
        return f"{len(value)}: [{_cut(first)}{more}]"
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _tensors(file: GGUF) -> None:
    width = max(map(len, file), default=0)
    total: dict[str, list[int]] = {}
    for name, t in file.items():
        shape = "x".join(map(str, t.shape))
        print(f"  {name:{width}s}  {t.scheme:8s} {shape:16s} {t.nbytes:>14,} bytes")
        of = total.setdefault(t.scheme, [0, 0, 0])
        for i, n in enumerate((1, math.prod(t.shape), t.nbytes)):
            of[i] += n
    for scheme, (count, elements, size) in sorted(total.items()):
        print(f"{scheme}: {count} tensors, {elements:,} elements, {size / 2**20:.1f} MiB")
