"""Dialects declared in memory: a table of ops as IRDL text, and their verifiers and traits.

The bindings have classes for this (``dialects.ext``), which also make an accessor for every field,
a builder and an adaptor of each op. Nothing here uses those, and for all ops of RLX they took 45 ms
of every process that compiles; the text takes 6.
"""

# The bindings have no types for a checker.
# pyright: reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from rlx import _mlir
from rlx._mlir import ir

__all__ = [
    "ANY", "FLOAT", "INDEX", "INTEGER", "INTEGER_TYPE", "MEMREF", "STRING", "TENSOR", "TYPE",
    "Field", "OpDeclaration", "load_dialect",
]  # fmt: skip

ANY = "any"
INDEX, INTEGER_TYPE, MEMREF, TENSOR = (
    f'base "!builtin.{name}"' for name in ("index", "integer", "memref", "tensor")
)
FLOAT, INTEGER, STRING, TYPE = (
    f'base "#builtin.{name}"' for name in ("float", "integer", "string", "type")
)
"""What a field may be, as IRDL says it."""


class Field(NamedTuple):
    """An operand, an attribute or a result: its name, what it may be, and whether it is
    ``optional`` or ``variadic``."""

    name: str
    of: str
    variadicity: str = ""


class OpDeclaration(NamedTuple):
    """An op of a dialect. ``verify`` is a verifier (``rlx.dialects.verify``), which sees a whole
    op, regions included; ``pure`` says that it reads and writes no memory, ``terminator`` that it
    ends a block."""

    name: str
    operands: Sequence[Field] = ()
    attributes: Sequence[Field] = ()
    results: Sequence[Field] = ()
    regions: Sequence[str] = ()
    verify: Callable[[Any], bool] | None = None
    pure: bool = True
    terminator: bool = False

    @property
    def text(self) -> str:
        """The declaration as an ``irdl.operation``."""
        fields = (tuple(f) for f in (self.operands, self.attributes, self.results))
        return _text(self.name, *fields, tuple(self.regions))


@cache  # every context declares the ops anew
def _text(
    name: str,
    operands: Sequence[Field],
    attributes: Sequence[Field],
    results: Sequence[Field],
    regions: Sequence[str],
) -> str:
    rows: list[str] = []

    def constrained(fields: Sequence[Field], form: str) -> list[str]:
        listed: list[str] = []
        for f in fields:
            # A value a field: fields that share one would have to be of one type.
            value = f"%{len(rows)}"
            rows.append(f"{value} = irdl.{f.of}")
            listed.append(form.format(f.name, f"{f.variadicity} {value}".lstrip()))
        return listed

    taken = constrained(operands, "{}: {}")
    held = constrained(attributes, '"{}" = {}')
    given = constrained(results, "{}: {}")
    for part, listed in (("operands", taken), ("results", given)):
        if listed:
            rows.append(f"irdl.{part}({', '.join(listed)})")
    if held:
        rows.append(f"irdl.attributes {{{', '.join(held)}}}")
    if regions:
        rows += [f"%{region} = irdl.region" for region in regions]
        rows.append(f"irdl.regions({', '.join(f'{region}: %{region}' for region in regions)})")
    return f"irdl.operation @{name} {{\n" + "\n".join(rows) + "\n}"


class _NoMemoryEffect(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        """None."""


class _AlwaysSpeculatable(ir.ConditionallySpeculatable):
    @staticmethod
    def get_speculatability(op: Any) -> Any:
        return ir.Speculatability.Speculatable


def load_dialect(name: str, ops: Sequence[OpDeclaration]) -> None:
    """Declare a dialect in the current context."""
    text = "\n".join(op.text for op in ops)
    module = _mlir.parse_module(f"irdl.dialect @{name} {{\n{text}\n}}", ir.Context.current)
    _mlir.load_irdl(module)
    for op in ops:
        full = f"{name}.{op.name}"
        if op.pure:
            _NoMemoryEffect.attach(full)
            _AlwaysSpeculatable.attach(full)
        if op.terminator:
            ir.IsTerminatorTrait.attach(full)
        if op.verify is not None:
            ir.DynamicOpTrait.attach(full, _trait(op.verify, bool(op.regions)))


@cache
def _trait(verify: Callable[[Any], bool], regions: bool) -> type:
    """What MLIR calls: before the ops of the regions are verified, or after."""
    found = (_passes, verify) if regions else (verify, _passes)
    names = ("verify_invariants", "verify_region_invariants")
    return type("Verified", (), dict(zip(names, map(staticmethod, found), strict=True)))


def _passes(op: Any) -> bool:
    return True
