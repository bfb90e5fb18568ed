"""The base class of passes. Nothing here needs MLIR."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from rlx.base.frozen import frozen
from rlx.lowering.compilation import Compilation

if TYPE_CHECKING:
    from rlx._mlir import ir

__all__ = ["Pass", "RulePass"]


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
    """A pass made of rules. Each improves a module, which is right without it too."""

    rules: ClassVar[tuple[str, ...]]
    disable_rules: tuple[str, ...] = ()

    def applies(self, rule: str) -> bool:
        """Whether a rule is on."""
        return rule not in self.disable_rules
