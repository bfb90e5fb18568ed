"""Scales by running a graph. The names are there; graphs are not quantised yet."""

from __future__ import annotations

from typing import Any, NoReturn

from rlx.errors import UnsupportedError
from rlx.ir.builders import located, public

__all__ = ["CalibrationRecord", "Calibrator", "QuantMap", "insert_q_dq"]


def _missing(what: str) -> NoReturn:
    raise UnsupportedError(
        f"{what}: quantisation is not there yet; graphs compute in the element types that they say"
    )


class _NotYet:
    """What raises UnsupportedError as it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _missing(type(self).__name__)


@public
class QuantMap(_NotYet):
    """Schemes by weight. UnsupportedError: it is not there yet."""


@public
class CalibrationRecord(_NotYet):
    """Scales by value. UnsupportedError: it is not there yet."""


@public
class Calibrator(_NotYet):
    """What finds scales by running a graph. UnsupportedError: it is not there yet."""


@located
def insert_q_dq(*args: Any, **kwargs: Any) -> NoReturn:
    """A graph that rounds to the scales of a record. UnsupportedError: it is not there yet."""
    _missing("insert_q_dq")
