"""Programs for browsers: a folder with a program for WebGPU, for WebAssembly or for both, its
values, and what runs it.

    from rlx.runtime.web import write_bundle

    write_bundle(rlx.compile_artifact(graph, "webgpu", params=params), "site/model")

A page loads ``rlx.js`` from the folder, which loads the rest; nothing comes from elsewhere. The
files are ``rlx.js``, ``wasm.js`` and ``steps.js``, the code; ``program.json``, which has the steps
and the memories; ``kernels.wgsl`` and ``kernels.wasm``; ``weights.bin``, the params and constants
one after another; and ``index.html``, a page that runs the program on inputs of its own, as an
example.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ArtifactError
from rlx.runtime.artifact import Artifact, Variant
from rlx.schedule.codec import main_words
from rlx.schedule.steps import Place, Step
from rlx.targets.gpu.program import GpuProgram
from rlx.targets.wasm.module import MAGIC, data_bytes
from rlx.types import DTYPES

__all__ = ["FORMAT", "write_bundle"]

FORMAT = 3
"""The number of ``program.json``'s format, which ``rlx.js`` checks."""

_COPIED = ("rlx.js", "wasm.js", "steps.js", "index.html")

_KERNELS = {"webgpu": "kernels.wgsl", "wasm": "kernels.wasm"}
"""The targets that pages run, and the file of their code."""

_ALIGNED = 16


def write_bundle(
    artifact: Artifact, folder: str | Path, fallback: Artifact | None = None
) -> list[str]:
    """Write an artifact for the target "webgpu" or "wasm" to a folder; returns the names of its
    files. A ``fallback`` for "wasm", of the same graph, is what pages run where there is no WebGPU;
    both read the same params.

    ArtifactError for an artifact of another target, or without a value for one of its params, and
    for a fallback of another graph.
    """
    programs = {a.variants[0].machine: _program(a) for a in (artifact, fallback) if a is not None}
    if fallback is not None and (
        [*programs] != ["webgpu", "wasm"] or _signatures(artifact) != _signatures(fallback)
    ):
        raise ArtifactError(
            f"a fallback is an artifact for 'wasm' of the graph of one for 'webgpu', found"
            f" {fallback.target!r} of inputs {fallback.inputs} beside {artifact.target!r} of inputs"
            f" {artifact.inputs}"
        )
    weights = bytearray()
    params = [_put(weights, artifact.values[name]) for name, _, _ in artifact.params]
    described: dict[str, Any] = {}
    for name, program in programs.items():
        starts = {"param": params, "constant": [_put(weights, c) for c in program.constants]}
        described[name] = _described(program, starts)
    codes = {_KERNELS[n]: p.kernels[0].code for n, p in programs.items() if p.kernels}
    files: dict[str, bytes] = {
        "program.json": json.dumps({"format": FORMAT, "programs": described}, indent=1).encode(),
        **{_KERNELS[name]: codes.get(_KERNELS[name], _EMPTY[name]) for name in programs},
        "weights.bin": bytes(weights),
        **{name: (Path(__file__).parent / name).read_bytes() for name in _COPIED},
    }
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    return list(files)


_EMPTY = {"webgpu": b"", "wasm": b"\0asm\1\0\0\0"}
"""The code of no kernels."""


def _program(artifact: Artifact) -> GpuProgram:
    variant = artifact.variants[0]
    if isinstance(variant, Variant) or variant.machine not in _KERNELS:
        raise ArtifactError(
            "a bundle for browsers is made of an artifact for the target 'webgpu' or 'wasm', found"
            f" one for {artifact.target!r}"
        )
    if missing := [name for name, _, _ in artifact.params if name not in artifact.values]:
        listed = ", ".join(map(repr, missing))
        raise ArtifactError(
            f"a bundle carries the values of all params, and {listed} have none; give them to"
            " compile_artifact as params={...}"
        )
    return variant.program


def _signatures(artifact: Artifact) -> tuple[Any, ...]:
    return artifact.params, artifact.inputs, artifact.outputs


def _put(weights: bytearray, array: Any) -> int:
    """Where an array lies, which is added behind the others."""
    at = len(weights)
    weights += np.ascontiguousarray(array).tobytes()
    weights += bytes(-len(weights) % _ALIGNED)
    return at


def _described(program: GpuProgram, starts: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    signatures = {"inputs": program.inputs, "outputs": program.outputs}
    code = program.kernels[0].code if program.kernels else b""
    return {
        "data": data_bytes(code) if code.startswith(MAGIC) else 0,
        "kernels": [
            {
                "name": k.name,
                "bindings": [b.access for b in k.bindings],
                "elements": [DTYPES[b.dtype].part.bytes for b in k.bindings],
                "params": k.params,
            }
            for k in program.kernels
        ],
        "memories": [
            {
                "role": m.role,
                "index": m.index,
                "bytes": m.nbytes,
                "at": starts[m.role][m.index] if m.role in starts else None,
            }
            for m in program.memories
        ],
        **{
            kind: [{"name": name, "dtype": dt, "shape": list(shape)} for name, dt, shape in found]
            for kind, found in signatures.items()
        },
        "prologue": _words([step for step, _ in program.prologue]),
        "main": _words(program.main),
        "sites": [f"{file}:{line}: {message}" for message, file, line in program.sites],
    }


def _words(steps: Sequence[Step[Place]]) -> list[int]:
    """The words of steps, which ``rlx.js`` reads by the table in ``steps.js``."""
    words = main_words(steps)
    return list(struct.unpack(f"<{len(words) // 8}q", words))
