"""RLX: a compiler and runtime for tensor graphs.

    import rlx

    g = rlx.Graph("hello")
    g.set_outputs(g.input("x", [1, 4]) @ g.param("w", [4, 2]))
    f = rlx.Session("cpu").compile(g)

Names are loaded on first use, so that importing rlx is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rlx.control import cond as cond
    from rlx.control import fori as fori
    from rlx.control import scan as scan
    from rlx.control import while_loop as while_loop
    from rlx.errors import RlxError as RlxError
    from rlx.graph import Graph as Graph
    from rlx.inspect import inspect_pipeline as inspect_pipeline
    from rlx.interpreter import interpret as interpret
    from rlx.ops.value import Value as Value
    from rlx.runtime.backend import Backend as Backend
    from rlx.runtime.backend import devices as devices
    from rlx.runtime.backend import register_backend as register_backend
    from rlx.runtime.session import CompiledGraph as CompiledGraph
    from rlx.runtime.session import Session as Session
    from rlx.types import DType as DType
    from rlx.types import TensorType as TensorType

_NAMES = {
    "Backend": "rlx.runtime.backend",
    "CompiledGraph": "rlx.runtime.session",
    "DType": "rlx.types",
    "Graph": "rlx.graph",
    "RlxError": "rlx.errors",
    "Session": "rlx.runtime.session",
    "TensorType": "rlx.types",
    "Value": "rlx.ops.value",
    "cond": "rlx.control",
    "devices": "rlx.runtime.backend",
    "fori": "rlx.control",
    "inspect_pipeline": "rlx.inspect",
    "interpret": "rlx.interpreter",
    "register_backend": "rlx.runtime.backend",
    "scan": "rlx.control",
    "while_loop": "rlx.control",
}

__all__ = [
    "Backend",
    "CompiledGraph",
    "DType",
    "Graph",
    "RlxError",
    "Session",
    "TensorType",
    "Value",
    "__version__",
    "cond",
    "devices",
    "fori",
    "inspect_pipeline",
    "interpret",
    "register_backend",
    "scan",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        from rlx.types import DTYPES

        if name in DTYPES:
            return DTYPES[name]
        raise AttributeError(f"module 'rlx' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__]
