"""Programs for browsers: a folder with a program for WebGPU, its values, and what runs it.

    from rlx.runtime.web import write_bundle

    write_bundle(rlx.compile_artifact(graph, "webgpu", params=params), "site/model")

A page loads ``rlx.js`` from the folder, which loads the rest; nothing comes from elsewhere. The
files are ``rlx.js`` and ``steps.js``, the code; ``program.json``, which has the steps and the
memories; ``kernels.wgsl``; ``weights.bin``, the params and constants one after another; and
``index.html``, a page that runs the program on inputs of its own, as an example.
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
from rlx.types import DTYPES

__all__ = ["FORMAT", "write_bundle"]

FORMAT = 2
"""The number of ``program.json``'s format, which ``rlx.js`` checks."""

_COPIED = ("rlx.js", "steps.js", "index.html")

_ALIGNED = 16


def write_bundle(artifact: Artifact, folder: str | Path) -> list[str]:
    """Write an artifact for the target "webgpu" to a folder; returns the names of its files.

    ArtifactError for an artifact of another target, or without a value for one of its params.
    """
    variant = artifact.variants[0]
    if isinstance(variant, Variant) or variant.machine != "webgpu":
        raise ArtifactError(
            f"a bundle for browsers is made of an artifact for the target 'webgpu', found one for"
            f" {artifact.target!r}"
        )
    if missing := [name for name, _, _ in artifact.params if name not in artifact.values]:
        listed = ", ".join(map(repr, missing))
        raise ArtifactError(
            f"a bundle carries the values of all params, and {listed} have none; give them to"
            " compile_artifact as params={...}"
        )
    program = variant.program
    weights, offsets = _packed(program, artifact.values)
    files = {
        "program.json": json.dumps(_described(program, offsets), indent=1).encode(),
        "kernels.wgsl": program.kernels[0].code if program.kernels else b"",
        "weights.bin": weights,
        **{name: (Path(__file__).parent / name).read_bytes() for name in _COPIED},
    }
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    return list(files)


def _packed(program: GpuProgram, values: Mapping[str, Any]) -> tuple[bytes, list[int]]:
    """Params and then constants one after another, and where each starts."""
    arrays = [*(values[name] for name, _, _ in program.params), *program.constants]
    parts, offsets, at = list[bytes](), list[int](), 0
    for a in arrays:
        data = np.ascontiguousarray(a).tobytes()
        data += bytes(-len(data) % _ALIGNED)
        parts.append(data)
        offsets.append(at)
        at += len(data)
    return b"".join(parts), offsets


def _described(program: GpuProgram, offsets: Sequence[int]) -> dict[str, Any]:
    signatures = {"inputs": program.inputs, "outputs": program.outputs}
    count = len(program.params)
    starts = {"param": offsets[:count], "constant": offsets[count:]}
    return {
        "format": FORMAT,
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
