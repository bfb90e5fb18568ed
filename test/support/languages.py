"""The tables of shading languages, found where they lie."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from rlx.targets.gpu import languages
from rlx.targets.gpu.language import Language

__all__ = ["LANGUAGES"]


def _found() -> dict[str, Language]:
    modules = [
        import_module(f"{languages.__name__}.{m.name}")
        for m in pkgutil.iter_modules(languages.__path__)
    ]
    named = [(name, getattr(m, name)) for m in modules for name in m.__all__]
    return {name.lower(): table for name, table in named if isinstance(table, Language)}


LANGUAGES = _found()
"""By their names in lower case: "glsl"."""
