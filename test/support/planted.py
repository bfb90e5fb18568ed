"""Faults that tests plant."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rlx.lowering.passes import simplify
from rlx.lowering.rules import Rule

__all__ = ["plant"]


def plant(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    """Let simplify apply a rule before its own."""
    own = simplify._rules_for

    def rules_for(name: str) -> tuple[tuple[str, Any], ...]:
        first = [(rule.name, partial(simplify._algebra, rule))]
        return (*(first if name == f"mir.{rule.before.op}" else []), *own(name))

    monkeypatch.setattr(simplify, "_rules_for", rules_for)
