"""Outputs of rlx-opt: IR as text or bytecode, or what a target emits."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from rlx._mlir import ir
from rlx.dialects.context import parse
from rlx.errors import IRError

__all__ = ["check_roundtrip", "joined", "print_ir", "result", "write"]


def print_ir(root: Any, args: Namespace, *, generic: bool = False) -> str:
    """The text of an op under the flags that say how IR is printed."""
    return root.operation.get_asm(
        enable_debug_info=args.mlir_print_debuginfo,
        print_generic_op_form=generic or args.mlir_print_op_generic,
        large_elements_limit=args.mlir_elide_elementsattrs_if_larger,
    )


def result(root: Any, args: Namespace) -> str | bytes:
    """The IR that is printed."""
    return _bytecode(root) if args.emit_bytecode else print_ir(root, args)


def _bytecode(root: Any) -> bytes:
    file = io.BytesIO()
    root.operation.write_bytecode(file)
    return file.getvalue()


def check_roundtrip(root: Any, context: ir.Context) -> None:
    """Raise IRError unless the text, and of a module the bytecode, parse back to the op."""
    text = str(root)
    if isinstance(root, ir.Module):
        found = {"text": parse(text, context), "bytecode": parse(_bytecode(root), context)}
    else:
        found = {"text": ir.Operation.parse(text, context=context)}
    for form, again in found.items():
        if str(again) != text:
            raise IRError(f"the {form} that is printed does not parse back to the same IR")


def joined(outputs: list[str | bytes], marker: str) -> bytes:
    """The file of all parts; what is no text has one part alone."""
    texts = [t.strip("\n") for t in outputs if isinstance(t, str)]
    if len(texts) < len(outputs):
        return b"".join(b for b in outputs if isinstance(b, bytes))
    return (f"\n{marker}\n".join(texts) + "\n").encode()


def write(data: bytes, output: str) -> None:
    """Write to a file, or to standard output for ``-``."""
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(output).write_bytes(data)
