"""The options of passes as text: ``simplify{disable-rules=fold,mul-one}``.

A pass with options is a frozen dataclass; its fields are the options, written with dashes. The text
of a pass with its defaults is its name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from rlx.errors import PassError, did_you_mean
from rlx.lowering.pass_base import Pass, RulePass

__all__ = ["make_pass", "option_names", "option_text", "without_rules"]

P = TypeVar("P", bound=Pass)

FORMS: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "tuple[str, ...]": (lambda text: tuple(t for t in text.split(",") if t), ",".join),
}
"""How the value of an option is read and written, by the annotation of its field."""


def option_names(cls: type[Pass]) -> list[str]:
    """The options of a pass."""
    return [f.name.replace("_", "-") for f in fields(cls)] if is_dataclass(cls) else []


def make_pass(cls: type[P], text: str = "") -> P:
    """A pass with the options of ``"a=1 b=x,y"``; PassError for one that it has not."""
    kinds = {f.name: str(f.type) for f in fields(cls)} if is_dataclass(cls) else {}
    given: dict[str, Any] = {}
    for item in text.split():
        option, equals, value = item.partition("=")
        field = option.replace("-", "_")
        if field not in kinds:
            known = option_names(cls)
            listed = f"there are {', '.join(known)}" if known else "it has none"
            raise PassError(
                f"pass {cls.name} has no option {option!r}{did_you_mean(option, known)}; {listed}"
            )
        if not equals:
            raise PassError(f"pass {cls.name}: option {option} needs a value: {option}=...")
        given[field] = FORMS[kinds[field]][0](value)
    made = cls(**given)
    _check_rules(made)
    return made


def _check_rules(p: Pass) -> None:
    if not isinstance(p, RulePass):
        return
    for rule in p.disable_rules:
        if rule not in p.rules:
            raise PassError(
                f"pass {p.name} has no rule {rule!r}{did_you_mean(rule, p.rules)}; "
                f"there are {', '.join(p.rules)}"
            )


def without_rules(p: Pass, names: Iterable[str]) -> Pass:
    """The pass with those of its rules turned off that ``names`` lists."""
    if not isinstance(p, RulePass):
        return p
    off = (n for n in names if n in p.rules and p.applies(n))
    return replace(p, disable_rules=(*p.disable_rules, *off))


def option_text(p: Pass) -> str:
    """The options that are not at their defaults, as ``make_pass`` reads them."""
    if not is_dataclass(p):
        return ""
    changed = [f for f in fields(p) if getattr(p, f.name) != f.default]
    return " ".join(
        f"{f.name.replace('_', '-')}={FORMS[str(f.type)][1](getattr(p, f.name))}" for f in changed
    )
