"""What a pass is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from rlx._mlir import ir
from rlx.lowering.compilation import Compilation, Options
from rlx.records import frozen

__all__ = ["Compilation", "Options", "Pass", "RulePass", "argument_marks", "functions"]


class Pass(ABC):
    """A step of the pipeline on a module, in place or giving a new one.

    ``name`` is its command-line name; the docstring's first line is its help. ``verifies`` says
    that the module it returns has been verified already, as one that was parsed has. A pass with
    options is a frozen dataclass, whose fields they are (see ``pass_options``).
    """

    name: ClassVar[str]
    verifies: ClassVar[bool] = False

    @abstractmethod
    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        """Rewrite the module (in place, returning it) or return a new one.

        It is called with the module's context, and an unknown location, as the current ones.
        """


@frozen
class RulePass(Pass):
    """A pass made of rules, each of which improves a module and is right to leave out."""

    rules: ClassVar[tuple[str, ...]]
    disable_rules: tuple[str, ...] = ()

    def applies(self, rule: str) -> bool:
        """Whether a rule is on."""
        return rule not in self.disable_rules


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name."""
    ops = [view.operation for view in module.body.operations]
    return {ir.StringAttr(o.attributes["sym_name"]).value: o for o in ops if o.name == "func.func"}


def argument_marks(f: ir.Operation) -> list[ir.Attribute]:
    """The attributes of a function's arguments; a function without arguments may have none."""
    return [*ir.ArrayAttr(f.attributes["arg_attrs"])] if "arg_attrs" in f.attributes else []
