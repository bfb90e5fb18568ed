"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy", "scipy", "torch", "onnxruntime", "openvino", "jax", "jaxlib", "iree-base-compiler",
    "torch-mlir", "llvmlite",
)  # fmt: skip


def describe(device: str = "") -> dict[str, Any]:
    """CPU, its features as RLX uses them, CPUs allowed, versions, the revision, and the device."""
    return {
        **({"device": _device(device)} if device else {}),
        "cpu": _cpu(),
        "features": _features(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {p: v for p in PACKAGES if (v := _version(p))},
        "revision": _revision(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((n.split(":")[1].strip() for n in lines if n.startswith("model name")), "")


def _features() -> list[str]:
    try:
        from rlx.targets.cpu.features import detect
    except ImportError:
        return []
    return sorted(detect().has)


def _device(name: str) -> str:
    from rlx.runtime.devices.available import full_name

    return full_name(name)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str:
    """The commit, with a mark if files differ from it; empty outside a checkout."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
