"""Inputs of rlx-opt: a file or standard input, as text or bytecode, whole or in parts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rlx.errors import IRError
from rlx.text.files import decode

__all__ = ["STDIN", "check_bytecode", "read_input", "split_parts"]

BYTECODE = b"ML\xefR"
"""How a file of MLIR bytecode begins."""

STDIN = "<stdin>"

BYTECODE_SECONDS = 60
"""How long reading bytecode may take; a gigabyte takes a few seconds."""


def read_input(path: str) -> str | bytes:
    """The text of a file, or of standard input for ``-``, or its bytes if they are bytecode.

    Raises IRError for what is neither, OSError for what cannot be read.
    """
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    if data.startswith(BYTECODE):
        return data
    return decode(data, STDIN if path == "-" else path)


_PROBE = """
import sys
from rlx.dialects.context import make_context
with make_context() as context:
    context.allow_unregistered_dialects = True
    from rlx._mlir import ir
    str(ir.Module.parse(sys.stdin.buffer.read(), context))
"""


def check_bytecode(data: bytes) -> None:
    """Read bytecode in a process of its own first, since MLIR's reader trusts its input: damaged
    bytecode may crash it, or keep it busy for ever. Raises IRError if it does, or refuses."""
    import subprocess  # takes a while to load, and bytecode is rare

    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            input=data, capture_output=True, check=False, timeout=BYTECODE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise IRError(f"the bytecode is damaged: not read in {BYTECODE_SECONDS} s") from None
    if done.returncode:
        lines = [x for x in done.stderr.decode(errors="replace").splitlines() if "error:" in x]
        reason = lines[0].partition("error:")[2].strip() if lines else "it crashes MLIR's reader"
        raise IRError(f"the bytecode is damaged: {reason}")


def split_parts(text: str, marker: str, name: str) -> list[str]:
    """The parts between lines that start with ``marker``, each after empty lines so that its own
    keep their numbers. A line that nearly is a marker draws a warning."""
    parts: list[str] = []
    line = 0
    for part in re.split(rf"^[ \t]*{re.escape(marker)}.*$", text, flags=re.MULTILINE):
        parts.append("\n" * line + part)
        _warn_of_near_misses(part, line, marker, name)
        line += part.count("\n")
    return parts


def _warn_of_near_misses(part: str, before: int, marker: str, name: str) -> None:
    """As mlir-opt: what starts like the marker and lacks its last two characters."""
    start = marker[:-2].replace(" ", "")
    for number, line in enumerate(part.split("\n"), 1 + before):
        if len(start) > 2 and line.replace(" ", "").startswith(start):
            where = f"{name}:{number}"
            print(f"{where}: warning: near miss with file split marker {marker!r}", file=sys.stderr)
            print(f"    {line}", file=sys.stderr)
