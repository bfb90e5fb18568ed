"""The dumps of IR before and after passes (--mlir-print-ir-...)."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlx._mlir import ir
from rlx.tools.opt.output import print_ir
from rlx.tools.opt.steps import Prepared, Root

__all__ = ["Dumps"]


class Dumps:
    """Prints IR around passes, as the flags ask for."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.before_passes = _names(args.mlir_print_ir_before)
        self.after_passes = _names(args.mlir_print_ir_after)
        self.files = 0

    def before(self, p: Prepared, root: Root) -> str | None:
        """Dump before a pass; returns what ``after`` needs to tell a change."""
        args = self.args
        if args.mlir_print_ir_before_all or p.name in self.before_passes:
            self._dump(f"Before {p.name}", p, root)
        watched = args.mlir_print_ir_after_change and self._wants_after(p)
        return root.operation.get_asm(enable_debug_info=True) if watched else None

    def after(self, p: Prepared, root: Root, was: str | None) -> None:
        """Dump after a pass that did well."""
        if not self._wants_after(p) or self.args.mlir_print_ir_after_failure:
            return
        if was is None or root.operation.get_asm(enable_debug_info=True) != was:
            self._dump(f"After {p.name}", p, root)

    def failed(self, p: Prepared, root: Root) -> None:
        """Dump what a failing pass leaves. It may be invalid, so it is printed generically."""
        if self._wants_after(p):
            self._dump(f"After {p.name} Failed", p, root, generic=True)

    def _wants_after(self, p: Prepared) -> bool:
        every = self.args.mlir_print_ir_after_all or self.args.mlir_print_ir_after_failure
        return every or p.name in self.after_passes

    def _dump(self, title: str, p: Prepared, root: Root, *, generic: bool = False) -> None:
        nest = p.steps[0].nest if p.steps else ()
        for op in _nested(root.operation, nest):
            scope = f" ({op.name!r} operation: @{_symbol(op)})" if nest else ""
            shown = root.operation if self.args.mlir_print_ir_module_scope else op
            header = f"// -----// IR Dump {title}{scope} //----- //"
            text = f"{header}\n{print_ir(shown, self.args, generic=generic)}\n"
            if self.args.mlir_print_ir_tree_dir is None:
                print(text, file=sys.stderr)
            else:
                self._write(p.name, op, text)

    def _write(self, name: str, op: ir.Operation, text: str) -> None:
        """Into a folder for each op on the way to the one that is shown."""
        folders: list[str] = []
        inner: ir.Operation | None = op
        while inner is not None:
            folders.append(re.sub(r"[^\w-]", "_", f"{inner.name}_{_symbol(inner)}"))
            inner = inner.parent.operation if inner.parent else None
        folder = Path(self.args.mlir_print_ir_tree_dir, *reversed(folders))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.files}_{name}.mlir"
        file.write_text(text, encoding="utf-8")
        self.files += 1


def _names(lists: list[str]) -> set[str]:
    return {name.strip() for text in lists for name in text.split(",")}


def _nested(op: ir.Operation, nest: Sequence[str]) -> Iterator[ir.Operation]:
    """The ops on which a pass in ``nest`` runs; of ``any`` those that stand by themselves."""
    if not nest:
        yield op
        return
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                if inner.name == nest[0] or (nest[0] == "any" and "sym_name" in inner.attributes):
                    yield from _nested(inner, nest[1:])


def _symbol(op: ir.Operation) -> str:
    if "sym_name" not in op.attributes:
        return "no-symbol-name"
    return ir.StringAttr(op.attributes["sym_name"]).value
