"""RLX as a platform of JAX: programs as they are, with ``JAX_PLATFORMS=rlx``.

JAX finds ``initialize`` by the entry point ``jax_plugins`` of the package. The functions that it
calls then are in rlx/runtime/native/pjrt.

programs.py    a module of StableHLO, compiled
lowerings.py   how primitives become StableHLO for the platform
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["initialize", "table"]

PLATFORM = "rlx"


def initialize() -> None:
    """Register the platform with JAX, if JAX was told to use it: whoever just has both packages
    installed sees nothing of it. Raises ToolchainError without MLIR."""
    jax: Any = importlib.import_module("jax")
    if PLATFORM not in (jax.config.jax_platforms or "").split(","):
        return
    from rlx.frontends.pjrt.lowerings import register_lowerings

    register_lowerings(PLATFORM)
    # Its dialect cannot be read, and on one device there is nothing to partition.
    jax.config.update("jax_use_shardy_partitioner", False)
    bridge: Any = importlib.import_module("jax._src.xla_bridge")
    bridge.register_plugin(PLATFORM, c_api=table())


def table() -> Any:
    """The functions of PJRT (``PJRT_Api``), in a capsule called ``pjrt_c_api``. Raises
    ToolchainError without MLIR, by whose StableHLO it says which versions are read."""
    import rlx
    from rlx._mlir import stablehlo
    from rlx.frontends.pjrt.programs import compiled
    from rlx.runtime import _native

    current, minimum = (
        [int(n) for n in version().split(".")]
        for version in (stablehlo().get_current_version, stablehlo().get_minimum_version)
    )
    return _native.pjrt_api(
        compile=compiled, version=f"rlx {rlx.__version__}", current=current, minimum=minimum
    )
