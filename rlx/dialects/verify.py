"""Verifiers: checks that raise, in the form in which MLIR calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx._mlir import ir
from rlx.errors import RlxError

__all__ = ["verifier"]


def verifier(check: Callable[[ir.Operation], None]) -> Callable[[Any], bool]:
    """``check`` as a verifier: the error that it raises becomes a diagnostic at the op."""

    def verify(view: Any) -> bool:
        op = view.operation
        try:
            check(op)
        except RlxError as e:
            op.location.emit_error(f"{op.name}: {e.message}")
        except (TypeError, ValueError) as e:  # the bindings': an attribute or type of another kind
            op.location.emit_error(f"{op.name}: {e}")
        else:
            return True
        return False

    return verify
