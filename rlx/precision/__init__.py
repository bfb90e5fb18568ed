"""In which element types a graph computes: precisions, and policies by class of op.

A policy is a rewrite of the graph (``rlx.precision.rewrite``): every cast that it makes is an op,
and every device runs the same graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from rlx.base.frozen import frozen
from rlx.errors import DTypeError, GraphError, did_you_mean
from rlx.types import DType, bf16, dtype, f16, f32

__all__ = [
    "OpClass",
    "Precision",
    "PrecisionPolicy",
    "Types",
    "check_policy",
    "check_precision",
    "types_of",
]

T = TypeVar("T", bound=StrEnum)


class Precision(StrEnum):
    """In what a session multiplies.

    F32: every op computes in its own type. BF16 and F16: the f32 operands of products and
    attention are rounded to 16 bits; products sum in f32 and are not rounded, and every other op
    computes in its own type. HIGH: an f32 product is the sum of three products of bf16 on a CPU
    with AMX, where that is faster, and f32 elsewhere. Q8: rows that meet a weight in packed blocks
    are rounded to 8 bits, in blocks of 32 (``quantize_rows``); every other op computes in its own
    type.
    """

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    HIGH = "high"
    Q8 = "q8"


class PrecisionPolicy(StrEnum):
    """In which element type each class of ops computes (``POLICIES``). Only f32 is ever changed."""

    ALWAYS_F32 = "always_f32"
    ALWAYS_F16 = "always_f16"
    AUTO_MIXED_CONSERVATIVE = "auto_mixed_conservative"
    AUTO_MIXED = "auto_mixed"
    AUTO_MIXED_BF16 = "auto_mixed_bf16"
    CUSTOM = "custom"


class OpClass(StrEnum):
    """The classes of ops that a policy tells apart; see ``rlx.precision.classes``."""

    COMPUTE = "compute"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"


@frozen
class Types:
    """The element type for each class of ops that is declared f32; None leaves it as it is.

    ``keeps_sums`` says that a product gives the sums that it makes, f32, and does not round them
    to the type of its operands. ``splits`` says that products alone are changed, and each becomes
    three, of operands that are sums of two numbers of the type ``compute``. ``rounds_rows`` says
    that rows which meet a weight in packed blocks are rounded to 8 bits.
    """

    compute: DType | None = None
    reduction: DType | None = None
    elementwise: DType | None = None
    movement: DType | None = None
    keeps_sums: bool = False
    splits: bool = False
    rounds_rows: bool = False

    def of(self, kind: OpClass) -> DType | None:
        """The element type of a class."""
        return getattr(self, kind.value)

    @property
    def changes(self) -> bool:
        """Whether any op is changed."""
        return self.rounds_rows or any(self.of(kind) is not None for kind in OpClass)

    def __str__(self) -> str:
        said = [f"{kind}: {self.of(kind) or 'as declared'}" for kind in OpClass]
        said += ["products keep f32 sums"] * self.keeps_sums
        said += ["rows of 8 bits meet packed weights"] * self.rounds_rows
        return ", ".join([*said, *["products are three of a split operand"] * self.splits])


POLICIES = {
    PrecisionPolicy.ALWAYS_F32: Types(),
    PrecisionPolicy.ALWAYS_F16: Types(f16, f16, f16, f16),
    PrecisionPolicy.AUTO_MIXED_CONSERVATIVE: Types(f16, None, f16, f16),
    PrecisionPolicy.AUTO_MIXED: Types(f16, f16, f16, f16),
    PrecisionPolicy.AUTO_MIXED_BF16: Types(bf16, bf16, bf16, bf16),
}
"""The named policies. ALWAYS_F16 and AUTO_MIXED are the same here: every reduction of 16-bit floats
sums in f32 and rounds once."""

PRECISIONS = {
    Precision.F32: Types(),
    Precision.F16: Types(f16, keeps_sums=True),
    Precision.BF16: Types(bf16, keeps_sums=True),
    Precision.Q8: Types(rounds_rows=True),
}

SPLIT = Types(bf16, keeps_sums=True, splits=True)
"""HIGH where it is faster."""


def check_precision(precision: Precision | str) -> Precision:
    """The precision of a name; GraphError for an unknown one."""
    return _check(Precision, precision, "precision")


def check_policy(
    policy: PrecisionPolicy | str | Mapping[str, str],
) -> tuple[PrecisionPolicy, Types]:
    """A policy and its types: one by name, or one that maps classes of ops to "f32", "f16" or
    "bf16" (f32 for those that are left out). GraphError for an unknown name or class, DTypeError
    for another type."""
    if isinstance(policy, Mapping):
        return PrecisionPolicy.CUSTOM, _custom(policy)
    name = _check(PrecisionPolicy, policy, "precision policy")
    if name is PrecisionPolicy.CUSTOM:
        listed = ", ".join(k.value for k in OpClass)
        raise GraphError(
            f"the policy 'custom' is given as a mapping of {listed} to element types, such as"
            ' {"compute": "bf16"}'
        )
    return name, POLICIES[name]


def types_of(precision: Precision, has: Collection[str] = ()) -> Types:
    """The element types by which a precision computes on a device that ``has`` some instructions,
    by the names of CPUID."""
    if precision is Precision.HIGH:
        return SPLIT if {"amx-tile", "amx-bf16"} <= set(has) else Types()
    return PRECISIONS[precision]


def _custom(given: Mapping[str, str]) -> Types:
    types: dict[str, DType | None] = {}
    known = [k.value for k in OpClass]
    for kind, wanted in given.items():
        if kind not in known:
            hint = did_you_mean(str(kind), known)
            raise GraphError(f"no class of ops is called {kind!r}{hint}; use {', '.join(known)}")
        dt = dtype(wanted)
        if dt not in (f32, f16, bf16):
            raise DTypeError(f"a policy computes in f32, f16 or bf16, found {dt} for {kind!r}")
        types[kind] = None if dt is f32 else dt
    return replace(Types(), **types)


_SCALED = ("int8", "i8", "uint8", "u8", "int4", "i4", "fp8", "f8")
"""Types that are of use with scales alone, of which a policy has none."""

_SCALED_HINT = (
    ", since a scale belongs to each tensor: rlx.quant.quantize_graph(graph, scheme='int8') makes"
    " them, and docs/quantization.md has the other ways"
)


def _check(kinds: type[T], given: T | str, what: str) -> T:
    names = [k.value for k in kinds]
    if given not in names:
        hint = _SCALED_HINT if str(given).lower() in _SCALED else did_you_mean(str(given), names)
        raise GraphError(f"no {what} is called {given!r}{hint}; use {', '.join(map(repr, names))}")
    return kinds(given)
