"""The rows that the languages with C's operators share.

Signed arithmetic is done on unsigned integers, whose overflow is defined, and narrow integers on
those of 32 bits, since two ``ushort`` would be multiplied as ``int``. Indices never overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["LITERALS", "OPERATORS", "extremes", "long_literals", "rows"]

Cast = Callable[[str, str], str]

OPERATORS: Mapping[str, str] = {
    "arith.addi index": "{a} + {b}",
    "arith.subi index": "{a} - {b}",
    "arith.muli index": "{a} * {b}",
    "arith.addi": "u:{ua} + {ub}",
    "arith.subi": "u:{ua} - {ub}",
    "arith.muli": "u:{ua} * {ub}",
    "arith.divsi": "{a} / {b}",
    "arith.remsi": "{a} % {b}",
    "arith.divui": "u:{ua} / {ub}",
    "arith.remui": "u:{ua} % {ub}",
    "arith.andi i1": "{a} && {b}",
    "arith.ori i1": "{a} || {b}",
    "arith.xori i1": "{a} != {b}",
    "arith.andi": "u:{ua} & {ub}",
    "arith.ori": "u:{ua} | {ub}",
    "arith.xori": "u:{ua} ^ {ub}",
    "arith.shli": "u:{ua} << {ub}",
    "arith.shrui": "u:{ua} >> {ub}",
    "arith.shrsi": "{a} >> {ub}",
    "arith.minui i1": "{a} && {b}",
    "arith.maxui i1": "{a} || {b}",
    "arith.cmpi.eq": "{a} == {b}",
    "arith.cmpi.ne": "{a} != {b}",
    "arith.cmpi.slt": "{a} < {b}",
    "arith.cmpi.sle": "{a} <= {b}",
    "arith.cmpi.sgt": "{a} > {b}",
    "arith.cmpi.sge": "{a} >= {b}",
    "arith.cmpi.ult": "{ua} < {ub}",
    "arith.cmpi.ule": "{ua} <= {ub}",
    "arith.cmpi.ugt": "{ua} > {ub}",
    "arith.cmpi.uge": "{ua} >= {ub}",
    "arith.addf": "{a} + {b}",
    "arith.subf": "{a} - {b}",
    "arith.mulf": "{a} * {b}",
    "arith.divf": "{a} / {b}",
    "arith.negf": "-{a}",
    "arith.cmpf.oeq": "{a} == {b}",
    "arith.cmpf.ogt": "{a} > {b}",
    "arith.cmpf.oge": "{a} >= {b}",
    "arith.cmpf.olt": "{a} < {b}",
    "arith.cmpf.ole": "{a} <= {b}",
    "arith.cmpf.one": "{a} < {b} || {a} > {b}",
    "arith.cmpf.ord": "{a} == {a} && {b} == {b}",
    "arith.cmpf.ueq": "!({a} < {b} || {a} > {b})",
    "arith.cmpf.ugt": "!({a} <= {b})",
    "arith.cmpf.uge": "!({a} < {b})",
    "arith.cmpf.ult": "!({a} >= {b})",
    "arith.cmpf.ule": "!({a} > {b})",
    "arith.cmpf.une": "{a} != {b}",
    "arith.cmpf.uno": "{a} != {a} || {b} != {b}",
    "arith.cmpf.nan": "{a} != {a}",
    "math.sqrt": "sqrt({a})",
    "math.floor": "floor({a})",
    "math.ceil": "ceil({a})",
    "math.fma": "fma({a}, {b}, {c})",
    "math.absf": "fabs({a})",
    "math.roundeven": "rint({a})",
    "arith.maximumf f32": "rlx_maximum({a}, {b})",
    "arith.minimumf f32": "rlx_minimum({a}, {b})",
    "memref.load": "{m}[{i}]",
    "memref.store": "{m}[{i}] = {a};",
    "assign": "{n} = {e};",
    "if": "if ({a}) {{",
    "else": "}} else {{",
    "end": "}}",
    "while": "while (true) {{",
    "unless": "if (!{a}) {{ break; }}",
    "return": "return;",
}
"""What reads alike in all of them."""


LITERALS: Mapping[str, str] = {
    "true": "true", "false": "false", "i8": "{v}", "i16": "{v}", "i32": "{v}", "i8 least": "{v}",
    "i16 least": "{v}", "i32 least": "-2147483647 - 1", "index": "{v}", "f32": "{v}f",
}  # fmt: skip
"""Constants of up to 32 bits."""


def long_literals(suffix: str) -> dict[str, str]:
    """Constants of i64, which end in ``suffix``."""
    return {"i64": f"{{v}}{suffix}", "i64 least": f"-9223372036854775807{suffix} - 1"}


def extremes(text: str, suffix: str = "", **names: str) -> dict[str, str]:
    """The helpers ``rlx_maximum`` and ``rlx_minimum`` of a float type by one template: ``order``
    compares, and ``equal`` makes the bits of the result of the bits of two zeros."""
    return {
        f"rlx_{name}{suffix}": text.format(name=name + suffix, equal=equal, order=order, **names)
        for name, equal, order in (("maximum", "&", ">"), ("minimum", "|", "<"))
    }


def rows(cast: Cast) -> dict[str, str]:
    """The operators, and with ``cast(type, expression)`` what names types."""
    return {
        **OPERATORS,
        "arith.select": "{a} ? {b} : {c}",
        "arith.minsi": "{a} < {b} ? {a} : {b}",
        "arith.maxsi": "{a} > {b} ? {a} : {b}",
        "arith.minui": "{ua} < {ub} ? {a} : {b}",
        "arith.maxui": "{ua} > {ub} ? {a} : {b}",
        "arith.extui i1": "{a} ? 1 : 0",
        "arith.extsi i1": "{a} ? -1 : 0",
        "arith.uitofp i1": "{a} ? 1 : 0",
        "arith.extui": cast("{t}", "{ua}"),
        "arith.extsi": cast("{t}", "{a}"),
        "arith.trunci i1": "({ua} & 1) != 0",
        "arith.trunci": cast("{t}", "{a}"),
        "arith.index_cast": cast("{t}", "{a}"),
        "arith.index_castui": cast("{t}", "{ua}"),
        "arith.sitofp": cast("{t}", "{a}"),
        "arith.uitofp": cast("{t}", "{ua}"),
        "arith.fptosi": cast("{t}", "{a}"),
        "arith.fptoui": cast("{t}", cast("{ut}", "{a}")),
        "arith.extf": cast("{t}", "{a}"),
        "arith.truncf": cast("{t}", "{a}"),
        "let": "const {t} {n} = {e};",
        "declare": "{t} {n};",
        "var": "{t} {n} = {e};",
        "for": "for ({t} {n} = {lo}; {n} < {hi}; {n} += {step}) {{",
        "private": "{t} {n}[{count}];",
    }
