"""Dispatch reports: which kernel runs each op of a graph on a target, and which ops it refuses,
also of graphs that it does not compile as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rlx.base.device_names import label
from rlx.compiler.graph_module import GraphModule, GraphStage
from rlx.errors import GraphError, UnsupportedError, a_type
from rlx.ir.builders import located
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph, topological
from rlx.ir.location import caller
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.report import DispatchReport
from rlx.runtime.backend import backend_for, device_name, registered, why_not
from rlx.runtime.claims import checked_claim, claim_of, legal_graph
from rlx.runtime.devices.available import target_here
from rlx.runtime.devices.refusals import refusal
from rlx.targets import TARGETS, find_target, parse_target

__all__ = [
    "Refused", "analyze_dispatch", "claim_for", "format_dispatch_report", "format_legalize_error",
    "refused", "refused_error", "target_for",
]  # fmt: skip

Dims = Mapping[str, int]
Backend = str | Iterable[str]
"""A target or device by name ("opengl", "cuda:sm_90"), or a claim: names of ops that one runs."""


class Refused(NamedTuple):
    """A node that a target does not run: its number, and why."""

    number: int
    node: Op
    why: str

    @property
    def kind(self) -> str:
        """The full name of its op."""
        return self.node.name

    def __str__(self) -> str:
        types = dict.fromkeys(v.dtype.name for v in (*self.node.present, *self.node.results))
        return f"{self.kind} of {', '.join(types)}: {self.why}"


def claim_for(backend: Backend) -> tuple[str, frozenset[str] | None]:
    """What a backend is called, and the claim that it is or has; None for a target's name."""
    if not isinstance(backend, str | Iterable):
        parse_target(backend)  # which says what a target is
    if not isinstance(backend, str):
        return "a backend of this claim", checked_claim(backend, "the claim")
    name = device_name(backend.partition(":")[0])
    if name in TARGETS:
        return name, None
    said = claim_of(backend_for(name)) if registered(name) and not why_not(name) else None
    if said is None and registered(name):
        raise UnsupportedError(
            f"device {name!r} does not say which ops it runs: no target is called so, and its"
            " backend has no supported_ops; it says as it compiles",
            caller(),
        )
    return name, said


def target_for(backend: str) -> str:
    """The target of a device, with the features that the device has if it is here and none are
    named."""
    given, _, features = backend.partition(":")
    name = device_name(given)
    return f"{name}:{features}" if features else target_here(name) or name


def refused(graph: Graph, backend: Backend) -> list[Refused]:
    """All nodes of a graph that a backend does not run as they are."""
    if not isinstance(graph, Graph):
        raise GraphError(f"a Graph is expected, found {a_type(graph)}", caller())
    _, claim = claim_for(backend)
    if claim is not None:
        return [
            Refused(o.number, o.node, f"{o.op} is not in its claim")
            for o in legal_graph(graph, claim).offences
        ]
    target = target_for(str(backend))
    numbered = enumerate(graph.nodes())
    return [Refused(n, op, why) for n, op in numbered if (why := refusal(op, target))]


def refused_error(graph: Graph, backend: Backend, found: Sequence[Refused]) -> UnsupportedError:
    """The error of what a backend refuses of a graph: every node, then which way the others go."""
    report = analyze_dispatch(graph, backend)
    text = f"{format_legalize_error(backend, found)}\n{format_dispatch_report(report)}"
    return UnsupportedError(text, found[0].node.location)


@located
def format_legalize_error(backend: Backend, found: Sequence[Refused]) -> str:
    """What a user reads of nodes that a backend refuses: all of them, with their lines."""
    name, claim = claim_for(backend)
    shown = label(parse_target(str(backend))[0]) if claim is None else name
    if not found:
        return f"{shown} runs every node"
    lines = [f"{shown} does not run {found[0]}"]
    for r in found[1:]:
        file, line = r.node.location
        lines.append(f"  nor {r} ({file}:{line}, node {r.number})")
    return "\n".join(lines)


@located
def format_dispatch_report(report: DispatchReport) -> str:
    """A report for people: the ways with what goes each, and whether the graph can be compiled."""
    last = "compile-ready: yes"
    if not report.compile_ready:
        nodes = ", ".join(f"{number} ({op})" for number, op in report.still_unsupported)
        last = f"compile-ready: no, for nodes {nodes}"
    return "\n".join([*filter(None, [str(report)]), last])


@located
def analyze_dispatch(
    graph: Graph, backend: Backend = "cpu", dims: Dims | None = None, **options: Any
) -> DispatchReport:
    """Which way each op of a graph goes on a target or by a claim. Nodes that are refused are in
    ``still_unsupported``; of the others the report says what it would say without those."""
    bound = graph.bind(dims) if dims else graph
    name, claim = claim_for(backend)
    if claim is not None:
        return legal_graph(bound, claim, name).report
    found = refused(bound, backend)
    target = find_target(target_for(str(backend)))
    left = [(r.number, r.kind) for r in found]
    rest = _without(bound, {r.node for r in found}) if found else bound
    compilation = Compilation(target, Options.of(options))
    if rest.outputs and target.system is not None:
        from rlx.compiler.driver import compile_structure

        _, report = compile_structure(rest, target, Options.of(options))
        return replace(report.compilation.dispatch, target=target.spec, still_unsupported=left)
    if rest.outputs:
        GraphModule.of(rest).through(GraphStage.LIR, compilation)
    return replace(compilation.dispatch, target=target.spec, still_unsupported=left)


def _without(graph: Graph, left_out: set[Op]) -> Graph:
    """A graph without some of its nodes: their results are inputs, and what they take is
    computed."""
    out, env = leaves_of(graph, lambda v: v.type)
    wanted = [*graph.outputs, *(v for op in left_out for v in op.present)]
    kept = [op for op in topological(graph.outputs) if op not in left_out]
    for number, op in enumerate(kept):
        for v in op.present:
            if v not in env:
                env[v] = out.input(f"left out {number} {len(env)}", v.shape, v.dtype)
        node = op.with_operands([None if v is None else env[v] for v in op.operands])
        env.update(zip(op.results, node.results, strict=True))
    computed = {v for op in kept for v in op.results}
    made: list[Value] = [env[v] for v in dict.fromkeys(wanted) if v in computed]
    out.outputs = made
    return out
