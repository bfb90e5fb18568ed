"""``rlx doctor``: what is missing here, and how to get it."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

import rlx
from rlx import knobs
from rlx.errors import RlxError

__all__ = ["add_arguments", "run"]


class Finding(NamedTuple):
    """Whether something is there, what it is, and how to get it if it is not. ``needed`` says that
    RLX does not work without it."""

    what: str
    there: bool
    text: str
    needed: bool = False


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The command takes none."""


def run(args: argparse.Namespace) -> int:
    """Print what is there and what is not; 1 if something is missing without which RLX does not
    work."""
    print(f"rlx {rlx.__version__}, Python {platform.python_version()}, {platform.platform()}")
    broken = False
    for check in (_native, _compiler, _extras, _triton, _c_compiler, _cache, _devices, _knobs):
        for what, there, text, needed in check():
            mark = "ok" if there else "MISSING" if needed else "-"
            print(f"{mark:8s}{what:12s} {text}")
            broken |= needed and not there
    return int(broken)


def _native() -> Iterator[Finding]:
    try:
        from rlx.runtime import _native as native

        yield Finding("runtime", True, f"{native.num_threads()} threads", True)
    except ImportError as e:
        yield Finding("runtime", False, f"{e}; build it with: pip install --editable .", True)
        return
    yield _try("cpu", lambda: rlx.full_name("cpu"), True)


def _compiler() -> Iterator[Finding]:
    for what, package in (("mlir", "torch-mlir"), ("llvm", "llvmlite")):
        hint = "graphs cannot be compiled, only artifacts run; pip install 'rlx[compile]'"
        yield _package(what, package, hint)


def _extras() -> Iterator[Finding]:
    yield _package("tokenizers", "tokenizers", "for text models; pip install 'rlx[models]'")
    yield _package("onnx", "onnx", "for ONNX models; pip install 'rlx[onnx]'")


def _triton() -> Iterator[Finding]:
    """Whether products and attention for cuda and rocm are Triton's."""
    from rlx.targets.triton import TESTED, installed, usable

    version = installed()
    if version is None:
        hint = f"for matrix units of cuda and rocm; pip install 'rlx[triton]' (version {TESTED})"
        yield Finding("triton", False, f"no package triton: {hint}")
    elif not usable(version):
        yield Finding("triton", False, f"triton {version} is not used: RLX calls version {TESTED}")
    else:
        off = knobs.triton.get() == "off"
        use = "RLX_TRITON turns it off" if off else "products and attention for cuda and rocm"
        yield Finding("triton", True, f"triton {version}: {use}")


def _package(what: str, package: str, hint: str) -> Finding:
    try:
        return Finding(what, True, f"{package} {importlib.metadata.version(package)}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(what, False, f"no package {package}: {hint}")


def _c_compiler() -> Iterator[Finding]:
    name = knobs.c_compiler.get() or "cc"
    found = shutil.which(name)
    hint = "it is needed for kernels in C alone; install one, or set RLX_CC"
    yield Finding("cc", found is not None, found or f"no C compiler {name}: {hint}")


def _cache() -> Iterator[Finding]:
    from rlx.runtime.cache import shared

    if not knobs.cache.get():
        yield Finding("cache", False, "RLX_CACHE turns it off: every process compiles anew")
        return
    folder = shared.folder()
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    writable = os.access(place, os.W_OK)
    hint = "" if writable else " cannot be written; set RLX_CACHE_DIR"
    yield Finding("cache", writable, f"{folder}{hint}")


def _devices() -> Iterator[Finding]:
    from rlx.runtime.devices.hardware import found_by_driver
    from rlx.targets.gpu.drivers import DRIVERS

    for api in DRIVERS:
        found = found_by_driver(api)
        assert found is not None
        kind = " (this machine's processor)" if found.software else ""
        yield Finding(api, found.found, found.why or f"driver finds {found.name}{kind}")


def _knobs() -> Iterator[Finding]:
    """What the environment sets: a value that cannot be read is found here."""
    for name, knob in knobs.KNOBS.items():
        if os.environ.get(name):
            yield _try(name, lambda knob=knob: repr(knob.get()), True)


def _try(what: str, look: Callable[[], str], needed: bool) -> Finding:
    try:
        return Finding(what, True, look(), needed)
    except RlxError as e:
        return Finding(what, False, e.message, needed)
