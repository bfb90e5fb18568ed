"""``rlx inspect MODEL``: what a model, an artifact or a file of weights is."""

from __future__ import annotations

import argparse
import json
import math
import os
from typing import Any

import numpy as np

from rlx.base.units import bytes_text
from rlx.errors import RlxError
from rlx.frontends.gguf import GGUF, read
from rlx.inspect.facts import (
    facts_of_artifact,
    facts_of_graph,
    facts_of_safetensors,
    lines_of,
    size_of,
)
from rlx.models.bert import read_json
from rlx.tools.graphs import MODEL, add_graph_options, graph_from
from rlx.tools.kinds import Kind, kind_of

__all__ = ["add_arguments", "run"]

_SHOWN = 60
"""Characters of a value."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The model."""
    p.add_argument(
        "file",
        metavar="MODEL",
        help=f"{MODEL}; an artifact; a language model (.gguf, of a split model the first part, or a"
        " folder); or weights (.safetensors)",
    )
    add_graph_options(p)
    p.add_argument("--metadata", action="store_true", help="the metadata of a GGUF file alone")
    p.add_argument("--tensors", action="store_true", help="each tensor of a file, or param")
    p.add_argument("--json", action="store_true", help="print plain data in place of lines")


def run(args: argparse.Namespace) -> int:
    """Print the signature, the dims, the params and the ops of a model; the variants of an
    artifact; the metadata and the tensors of weights."""
    kind = kind_of(args.file)
    if kind is Kind.GGUF and not args.json:
        _gguf(read(args.file), args)
        return 0
    facts = _facts(args, kind)
    size = size_of(args.file)
    if args.json:
        print(json.dumps({"file": args.file, "kind": kind, "bytes": size, **facts}, indent=1))
        return 0
    head = f"{args.file}: {kind}, {bytes_text(size)}"
    print("\n".join([head, *lines_of(facts, args.tensors)]))
    return 0


def _facts(args: argparse.Namespace, kind: Kind) -> dict[str, Any]:
    """What a file is, as plain data."""
    if kind is Kind.ARTIFACT:
        from rlx.runtime.artifact import Artifact

        return facts_of_artifact(Artifact.load(args.file))
    if kind is Kind.SAFETENSORS:
        from rlx.models.safetensors import SafeTensors

        return facts_of_safetensors(SafeTensors(args.file))
    if kind is Kind.DECODER:
        return _folder(args.file)
    if kind is Kind.GGUF:
        return _gguf_facts(read(args.file))
    return facts_of_graph(graph_from(args.file, args))


def _folder(path: str) -> dict[str, Any]:
    """The configuration of a language model's folder, and the tensors of its files."""
    from rlx.models.safetensors import SafeTensors

    config = read_json(os.path.join(path, "config.json"), dict)
    files = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    parts = [facts_of_safetensors(SafeTensors(os.path.join(path, n)))["params"] for n in files]
    if not parts:
        raise RlxError(f"{path} has no .safetensors files")
    dtypes = {dt: sum(p["dtypes"].get(dt, 0) for p in parts) for p in parts for dt in p["dtypes"]}
    params = {key: sum(p[key] for p in parts) for key in ("count", "elements", "bytes")}
    tensors = [t for p in parts for t in p["tensors"]]
    plain = {k: v for k, v in config.items() if isinstance(v, str | int | float)}
    return {"metadata": plain, "params": {**params, "dtypes": dtypes, "tensors": tensors}}


# -- GGUF ----------------------------------------------------------------------------------


def _gguf_facts(file: GGUF) -> dict[str, Any]:
    tensors = [
        {"name": n, "dtype": t.scheme, "shape": list(t.shape), "bytes": t.nbytes}
        for n, t in file.items()
    ]
    metadata = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in file.metadata.items()}
    return {"version": file.version, "metadata": metadata, "tensors": tensors}


def _gguf(file: GGUF, args: argparse.Namespace) -> None:
    print(f"{file.file}: GGUF {file.version}, {file.byteorder} endian, {len(file)} tensors")
    if args.metadata or not args.tensors:
        _metadata(file)
    if args.tensors or not args.metadata:
        _tensors(file)


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
