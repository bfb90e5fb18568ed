"""Programs for browsers: a folder with a program for WebGPU, for WebAssembly or for both, its
values, and what runs it.

    from rlx.runtime.web import write_bundle

    write_bundle(rlx.compile_artifact(graph, "webgpu", params=params), "site/model")

A page loads ``rlx.js`` from the folder, which loads the rest; nothing comes from elsewhere. The
files are ``rlx.js``, ``wasm.js``, ``threads.js``, ``sizes.js`` and ``steps.js``, the code;
``program.json``, which has the steps and the memories, of an artifact for many sizes those of each
variant; ``kernels.wgsl`` and ``kernels.wasm``; ``weights.bin``, the params and constants one after
another; and ``index.html``, a page that runs the program on inputs of its own, as an example.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.dim_text import without_ranges
from rlx.errors import ArtifactError
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.runtime.encoding import places_of
from rlx.runtime.web.programs import Programs
from rlx.schedule.plan import Signature
from rlx.schedule.steps import collectives
from rlx.targets.wasm.module import data_bytes, shared_imports

__all__ = ["FORMAT", "write_bundle"]

FORMAT = 5
"""The number of ``program.json``'s format, which ``rlx.js`` checks."""

_COPIED = ("rlx.js", "wasm.js", "threads.js", "sizes.js", "steps.js", "index.html")

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
    found = {a.variants[0].machine: _variants(a) for a in (artifact, fallback) if a is not None}
    if fallback is not None and (
        [*found] != ["webgpu", "wasm"] or _signatures(artifact) != _signatures(fallback)
    ):
        raise ArtifactError(
            f"a fallback is an artifact for 'wasm' of the graph of one for 'webgpu', found"
            f" {fallback.target!r} of inputs {fallback.inputs} beside {artifact.target!r} of inputs"
            f" {artifact.inputs}"
        )
    weights = _Weights()
    params = [weights.put(artifact.values[name]) for name, _, _ in artifact.params]
    files: dict[str, bytes] = {"program.json": b""}
    described: dict[str, Any] = {}
    for name, variants in found.items():
        programs = Programs(variants, params, weights.put)
        described[name] = programs.described | _signed(artifact)
        if name == "wasm":
            described[name]["modules"] = _modules(programs.codes)
        files[_KERNELS[name]] = _JOINED[name](programs.codes)
    text = json.dumps({"format": FORMAT, "programs": described}, separators=(",", ":"))
    files["program.json"] = text.encode()
    files["weights.bin"] = bytes(weights.data)
    files |= {name: (Path(__file__).parent / name).read_bytes() for name in _COPIED}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    return list(files)


def _variants(artifact: Artifact) -> list[DeviceVariant]:
    variants = [v for v in artifact.variants if not isinstance(v, Variant)]
    if not variants or variants[0].machine not in _KERNELS:
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
    if any(True for v in variants for _ in collectives(v.program.main)):
        raise ArtifactError(
            f"{artifact.target!r} has collectives, and a page has no ranks to meet; make a bundle"
            " of a graph without them"
        )
    return [v for v in variants if v.features == variants[0].features]


def _signatures(artifact: Artifact) -> list[dict[str, Any]]:
    found = (*artifact.params, *artifact.inputs, *artifact.outputs)
    return [_signature(s) for s in found]


class _Weights:
    """Arrays one after another, equal ones once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._at: dict[bytes, int] = {}

    def put(self, array: Any) -> int:
        """Where an array lies, which is added behind the others if it is not there."""
        data = np.ascontiguousarray(array).tobytes()
        at = self._at.setdefault(data, len(self.data))
        if at == len(self.data):
            self.data += data + bytes(-len(data) % _ALIGNED)
        return at


def _signed(artifact: Artifact) -> dict[str, Any]:
    """The symbols with what tells their ranges, and the signatures: a dim is a number or its
    text."""
    signatures = {"inputs": artifact.inputs, "outputs": artifact.outputs}
    return {
        "symbols": [
            {"name": s.name, "least": s.least, "most": s.most} for s in places_of(artifact.inputs)
        ],
        **{kind: [_signature(s) for s in found] for kind, found in signatures.items()},
    }


def _signature(signature: Signature) -> dict[str, Any]:
    name, dt, shape = signature
    dims = [d if isinstance(d, int) else without_ranges(str(d)) for d in shape]
    return {"name": name, "dtype": dt, "shape": dims}


def _modules(codes: Sequence[bytes]) -> list[dict[str, Any]]:
    """Where the modules lie in their file, the bytes of their constants, and what stands in place
    of the imports of one that several threads share."""
    found: list[dict[str, Any]] = []
    at = 0
    for code in codes:
        start, size, imports = shared_imports(code)
        shared = {"at": start, "bytes": size, "imports": list(imports)}
        found.append({"at": at, "bytes": len(code), "data": data_bytes(code), "shared": shared})
        at += len(code)
    return found


def _one_source(codes: Sequence[bytes]) -> bytes:
    """Files of WGSL as one. They are paragraphs, one for a kernel or a helper, whose names say what
    they are: equal ones are one."""
    paragraphs = [p for code in codes for p in code.decode().strip().split("\n\n")]
    return "\n\n".join(dict.fromkeys(paragraphs)).encode()


_JOINED = {"webgpu": _one_source, "wasm": b"".join}
"""What makes one file of those of the kernels."""
