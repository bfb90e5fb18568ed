"""A guard for MLIR's parser and printer: text that overflows their stack, or takes all memory."""

from __future__ import annotations

import re

from rlx.errors import IRError

__all__ = ["check_nesting"]

NESTING = 256
"""Depth that text may have; IR of ours stays below ten."""

RESULTS = 1000
"""Results that an op of text may have; MLIR makes room for as many as a number says."""

_TOKENS = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->'
    r"|^[ \t]*(?P<defined>[#!][A-Za-z_][\w.$]*)\s*=|(?P<alias>[#!][A-Za-z_][\w.$]*)"
    r"|(?P<open>[(\[{<])|(?P<close>[)\]}>])|(?P<minus>-(?:\s*-)+)"
    r"|%[\w.$-]+\s*[#:]\s*(?P<results>\d+)",
    re.MULTILINE,
)


def check_nesting(text: str) -> None:
    """Refuse text that nests deeper than ``NESTING``: in brackets, through the definitions of
    aliases, or by signs before an affine expression; and numbers of results above ``RESULTS``.
    IRError names the line."""
    depth = 0
    aliases: dict[str, int] = {}
    name = ""  # of the alias whose definition this is
    for m in _TOKENS.finditer(text):
        found = depth
        if m["open"]:
            depth += 1
            found = depth
        elif m["close"]:
            depth = max(0, depth - 1)
        elif m["defined"]:
            name = m["defined"]
            aliases[name] = 0
        elif m["alias"]:
            found += aliases.get(m["alias"], 0)
        elif m["minus"]:
            found += m["minus"].count("-")
        elif m["results"] and int(m["results"][:9]) > RESULTS:
            line = text.count("\n", 0, m.start()) + 1
            raise IRError(f"{m[0]}: an op has at most {RESULTS} results", ("-", line))
        if name:
            aliases[name] = max(aliases[name], found)
        if found > NESTING:
            line = text.count("\n", 0, m.start()) + 1
            raise IRError(
                f"the text nests deeper than {NESTING} here; no IR of RLX does", ("-", line)
            )
