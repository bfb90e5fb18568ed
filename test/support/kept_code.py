"""What MLIR and LLVM make of kernels, kept between sessions, as ccache does for a C compiler.

RLX itself writes every kernel anew: a kernel that a change alters has another text, and is made
anew too. Only a text that was translated before, for the same machine by the same tools, is not
translated again; what was refused always is. ``RLX_TEST_CODE`` names the directory, as
``make test`` does; without it nothing is kept.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from support.raise_sites import PACKAGE

__all__ = ["install", "prune"]

FOLDER = os.environ.get("RLX_TEST_CODE", "")
LIMIT = 1 << 30
"""Bytes that are kept; of more, what was used longest ago goes."""

_Linked = Callable[[str], bool] | None

_SOURCES = ("_mlir.py", "targets/llvm/allow.py", "targets/llvm/machine.py")
"""What the work depends on, beside a kernel and the packages."""


def _tools() -> bytes:
    packages = [version(name) for name in ("torch-mlir", "llvmlite")]
    return repr(packages).encode() + b"".join((PACKAGE / s).read_bytes() for s in _SOURCES)


def install() -> None:
    """Look up what MLIR and LLVM would do, from now on in this process."""
    if not FOLDER:
        return
    from rlx import _mlir
    from rlx.targets.llvm import machine

    folder, tools = Path(FOLDER), _tools()
    folder.mkdir(parents=True, exist_ok=True)
    translate, emit = _mlir.text_to_llvm_ir, machine._emit

    def kept(what: str, make: Callable[[], bytes]) -> bytes:
        file = folder / sha256(tools + what.encode()).hexdigest()
        with suppress(OSError):
            data = zlib.decompress(file.read_bytes())
            os.utime(file)
            return data
        data = make()
        own = file.with_name(f"{file.name}.{os.getpid()}.{time.monotonic_ns()}")
        own.write_bytes(zlib.compress(data, 1))
        own.replace(file)
        return data

    def kept_translation(text: str, pipelines: list[_mlir.Pipeline], ctx: _mlir.ir.Context) -> str:
        what = f"{[str(p) for p in pipelines]}\n{text}"
        return kept(what, lambda: translate(text, pipelines, ctx).encode()).decode()

    def kept_code(
        text: str, target: machine.Machine, opt: int, *, as_object: bool, linked: _Linked = None
    ) -> bytes:
        # What a linker adds is in the text as a call, and what it lacks is refused of the object.
        what = f"{target} {opt} {as_object} {linked is not None}\n{text}"
        return kept(what, lambda: emit(text, target, opt, as_object=as_object, linked=linked))

    _mlir.text_to_llvm_ir, machine._emit = kept_translation, kept_code


def prune() -> None:
    """Take away what is too much."""
    if not FOLDER:
        return
    found: list[tuple[float, int, Path]] = []
    for file in Path(FOLDER).glob("*"):  # none, where no session came to make the folder
        with suppress(FileNotFoundError):  # another session takes files away too
            s = file.stat()
            found.append((s.st_mtime, s.st_size, file))
    left = sum(size for _, size, _ in found) - LIMIT
    for _, size, file in sorted(found):
        if left <= 0:
            break
        file.unlink(missing_ok=True)
        left -= size
