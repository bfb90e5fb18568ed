"""Pass pipelines as text: ``builtin.module(simplify{disable-rules=fold},func.func(cse))``.

A pipeline is read as a list of steps. What is nested runs on the ops of that name, and two passes
in one nest are two steps: nothing but the order in which they meet several functions tells apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rlx.base.frozen import frozen
from rlx.tools.opt.flags import UsageError

__all__ = ["ROOT", "Step", "parse_pipeline", "pipeline_text"]

ROOT = "builtin.module"
_NAME = re.compile(r"[A-Za-z_][\w.$-]*")
_SPACE = re.compile(r"\s*")


@frozen
class Step:
    """A pass by name, its options as text, and the ops in which it is nested, outermost first."""

    name: str
    options: str = ""
    nest: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The pass as it is written in its nest."""
        return f"{self.name}{{{self.options}}}" if self.options else self.name


def parse_pipeline(text: str, root: str = ROOT) -> list[Step]:
    """The steps of a pipeline for an op called ``root``; UsageError says where it is malformed.

    ``root(a,b)``, ``any(a,b)`` and ``a,b`` are the same; another op's name is a nest in the root.
    """
    steps: list[Step] = []
    nest: list[str] = []
    top, item, at = 0, bool(text.strip()), 0
    while True:
        at = _skip(text, at)
        if not item:
            if at == len(text) and not nest:
                break
            at, item = _after_item(text, at, nest)
        elif text.startswith(")", at) and text[:at].rstrip().endswith("("):
            item = False  # an empty nest
        else:
            at, name = _name(text, at)
            top += not nest
            item = text.startswith("(", _skip(text, at))
            if item:
                nest.append(name)
                at = _skip(text, at) + 1
            else:
                at, options = _options(text, at)
                steps.append(Step(name, options, tuple(nest)))
    if top == 1 and all(s.nest and s.nest[0] in (root, "any") for s in steps):
        return [Step(s.name, s.options, s.nest[1:]) for s in steps]
    return steps


def _after_item(text: str, at: int, nest: list[str]) -> tuple[int, bool]:
    """Past a comma or a closing bracket; whether an item must follow."""
    if text.startswith(")", at) and nest:
        nest.pop()
        return at + 1, False
    if text.startswith(",", at):
        return at + 1, True
    raise _malformed(text, at, "',' or ')'" if nest else "','")


def _name(text: str, at: int) -> tuple[int, str]:
    found = _NAME.match(text, at)
    if found is None:
        raise _malformed(text, at, "the name of a pass")
    return found.end(), found[0]


def _options(text: str, at: int) -> tuple[int, str]:
    """The text between balanced braces, if there are any."""
    start = _skip(text, at)
    if not text.startswith("{", start):
        return at, ""
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return end + 1, " ".join(text[start + 1 : end].split())
    raise _malformed(text, len(text), "'}'")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _malformed(text: str, at: int, expected: str) -> UsageError:
    found = repr(text[at : at + 10]) if at < len(text) else "its end"
    return UsageError(f"pass pipeline, column {at + 1}: expected {expected}, found {found}")


def pipeline_text(steps: Sequence[Step], root: str = ROOT) -> str:
    """The inverse of ``parse_pipeline``."""
    return f"{root}({_joined(steps, 0)})"


def _joined(steps: Sequence[Step], depth: int) -> str:
    parts: list[str] = []
    for outer, group in groupby(steps, lambda s: s.nest[depth : depth + 1]):
        inner = list(group)
        parts += [f"{outer[0]}({_joined(inner, depth + 1)})"] if outer else [s.text for s in inner]
    return ",".join(parts)
