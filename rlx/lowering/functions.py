"""The functions of a module: by name, with counts of ops, attributes of arguments, names of
outputs."""

from __future__ import annotations

from collections import Counter

from rlx._mlir import ir
from rlx.dialects.bridge import place_of
from rlx.errors import IRError
from rlx.ir.mlir_text import OUTPUT

__all__ = ["argument_marks", "functions", "op_counts", "output_names"]


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name."""
    ops = [view.operation for view in module.body.operations]
    return {ir.StringAttr(o.attributes["sym_name"]).value: o for o in ops if o.name == "func.func"}


def op_counts(module: ir.Module) -> Counter[str]:
    """The ops of the functions of a module by name, without constants; a region is one op."""
    return Counter(
        view.operation.name
        for f in functions(module).values()
        for block in (f.regions[0].blocks if len(f.regions[0].blocks) else ())
        for view in block.operations
        if view.operation.name not in ("func.return", "mir.constant")
    )


def output_names(main: ir.Operation) -> list[str]:
    """The names of the outputs of @main, which are numbers where it gives none; IRError for text
    that names some of them, or two alike."""
    returned = list(main.regions[0].blocks[0].operations)[-1].operation.operands
    marks = ir.ArrayAttr(main.attributes["res_attrs"]) if "res_attrs" in main.attributes else ()
    given = [ir.DictAttr(mark) for mark in marks]
    found = [str(mark[OUTPUT]) for mark in given if OUTPUT in mark]
    texts = [m[OUTPUT] for m in given if OUTPUT in m and isinstance(m[OUTPUT], ir.StringAttr)]
    names = [ir.StringAttr(text).value for text in texts]
    if found and (len(set(names)) < len(returned) or not all(names)):
        raise IRError(
            f"{len(returned)} outputs have the names {', '.join(found)}; each has its own {OUTPUT},"
            " or none has one",
            place_of(main),
        )
    return names or [str(i) for i in range(len(returned))]


def argument_marks(f: ir.Operation) -> list[ir.Attribute]:
    """The attributes of a function's arguments; a function without arguments may have none."""
    return [*ir.ArrayAttr(f.attributes["arg_attrs"])] if "arg_attrs" in f.attributes else []
