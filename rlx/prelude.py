"""Every public name: those of ``rlx`` and those of the original system (see ``rlx.compat.names``).

    from rlx.prelude import *

``prelude.pyi``, for editors and type checkers, is written by ``tools/make_stubs.py``.
"""

from __future__ import annotations

from typing import Any

import rlx
from rlx.compat.names import NAMES

# The stub lists them: ruff cannot see what is computed.
__all__ = [*sorted({*NAMES, *rlx.NAMES})]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rlx.prelude' has no attribute {name!r}")
    return getattr(rlx, name)


def __dir__() -> list[str]:
    return __all__
