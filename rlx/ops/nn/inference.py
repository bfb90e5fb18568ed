"""Ops that are for inference alone."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from rlx.errors import UnsupportedError
from rlx.ir.op import Op

__all__ = ["ForInference"]


class ForInference(Op):
    """An op that has a slope, of which nobody has written the derivative: it is refused, and never
    zero."""

    instead: ClassVar[str]
    """What has a derivative."""

    def vjp(self, *cotangents: Any) -> NoReturn:
        raise self._refusal()

    def jvp(self, *tangents: Any) -> NoReturn:
        raise self._refusal()

    def _refusal(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.short} is for inference and has no derivative; train with {self.instead}"
        )
