"""In which element types a graph computes: for now in those that it says."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from rlx.errors import GraphError, UnsupportedError, did_you_mean

__all__ = ["Precision", "PrecisionPolicy", "check_policy", "check_precision"]

T = TypeVar("T", bound=StrEnum)


class Precision(StrEnum):
    """The element type that a session computes in. F32 is there: every op computes in its own."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"


class PrecisionPolicy(StrEnum):
    """Which ops compute in which element type. ALWAYS_F32 is there: none is changed."""

    ALWAYS_F32 = "always_f32"
    ALWAYS_F16 = "always_f16"
    AUTO_MIXED_CONSERVATIVE = "auto_mixed_conservative"
    AUTO_MIXED = "auto_mixed"
    AUTO_MIXED_BF16 = "auto_mixed_bf16"
    CUSTOM = "custom"


def check_precision(precision: Precision | str) -> Precision:
    """The precision of a name; GraphError for an unknown one, UnsupportedError for one that is not
    there yet."""
    return _check(Precision, precision, "precision", Precision.F32)


def check_policy(policy: PrecisionPolicy | str) -> PrecisionPolicy:
    """The policy of a name; errors as for ``check_precision``."""
    return _check(PrecisionPolicy, policy, "precision policy", PrecisionPolicy.ALWAYS_F32)


def _check(kinds: type[T], given: T | str, what: str, there: T) -> T:
    if given not in list(kinds):
        hint = did_you_mean(str(given), [k.value for k in kinds])
        raise GraphError(f"no {what} is called {given!r}{hint}; use {there.value!r}")
    if given != there:
        raise UnsupportedError(
            f"{what} {str(given)!r} is not there yet; use {there.value!r}, or cast in the graph"
        )
    return there
