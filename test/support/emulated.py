"""Artifacts for CPUs that are not here, run by the C interface under QEMU's user mode.

``make drivers`` builds the runners. Each has two threads, so that what they hand to one another is
run as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.runtime.artifact import Artifact
from rlx.targets import features_of
from rlx.types import dtype, f64
from support.samples import Case

__all__ = ["EMULATED", "device_name", "run", "run_graph", "runs", "why_not"]

Array = np.ndarray[Any, Any]

EMULATED = {
    "cpu:aarch64": "max",
    "cpu:aarch64-sve256": "max,sve256=on",
    "cpu:riscv64": "rv64,v=true,vlen=128",
}
"""The targets, and what QEMU is asked to emulate."""


def why_not(target: str) -> str:
    """Why a target cannot run here; "" if it can."""
    missing = [name for name in (_qemu(target), _runner(target)) if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on PATH" if missing else ""


ENDS_QEMU_7 = {"cpu:riscv64": ("mir.cast", "mir.quantize")}
"""Ops of which f64 ends QEMU up to version 7: the narrowing of vectors of f64 to integers
(vfncvt.rtz.x.f.w) meets an assertion of its translator (decode_save_opc)."""


def runs(target: str, case: Case) -> bool:
    """Whether the emulator that is here takes what a case becomes."""
    ends = case.op.name in ENDS_QEMU_7.get(target, ()) and case.dtype is f64
    return not ends or int(_version(target).partition(".")[0]) > 7


@cache
def _version(target: str) -> str:
    said = subprocess.run([_qemu(target), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version (\S+)", said.stdout)
    assert found is not None, said.stdout
    return found[1]


def device_name(target: str) -> str:
    """What emulates a target here."""
    return f"QEMU {_version(target)} ({_qemu(target)} -cpu {_cpu(target)})"


def _cpu(target: str) -> str:
    """What QEMU is asked to emulate for a target."""
    return EMULATED[target.partition("+")[0]]


def run_graph(
    graph: rlx.Graph, target: str, feeds: Mapping[str, Array], **options: Any
) -> list[Array]:
    """What a graph's outputs are on a target."""
    return run(rlx.compile_artifact(graph, [target], **options), target, feeds)


def run(
    artifact: Artifact,
    target: str,
    feeds: Mapping[str, Array],
    cpu: str | None = None,
    threads: int = 2,
) -> list[Array]:
    """The outputs of an artifact; AssertionError with what the runner says if it fails."""
    with tempfile.TemporaryDirectory(prefix="rlx-emulated-") as folder:
        path = Path(folder)
        artifact.save(path / "model.rlx")
        given: list[Path] = []
        for n, (name, *_) in enumerate(artifact.inputs):
            given.append(path / f"in{n}")
            np.ascontiguousarray(feeds[name]).tofile(given[-1])
        outputs = [path / f"out{n}" for n in range(len(artifact.outputs))]
        command = [
            _qemu(target), "-cpu", cpu or _cpu(target),  # which looks for no program on PATH
            shutil.which(_runner(target)) or "", path / "model.rlx", *given, *outputs,
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True, text=True, check=False, timeout=900,
            env={**os.environ, "RLX_NUM_THREADS": str(threads)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [
            np.fromfile(file, dtype(kind).numpy).reshape(shape)
            for file, (_, kind, shape) in zip(outputs, artifact.outputs, strict=True)
        ]


def _arch(target: str) -> str:
    """The machine of a target, whatever instructions it may use beyond the first."""
    return features_of("cpu").preset(target.partition(":")[2]).arch


def _qemu(target: str) -> str:
    return f"qemu-{_arch(target)}"


def _runner(target: str) -> str:
    return f"run_model-{_arch(target)}"
