"""Bundles of WebAssembly run by node, one process for all."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.errors import FaultError, ToolchainError
from rlx.runtime.artifact import Artifact
from rlx.runtime.web import write_bundle
from rlx.types import DTYPES

__all__ = ["WasmProgram", "run_folder", "version", "why_not"]

Array = np.ndarray[Any, Any]


def why_not() -> str:
    """Why nothing runs here; "" if it does."""
    return "" if shutil.which("node") else "node is not on PATH"


@cache
def version() -> str:
    """What runs it."""
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    return f"node {said.stdout.strip().lstrip('v')}"


@cache
def _process() -> subprocess.Popen[str]:
    runner = Path(__file__).with_name("run_wasm.mjs")
    made = subprocess.Popen(
        ["node", str(runner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(made.kill)
    return made


def run_folder(
    folder: Path,
    artifact: Artifact,
    feeds: Mapping[str, Any],
    dims: Mapping[str, int] | None = None,
    threads: int = 1,
) -> list[Array]:
    """The outputs of a bundle in a folder, for many sizes at ``dims``; FaultError with what it says
    if it does not end well. A model of so many ``threads`` stays there."""
    for n, (name, *_) in enumerate(artifact.inputs):
        np.ascontiguousarray(feeds[name]).tofile(folder / f"in{n}")
    node = _process()
    assert node.stdin is not None and node.stdout is not None
    asked = {"folder": str(folder), "dims": dims or {}, "threads": threads}
    node.stdin.write(f"{json.dumps(asked)}\n")
    node.stdin.flush()
    line = node.stdout.readline()
    if not line:
        _process.cache_clear()
        raise ToolchainError(f"node ended with status {node.wait()}")
    answer = json.loads(line)
    if answer["said"]:
        raise FaultError(answer["said"])
    return [
        np.fromfile(folder / f"out{n}", DTYPES[kind].numpy).reshape(shape)
        for n, ((_, kind, _), shape) in enumerate(
            zip(artifact.outputs, answer["shapes"], strict=True)
        )
    ]


class WasmProgram:
    """A graph as a bundle, which ``run`` runs; ``dims`` as of ``compile_artifact``."""

    def __init__(
        self,
        graph: rlx.Graph,
        params: Mapping[str, Any] | None = None,
        dims: Mapping[str, Any] | None = None,
    ) -> None:
        self.artifact = rlx.compile_artifact(graph, "wasm", params=params, dims=dims)
        self._folder = tempfile.TemporaryDirectory(prefix="rlx-wasm-")
        self.files = write_bundle(self.artifact, self._folder.name)

    def run(
        self, feeds: Mapping[str, Any], dims: Mapping[str, int] | None = None, threads: int = 1
    ) -> list[Array]:
        """The outputs."""
        return run_folder(Path(self._folder.name), self.artifact, feeds, dims, threads)
