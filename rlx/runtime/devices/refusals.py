"""Refusals of a target, an op at a time, with reasons.

Where an op's own types do not say, the compiler is asked: a composite holds values that its
operands are not of, control flow holds graphs, a kernel may bind too many buffers, and a target
that takes whole graphs has rows for some ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from rlx.base.dims import SymDim
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.op import Op, type_of
from rlx.ops.control.control import Control
from rlx.runtime.claims import legal_graph
from rlx.targets import find_target
from rlx.targets.base import Target
from rlx.text import graph_text

__all__ = ["refusal", "refuses_all", "runs_some"]

_SIZE = 64
"""What a dim stands for that has no size yet: element types and buffers do not depend on it."""

_MORE = 4
"""Buffers that a kernel may bind beside an op's operands and results: of faults, and of its own."""

_found: dict[tuple[str, str], str] = {}
"""What the compiler said, by the target and the text of the graph."""

_target = cache(find_target)


def refusal(node: Op, target: str) -> str:
    """Why a target such as "gpu:webgpu+buffers16" does not compile an op; "" if it does."""
    kernels, whole = _target(target).kernels, _target(target).system is not None
    for v in (*node.present, *node.results):
        if v.dtype.part in kernels.lacks:
            return f"{v.dtype.part}: {kernels.lacks[v.dtype.part]}"
    inside = isinstance(node, Control) or node.composite()
    many = kernels.too_many(len(node.present) + len(node.results) + _MORE)
    asks = whole or many or (inside and kernels.lacks)
    return _asked(_alone(node), _target(target)) if asks else ""


def refuses_all(op: type[Op], target: str) -> str:
    """Why a target compiles none of an op's samples; "" if it does one, or there are none."""
    whys: list[str] = []
    for node in _samples(op):
        whys.append(refusal(node, target))
        if not whys[-1]:
            return ""
    return whys[0] if whys else ""


def runs_some(op: type[Op], claim: frozenset[str]) -> bool:
    """Whether a claim has an op, or all that one of its samples is defined by."""
    if op.name in claim:
        return True
    return any(legal_graph(_alone(node), claim).graph is not None for node in _samples(op))


def _samples(op: type[Op]) -> Iterator[Op]:
    """The op on the operands of its samples, f32 first where it takes that."""
    for dt in sorted(op.dtypes, key=lambda dt: dt.name != "f32"):
        for s in op.samples:
            g = Graph(op.name)
            types = [None if t is None else type_of(t, dt) for t in s.types]
            leaves = [
                None if t is None else g.input(f"x{i}", t.shape, t.dtype)
                for i, t in enumerate(types)
            ]
            yield op(*leaves, **s.attrs)


def _alone(node: Op) -> Graph:
    """The graph of a node alone, on inputs."""
    g = Graph(node.short)
    given = dict.fromkeys(node.present)
    leaves = {v: g.input(f"x{n}", v.shape, v.dtype) for n, v in enumerate(given)}
    made = node.with_operands([None if v is None else leaves[v] for v in node.operands])
    dims = [d for v in made.results for d in v.shape if isinstance(d, SymDim)]
    if named := frozenset[str]().union(*(d.symbols for d in dims)) - g.symbols:
        g.input("sizes", sorted(named))  # dims that attributes name are those of some input
    g.set_outputs(list(made.results))
    return g


def _asked(graph: Graph, target: Target) -> str:
    """Why the compiler refuses a graph; "" if it does not."""
    key = target.spec, graph_text(graph, values=False, places=False)
    if key not in _found:
        _found[key] = _compiled(graph, target)
    return _found[key]


def _compiled(graph: Graph, target: Target) -> str:
    from rlx.compiler.driver import compile_program

    try:
        compile_program(graph.bind(dict.fromkeys(graph.symbols, _SIZE)), target)
    except UnsupportedError as e:
        return e.message
    except ShapeError:
        return ""  # it has no such size; those of a run say more
    return ""
