"""Modules of StableHLO that PJRT compiles."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rlx._mlir import context, ir, stablehlo_module
from rlx.base.frozen import frozen
from rlx.errors import (
    GraphError,
    IRError,
    ModelError,
    OutOfMemoryError,
    RlxError,
    UnsupportedError,
)
from rlx.frontends.stablehlo.importer import Importer
from rlx.ir.graph import Graph
from rlx.runtime import _native
from rlx.runtime.executable import Executable

if TYPE_CHECKING:
    from rlx.runtime.session import Session

__all__ = ["Program", "compiled"]

Signature = tuple[str, str, Sequence[int]]

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 8, 12, 13
"""Numbers of PJRT_Error_Code."""


@frozen
class Program:
    """A compiled module.

    ``program`` runs it, and is None for one that gives nothing; ``inputs`` are its arguments then.
    ``donate`` pairs arguments and the results that are written over them, ``donated`` are all
    arguments that a call takes away. ``explain`` gives the message of a fault by its code, site and
    detail.
    """

    name: str
    fingerprint: str
    program: _native.Program | None
    inputs: Sequence[Signature]
    donate: Sequence[tuple[int, int]]
    donated: Sequence[int]
    explain: Callable[[int, int, str], str]


def compiled(source: bytes, format: str) -> Program | tuple[int, str]:
    """Compile a module for the CPU at hand, or say why not: an error's number, and its message."""
    try:
        if format != "mlir":
            raise UnsupportedError(f"RLX compiles StableHLO, found a program as {format!r}")
        return _program(source)
    except UnsupportedError as e:
        return UNIMPLEMENTED, f"RLX: {e}"
    except OutOfMemoryError as e:
        return RESOURCE_EXHAUSTED, f"RLX: {e}"
    except (GraphError, IRError, ModelError) as e:
        return INVALID_ARGUMENT, f"RLX: {e}"
    except RlxError as e:
        return INTERNAL, f"RLX: {type(e).__name__}: {e}"


@cache
def _session() -> Session:
    from rlx.runtime.session import Session

    return Session("cpu")


def _program(source: bytes) -> Program:
    digest = hashlib.sha256(source).hexdigest()
    with context() as ctx:
        module = stablehlo_module(source, ctx)
        name = _name(module)
        importer = Importer(module, name)
        if not importer.result_types():
            importer.refuse_missing()
            inputs = [(f"x{i}", t.dtype.name, t.static_shape)
                      for i, t in enumerate(importer.argument_types())]  # fmt: skip
            return Program(name, digest, None, inputs, (), (), _unknown_fault)
        graph = importer.graph()
        donate, donated = donations(graph, importer.argument_attributes())
    executable = _session().compile(graph, donate=donate)._fast
    assert isinstance(executable, Executable), "a module for PJRT has no sizes left open"

    def explain(code: int, site: int, detail: str) -> str:
        fault = _native.Fault("")
        fault.code, fault.site, fault.detail = code, site, detail
        return f"RLX: {executable.fault(fault)}"

    return Program(name, digest, executable.program, (), donate, donated, explain)


def _unknown_fault(code: int, site: int, detail: str) -> str:
    raise AssertionError(f"nothing ran, and wrote fault {code} at {site} ({detail})")


def _name(module: Any) -> str:
    attributes = module.operation.attributes
    return str(ir.StringAttr(attributes["sym_name"]).value) if "sym_name" in attributes else "main"


def donations(
    graph: Graph, attributes: Sequence[dict[str, Any]]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Which inputs of a graph are written over by which outputs, by what JAX says of arguments; and
    all that are donated. An input that JAX donates for any output gets the first of its type."""
    pairs: list[tuple[int, int]] = []
    donors: list[int] = []
    for i, known in enumerate(attributes):
        if "tf.aliasing_output" in known:
            pairs.append((i, int(ir.IntegerAttr(known["tf.aliasing_output"]).value)))
        elif "jax.buffer_donor" in known:
            donors.append(i)
    free = [o for o in range(len(graph.outputs)) if o not in {o for _, o in pairs}]
    donated = sorted([i for i, _ in pairs] + donors)
    for i in donors:
        fits = [o for o in free if graph.outputs[o].type == graph.inputs[i].type]
        if fits:
            pairs.append((i, fits[0]))
            free.remove(fits[0])
    return pairs, donated
