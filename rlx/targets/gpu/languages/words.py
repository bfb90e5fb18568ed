"""The rows of languages whose buffers hold words of 32 bits alone.

Integers of 8 and 16 bits are held in an int, with their sign; in memory several are in a word, as
half floats are. What a kernel writes so is atomic: other work items write other parts of a word.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import c_like

__all__ = ["helpers", "language", "rows"]

_TYPES = {
    "i1": "bool", "i8": "int", "i16": "int", "i32": "int", "index": "int", "f16": "float",
    "f32": "float",
}  # fmt: skip
_UNSIGNED = {
    "i1": "uint({e})", "i8": "(uint({e}) & 0xffu)", "i16": "(uint({e}) & 0xffffu)",
    "i32": "uint({e})", "index": "uint({e})",
}  # fmt: skip
_SIGNED = {
    "i8": "int(({e}) << 24u) >> 24", "i16": "int(({e}) << 16u) >> 16", "i32": "int({e})",
    "index": "int({e})",
}  # fmt: skip

_FROM_HALF = """\
float rlx_from_half(uint h) {{
    uint sign = (h & 0x8000u) << 16u;
    uint size = h & 0x7fffu;
    if (size >= 0x7c00u) {{ return {f}(sign | 0x7f800000u | ((size & 0x3ffu) << 13u)); }}
    if (size < 0x400u) {{ return {f}(sign | {u}(float(size) * 5.9604644775390625e-8f)); }}
    return {f}(sign | ((size << 13u) + 0x38000000u));
}}"""

# The value was rounded before: no bit is lost here.
_TO_HALF = """\
uint rlx_to_half(float x) {{
    uint bits = {u}(x);
    uint sign = (bits >> 16u) & 0x8000u;
    uint size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {{ return sign | 0x7e00u; }}
    if (size >= 0x47800000u) {{ return sign | 0x7c00u; }}
    if (size < 0x38800000u) {{ return sign | uint({f}(size) * 16777216.0f); }}
    return sign | ((size - 0x38000000u) >> 13u);
}}"""

# Of both operands the bits say whether they are nan: compilers take the comparison for a maximum
# that leaves a nan out.
_EXTREME = """\
float rlx_{name}(float a, float b) {{
    if (({u}(a) & 0x7fffffffu) > 0x7f800000u) {{ return a; }}
    if (({u}(b) & 0x7fffffffu) > 0x7f800000u) {{ return b; }}
    if (a == b) {{ return {f}({u}(a) {equal} {u}(b)); }}
    if (a {order} b) {{ return a; }}
    return b;
}}"""


def language(
    name: str, header: str, f: str, rows: Mapping[str, str], helpers: Mapping[str, str]
) -> Language:
    """A language of such rows and helpers, where ``f`` makes a float of bits."""
    return Language(
        name=name,
        header=header,
        types=_TYPES,
        memory=dict.fromkeys(("i8", "i16", "f16"), "uint"),
        unsigned_types=dict.fromkeys(("i8", "i16", "i32", "index"), "uint"),
        unsigned=_UNSIGNED,
        signed=_SIGNED,
        literals=c_like.LITERALS,
        bits={"f32": f"{f}({{v}}u)", "f16": "rlx_from_half({v}u)"},
        rows=rows,
        helpers=helpers,
        fused=False,
    )


def helpers(f: str, u: str) -> dict[str, str]:
    """The helpers, where ``f`` makes a float of bits and ``u`` bits of a float."""
    return {
        "rlx_from_half": _FROM_HALF.format(f=f, u=u),
        "rlx_to_half": _TO_HALF.format(f=f, u=u),
        **c_like.extremes(_EXTREME, f=f, u=u),
    }


def rows(i: str, f: str, and_: str, or_: str) -> dict[str, str]:
    """The rows of C's operators and of small elements. ``i`` makes an int of a float's bits and
    ``f`` a float of an int's; ``and_`` and ``or_`` are the atomic functions."""
    return {
        **c_like.rows(lambda t, e: f"{t}({e})"),
        # The remainder of a negative number is not defined; its quotient is.
        "arith.remsi": "{a} - {a} / {b} * {b}",
        "arith.trunci": "u:{ua}",
        "arith.index_cast index": "u:{ua}",
        "arith.index_castui": "u:{ua}",
        "arith.uitofp i1": "{a} ? 1.0f : 0.0f",
        "arith.fptoui": "u:uint({a})",
        "arith.extf f16>f32": "{a}",
        "arith.truncf f32>f16": "{a}",
        "arith.bitcast i32>f32": f"{f}({{a}})",
        "arith.bitcast f32>i32": f"{i}({{a}})",
        "arith.cmpf.nan": f"({i}({{a}}) & 0x7fffffff) > 0x7f800000",
        "math.absf": "abs({a})",
        **_packed("i8", 8, "int({word} << (24u - {shift})) >> 24", "{ua}", and_, or_),
        **_packed("i16", 16, "int({word} << (16u - {shift})) >> 16", "{ua}", and_, or_),
        **_packed(
            "f16", 16, "rlx_from_half(({word} >> {shift}) & 0xffffu)", "rlx_to_half({a})", and_, or_
        ),
    }


def _packed(element: str, bits: int, load: str, value: str, and_: str, or_: str) -> dict[str, str]:
    """The rows for elements of which several are in a word."""
    at, part, mask = (2, 3, "0xffu") if bits == 8 else (1, 1, "0xffffu")
    word, shift = f"{{m}}[{{i}} >> {at}]", f"{bits}u * (uint({{i}}) & {part}u)"
    whole = load.format(word=word, shift=shift)
    return {
        f"memref.load.read {element}": whole,
        f"memref.load.read_write {element}": whole,
        f"memref.store.read_write {element}": f"{and_}({word}, ~({mask} << ({shift})));\n"
        f"{or_}({word}, {value} << ({shift}));",
    }
