"""Shading languages as tables of templates for the printer.

A row is a ``str.format`` template, found by the name of an op with what tells its forms apart. For
an op ``arith.cmpf`` with the predicate ``olt`` on f32 the printer takes the first row of

    arith.cmpf.olt f32>i1   arith.cmpf f32>i1   arith.cmpf.olt f32   arith.cmpf f32
    arith.cmpf.olt          arith.cmpf

Templates may use ``{a} {b} {c}``, the operands; ``{ua} {ub}``, the same as unsigned integers of 32
bits or more; ``{t}`` and ``{ut}``, the result's type and the unsigned one of its width. What a
template that starts with ``u:`` makes is unsigned, and is taken back to the signed type in which
integers are held. Rows that are no ops (``let``, ``for``, ``kernel``) are listed in ``STATEMENTS``.

What a language lacks has no row, and a kernel that needs it is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rlx.base.frozen import frozen

__all__ = ["STATEMENTS", "Language"]

STATEMENTS = frozenset(
    [
        # The result of a sum or product where it goes into another, if compilers reorder them.
        "exact",
        # A float of which compilers that know of no nan must not know the value.
        "opaque",
        # A value, a variable that is assigned later, and one with its first value.
        "let", "declare", "var", "assign",
        "for", "while", "unless", "if", "else", "end", "return",
        # An array of a work item's own or of a work group; the latter where it is declared outside
        # of the function ("shared.outside") or inside ("shared.inside").
        "private", "shared.inside", "shared.outside",
        # The function: how a buffer is called and declared, and what stands between two of them.
        "buffer", "binding.read", "binding.read_write", "between", "kernel",
        # What stands before and after a kernel and its memory, where something does.
        "before", "after",
    ]
)  # fmt: skip
"""The rows that the printer asks for beside those of ops."""


@frozen
class Language:
    """A shading language.

    ``types`` are its names for registers of MLIR's scalar types, ``memory`` those for elements of
    buffers where they differ. ``unsigned`` is the template, by type, that makes an unsigned integer
    of ``{e}``, and ``signed`` that back; ``unsigned_types`` names the unsigned types. ``literals``
    are templates of constants, of ``{v}`` as a decimal, and ``bits`` those of ``{v}`` as an
    integer with the bits of a float that has no literal. ``helpers`` are functions that rows call,
    printed where they are used: a helper's name starts with ``rlx_``. ``fused`` says that its
    multiply-add rounds once on every device, and ``rounded_quotients`` that its division of floats
    rounds right.
    """

    name: str
    header: str
    types: Mapping[str, str]
    unsigned_types: Mapping[str, str]
    unsigned: Mapping[str, str]
    signed: Mapping[str, str]
    literals: Mapping[str, str]
    bits: Mapping[str, str]
    rows: Mapping[str, str] = field(repr=False)
    helpers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    memory: Mapping[str, str] = field(default_factory=dict[str, str])
    fused: bool = True
    rounded_quotients: bool = False
