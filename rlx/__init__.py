"""RLX: a compiler and runtime for tensor graphs.

    import rlx

    g = rlx.Graph("hello")
    g.set_outputs(g.input("x", [1, 4]) @ g.param("w", [4, 2]))
    f = rlx.Session("cpu").compile(g)

Names are loaded on first use, so that importing rlx is cheap. ``__init__.pyi``, for editors and
type checkers, is written by ``tools/make_stubs.py``.
"""

from __future__ import annotations

import importlib
import time
from importlib.util import find_spec
from typing import Any

__version__ = "0.1.0"

LOADED_NS = time.time_ns()
"""When RLX was loaded: the compile cache trusts no source file that has changed since."""

NAMES = {
    name: module
    for module, names in {
        "rlx.autodiff": (
            "hessian", "hvp", "jacfwd", "jacrev", "jvp", "stop_gradient", "vjp",
        ),
        "rlx.base.clock": ("Tick", "time_ns"),
        "rlx.base.mesh": ("Mesh",),
        "rlx.compiler.aot": ("compile_artifact",),
        "rlx.ops.control.builders": (
            "checkpoint", "checkpoint_name", "cond", "fori", "scan", "while_loop",
        ),
        "rlx.custom": ("custom_fn", "custom_op"),
        "rlx.distributed.sharding": ("shard",),
        "rlx.distributed.spec": ("P",),
        "rlx.errors": ("RlxError",),
        "rlx.frontends.onnx": ("from_onnx",),
        "rlx.frontends.onnx.export": ("to_onnx",),
        "rlx.frontends.stablehlo": ("from_jax", "from_stablehlo"),
        "rlx.functions": ("grad", "jit", "value_and_grad", "vmap"),
        "rlx.frontends.torch": ("from_torch",),
        "rlx.ir.dim": ("Dim",),
        "rlx.ir.graph": ("Graph",),
        "rlx.inspect": (
            "inspect_graph", "inspect_hir", "inspect_lir", "inspect_mir", "inspect_pipeline",
        ),
        "rlx.ir.interpreter": ("interpret",),
        "rlx.compiler.graph_module": ("GraphModule",),
        "rlx.ir.op": ("Op", "attr", "operand", "optional"),
        "rlx.ir.foreign_kernel": ("CKernel", "MlirKernel", "PythonKernel"),
        "rlx.ir.value": ("Value",),
        "rlx.llm.model": ("LLM",),
        "rlx.runtime.artifact": ("Artifact",),
        "rlx.runtime.backend": ("Backend", "devices", "register_backend"),
        "rlx.runtime.devices.graph_devices": ("GraphDevices",),
        "rlx.runtime.devices.policy": ("DevicePolicy",),
        "rlx.runtime.session": ("CompiledGraph", "Session"),
        "rlx.compiler.stages": ("CompilePipeline",),
        "rlx.text": ("load", "save"),
        "rlx.tracing": ("trace",),
        "rlx.training": ("compile_training", "fit"),
        "rlx.types": ("DType", "TensorType"),
        "rlx.view.graph": ("inspect_html",),
    }.items()
    for name in names
}  # fmt: skip
"""The public names with their modules. Beside them there are the element types (``rlx.f32``), the
modules of ``NAMESPACES``, and the names of ``rlx.compat.names``."""

NAMESPACES = (
    "ane", "autodiff", "bench", "cortexm", "distributed", "driver", "errors", "fpga", "ir", "knobs",
    "linalg", "macros", "models", "nn", "ops", "opt", "optim", "prelude", "quant", "random",
    "roofline", "sparse", "splat", "training", "xp",
)  # fmt: skip
"""Modules that ``import rlx`` gives as well."""

# The stub lists them: ruff and pyright cannot see what is computed.
__all__ = ["__version__", *sorted(NAMES)]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        # Python itself asks for names such as __path__, and for a module that it is to import.
        raise AttributeError(f"module 'rlx' has no attribute {name!r}")
    from rlx.base.gc_pause import importing

    with importing():
        if name in NAMES:
            return getattr(importlib.import_module(NAMES[name]), name)
        if name in NAMESPACES:
            return importlib.import_module(f"rlx.{name}")
    # Not "from rlx import ...", which would come here.
    from rlx.compat.names import NAMES as others
    from rlx.types import DTYPES

    if name in DTYPES:
        return DTYPES[name]
    if name in others:
        return others[name].load()
    from rlx.ir.spellings import METHODS, function_hint

    if name.isidentifier() and name not in METHODS and find_spec(f"rlx.{name}") is not None:
        hint = f"; write import rlx.{name}"
    else:
        hint = function_hint(name, [*__dir__(), *others, *DTYPES])
    raise AttributeError(f"module 'rlx' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return [*__all__, *NAMESPACES]
