"""StableHLO: what JAX and others export, as graphs.

    g = rlx.from_stablehlo("model.mlir")
    g = rlx.from_jax(jnp_function, *specs)

importer.py   the walk over functions and blocks
node.py       an op as rows see it
rows/         what each op becomes
loops.py      loops that count, raised to scans
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlx.base.dim_text import parse_dim
from rlx.base.dims import SymDim
from rlx.errors import GraphError, ModelError, ToolchainError, shown
from rlx.ir.builders import located

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlx.ir.graph import Graph
    from rlx.types import Dim

__all__ = ["from_jax", "from_stablehlo"]

MAGIC = b"ML\xefR"


@located
def from_stablehlo(source: str | Path | bytes) -> Graph:
    """The graph of a StableHLO module: a file of one, its text, its bytecode or a portable artifact
    (what ``jax.export`` serializes as ``mlir_module_serialized``).

    Inputs and outputs are called as the module says, where it does. Raises IRError for text that
    does not parse, ModelError for a module without a main function, and UnsupportedError, which
    lists all of them, for ops, types and sizes that RLX does not have.
    """
    data, name = _read(source)
    return _imported(data, name)


def _read(source: Any) -> tuple[str | bytes, str]:
    """A module's text or bytecode, and what it is called."""
    if not isinstance(source, str | bytes | Path):
        raise GraphError(f"from_stablehlo takes a path, text or bytes, found {shown(source)}")
    name = "main"
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source.strip()):
        path = Path(source)
        try:
            source, name = path.read_bytes(), path.stem
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else e
            raise ModelError(f"{shown(str(path))} cannot be read: {reason}") from None
    if isinstance(source, bytes) and not source.startswith(MAGIC):
        try:
            return source.decode(), name
        except UnicodeDecodeError:
            raise ModelError(
                "neither the text of a module nor bytecode of MLIR; of what jax.export gives, take"
                " mlir_module_serialized"
            ) from None
    return source, name


def _imported(
    data: str | bytes, name: str, known: Mapping[tuple[int, int], Dim] | None = None
) -> Graph:
    from rlx._mlir import context, stablehlo_module
    from rlx.frontends.stablehlo.importer import Importer

    with context() as ctx:
        return Importer(stablehlo_module(data, ctx), name).graph(known)


@located
def from_jax(function: Any, *specs: Any, **named: Any) -> Graph:
    """The graph of a JAX function for arguments like ``specs``: arrays, or anything with ``shape``
    and ``dtype``, in JAX's trees. The inputs are all leaves of the arguments, called as they are
    (``params.w``), also those that the function does not use; the outputs are called by the keys
    of what it gives.

    It is exported by ``jax.export``, by JAX's own rules for types. Raises ToolchainError without
    JAX, and what ``from_stablehlo`` raises.
    """
    if not callable(function):
        raise GraphError(f"from_jax takes a function, found {shown(function)}")
    try:
        jax: Any = importlib.import_module("jax")
        export: Any = importlib.import_module("jax.export")
    except ImportError as e:
        raise ToolchainError(f"from_jax needs JAX, which cannot be imported: {e}") from None
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    trees = jax.tree_util.tree_map(_spec(jax, export), (specs, named), is_leaf=_is_spec)
    exported = export.export(jitted, platforms=["cpu"])(*trees[0], **trees[1])
    name = getattr(function, "__name__", "main")
    graph = _imported(exported.mlir_module(), name, _symbolic_dims(exported))
    _add_unused(graph, exported)
    return graph


def _is_spec(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _spec(jax: Any, export: Any) -> Any:
    from rlx.functions.arguments import type_of

    scope = export.SymbolicScope()

    def of(x: Any) -> Any:
        if not _is_spec(x) or any(export.is_symbolic_dim(d) for d in x.shape):
            return x
        t = type_of(x, "argument")
        if t.is_static:
            return jax.ShapeDtypeStruct(t.static_shape, t.dtype.numpy)
        shape = export.symbolic_shape(", ".join(map(str, t.shape)), scope=scope)
        return jax.ShapeDtypeStruct(shape, t.dtype.numpy)

    return of


def _symbolic_dims(exported: Any) -> dict[tuple[int, int], Dim]:
    """The dims of the arguments that are expressions, but for those that only JAX can spell."""
    found: dict[tuple[int, int], Dim] = {}
    for i, kept in enumerate(exported.module_kept_var_idx):
        for axis, d in enumerate(exported.in_avals[kept].shape):
            if not isinstance(d, int):
                with suppress(GraphError):
                    found[i, axis] = _of_one_or_more(parse_dim(str(d)))
    return found


def _of_one_or_more(d: Dim) -> Dim:
    """A dim whose symbols are, as JAX has it, at least 1."""
    if not isinstance(d, SymDim):
        return d
    return d.bind({s: SymDim.symbol(s, 1) for s in d.symbols})


def _add_unused(graph: Graph, exported: Any) -> None:
    """Declare the arguments that JAX has left out, each in its place."""
    kept = list(exported.module_kept_var_idx)
    if len(kept) == len(exported.in_avals):
        return
    used = dict(zip(kept, graph.inputs, strict=True))
    for i, aval in enumerate(exported.in_avals):
        if i not in used:
            shape = [d if isinstance(d, int) else _of_one_or_more(parse_dim(str(d)))
                     for d in aval.shape]  # fmt: skip
            used[i] = graph.input(f"unused.{i}", shape, aval.dtype)
    graph.inputs[:] = [used[i] for i in range(len(exported.in_avals))]
