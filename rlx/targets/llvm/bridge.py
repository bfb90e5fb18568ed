"""From the LLVM IR text that MLIR prints (LLVM 24) to the text that llvmlite parses (LLVM 22).

The two versions differ in floating-point constants, and in the name of an intrinsic. LLVM 24
prints the shortest decimal that reads back as the same value of its type, ``f0x`` with the bits
where it has no short decimal, and ``+inf``, ``+qnan``, ``-nan(0x5)``, ``+snan(0x1)``. LLVM 22
takes a decimal only where it is exact, and otherwise hexadecimal: ``0xH`` half, ``0xR`` bfloat, and
for float and double ``0x`` with the bits of the value as a double. The rewriting below is exact for
every bit pattern of the four types.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from rlx.errors import ToolchainError

__all__ = ["to_llvm22"]

# Mantissa bits and exponent bits of the IEEE 754 binary formats by LLVM's names.
_FORMATS = {"half": (10, 5), "bfloat": (7, 8), "float": (23, 8), "double": (52, 11)}

_CONSTANT = (
    r"(?<![\w.%@$-])"
    r"(?:[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+"
    r"|[-+]inf|[-+][qs]?nan(?:\(0x[0-9A-Fa-f]+\))?|f0x[0-9A-Fa-f]+)"
    r"(?![\w.])"
)
# Strings and comments are matched so that nothing inside them is; a constant has the type that
# stands last before it on its line, be it ``float 1.0`` or ``fmul float %x, 1.0``.
_TOKEN = re.compile(
    rf'"[^"]*"|;.*|(?<![\w.%@$-])(?P<type>half|bfloat|float|double)\b|(?P<constant>{_CONSTANT})'
)
# The common case, a number right after its type, done without reading the line token by token.
_PLAIN = re.compile(
    r"(?<![\w.%@$-])(half|bfloat|float|double) ([-+]?\d+\.\d+(?:e[-+]\d+)?)(?![\w.])"
)
_MAY_HOLD_ONE = re.compile(r"\d(?:\.\d|[eE][-+])|f0x|[-+](?:inf|[qs]?nan)")
# What each line has for which that is so. Text is full of digits, and a search for what begins
# with a certain character takes a tenth of the time.
_MARKS = [re.compile(mark) for mark in (r"\.\d", r"e[-+]", r"E[-+]", "f0x", "inf", "nan")]


_RENAMED = {"@llvm.aarch64.sve.fmmla.nxv4f32.nxv8bf16(": "@llvm.aarch64.sve.bfmmla("}
"""Intrinsics that LLVM 22 has under another name."""


def to_llvm22(text: str) -> str:
    """Rewrite the floating-point constants and intrinsics of LLVM 24's text for LLVM 22.

    Raises ToolchainError for a constant whose type is none of half, bfloat, float and double.
    """
    for name, before in _RENAMED.items():
        text = text.replace(name, before)
    out: list[str] = []
    done = 0
    found = {text.rfind("\n", 0, m.start()) + 1 for mark in _MARKS for m in mark.finditer(text)}
    for start in sorted(found):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        out += text[done:start], _rewrite_line(text[start:end])
        done = end
    return "".join([*out, text[done:]])


def _rewrite_line(line: str) -> str:
    if '"' not in line and ";" not in line:
        line = _PLAIN.sub(_plain, line)
        if not _MAY_HOLD_ONE.search(line):
            return line
    out, done, kind = [], 0, ""
    for token in _TOKEN.finditer(line):
        if token["type"]:
            kind = token["type"]
        elif token["constant"]:
            if not kind:
                raise ToolchainError(
                    f"LLVM IR holds the constant {token['constant']} of a type that is not half, "
                    f"bfloat, float or double: {line.strip()[:120]}"
                )
            out += line[done : token.start()], _hexadecimal(kind, token["constant"])
            done = token.end()
    return "".join([*out, line[done:]])


def _plain(found: re.Match[str]) -> str:
    return f"{found[1]} {_hexadecimal(found[1], found[2])}"


@lru_cache(maxsize=1 << 12)
def _hexadecimal(kind: str, constant: str) -> str:
    mantissa, exponent = _FORMATS[kind]
    bits = _bits(constant, mantissa, exponent)
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    return f"0x{_widen(bits) if kind == 'float' else bits:016X}"


def _bits(constant: str, mantissa: int, exponent: int) -> int:
    """The bit pattern of a constant in the format of so many mantissa and exponent bits."""
    if constant.startswith("f0x"):
        return int(constant[3:], 16)
    sign = (constant[0] == "-") << (mantissa + exponent)
    body = constant.lstrip("+-")
    infinity = ((1 << exponent) - 1) << mantissa
    if body == "inf":
        return sign | infinity
    if "nan" in body:
        payload = int(body[body.index("(") + 1 : -1], 16) if "(" in body else 0
        quiet = 0 if body.startswith("s") else 1 << (mantissa - 1)
        return sign | infinity | quiet | payload
    return sign | min(_round(*_ratio(body), mantissa, exponent), infinity)


def _ratio(decimal: str) -> tuple[int, int]:
    """A decimal such as ``1.5e-3`` as a ratio of integers."""
    digits, _, power = decimal.lower().partition("e")
    whole, _, part = digits.partition(".")
    scale = int(power or 0) - len(part)
    return int(whole + part) * 10 ** max(scale, 0), 10 ** max(-scale, 0)


def _round(above: int, below: int, mantissa: int, exponent: int) -> int:
    """The bits of a ratio, rounded to nearest, ties to even: once, where going by a double would
    round twice."""
    if not above:
        return 0
    lowest = 2 - (1 << (exponent - 1))
    power = above.bit_length() - below.bit_length()
    if below << max(power, 0) > above << max(-power, 0):
        power -= 1
    power = max(power, lowest)
    shift = mantissa - power
    below <<= max(-shift, 0)
    whole, rest = divmod(above << max(shift, 0), below)
    whole += 2 * rest + whole % 2 > below
    # The leading bit of a normal number adds one to the exponent field, and so does a carry out of
    # the mantissa.
    return ((power - lowest) << mantissa) + whole


def _widen(bits: int) -> int:
    """The bits of a float as those of the double of the same value, payload of a nan included."""
    if bits & 0x7F800000 == 0x7F800000:
        return (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return struct.unpack("<Q", struct.pack("<d", value))[0]
