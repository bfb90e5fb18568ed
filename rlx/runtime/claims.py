"""The ops that a backend declares to run, and graphs rewritten to those.

A backend may have a ``supported_ops``: full names of ops ("mir.matmul", "hir.linear",
"control.cond"). A graph for it is then rewritten to those ops, each other one as far as it is
defined by others; what is left is refused before the backend is asked. A backend without a claim
takes every graph, and refuses what it cannot run itself. Inputs, params and constants need no
claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlx.errors import GraphError, UnsupportedError
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph, inner_graph, topological
from rlx.ir.op import Op, op_class
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.lowering.report import DispatchReport
from rlx.ops.control.control import Control
from rlx.ops.movement.constant import Constant

if TYPE_CHECKING:
    from rlx.runtime.backend import Backend

__all__ = ["Legal", "Offence", "checked_claim", "claim_of", "claimed_graph", "legal_graph"]

Claim = frozenset[str]


class Offence(NamedTuple):
    """A node of the user's graph that a claim leaves out: its number, and the op that has no way,
    which is the node itself or one that it is defined by."""

    number: int
    node: Op
    op: str

    def __str__(self) -> str:
        file, line = self.node.location
        inside = "" if self.op == self.node.name else f", which needs {self.op}"
        return f"{file}:{line}: node {self.number}, {self.node.name}{inside}"


class Legal(NamedTuple):
    """A graph in the ops of a claim (None if it cannot be), how many of its nodes went which way,
    and what stands against it."""

    graph: Graph | None
    report: DispatchReport
    offences: tuple[Offence, ...]


def checked_claim(names: Iterable[Any], what: str) -> Claim:
    """A claim from full names or classes of ops; GraphError for what names none."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GraphError(f"{what}: expected names of ops in a list, found {names!r}")
    found: set[str] = set()
    for name in names:
        if isinstance(name, type) and issubclass(name, Op):
            found.add(name.name)
        elif isinstance(name, str):
            found.add(op_class(str(name)).name)
        else:
            raise GraphError(f"{what}: expected names of ops, found {name!r} among them")
    return frozenset(found)


def claim_of(backend: Backend) -> Claim | None:
    """What a backend says that it runs; None if it says nothing."""
    if backend.supported_ops is None:
        return None
    said = backend.supported_ops
    names: Any = said() if callable(said) else said
    return checked_claim(names, f"supported_ops of {backend.name!r}")


def legal_graph(graph: Graph, claim: Claim, target: str = "") -> Legal:
    """A graph rewritten to the ops of a claim, with all that cannot be."""
    walk = _Rewriting(claim)
    out, env = leaves_of(graph, lambda v: v.type)
    offences: list[Offence] = []
    ways: dict[str, Counter[str]] = {"native": Counter(), "rewritten": Counter()}
    numbers = {op: number for number, op in enumerate(graph.nodes())}

    def legal(op: Op, operands: Sequence[Value | None]) -> Sequence[Value]:
        try:
            results, native = walk.node(op, operands)
        except _LeftOut as e:
            offences.append(Offence(numbers[op], op, e.op))
            return cloned(op, operands)
        if not isinstance(op, Constant):
            ways["native" if native else "rewritten"][op.name] += 1
        return results

    replay(numbers, env, legal)
    report = DispatchReport(native=ways["native"], rewritten=ways["rewritten"], target=target)
    report.still_unsupported += [(o.number, o.op) for o in offences]
    if offences:
        return Legal(None, report, tuple(offences))
    out.outputs, out.output_names = [env[v] for v in graph.outputs], graph.output_names
    out.origin = graph.origin
    return Legal(out, report, ())


def claimed_graph(graph: Graph, claim: Claim, device: str) -> Graph:
    """A graph rewritten to the ops of a device's claim; UnsupportedError, which lists every node
    that cannot be and then which way each op goes, at the first one's line."""
    found = legal_graph(graph, claim, device)
    if found.graph is not None:
        return found.graph
    listed = "".join(f"\n  {o}" for o in found.offences)
    report = str(found.report).replace("\n", "\n  ")
    raise UnsupportedError(
        f"device {device!r} does not run {len(found.offences)} of the graph's nodes by its"
        f" supported_ops:{listed}\n  {report}",
        found.offences[0].node.location,
    )


class _LeftOut(Exception):
    """An op that a claim does not have, and that no others define."""

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op


class _Rewriting:
    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def node(self, op: Op, operands: Sequence[Value | None]) -> tuple[Sequence[Value], bool]:
        """The results of an op on other operands, in claimed ops; and whether it is one itself."""
        native = op.name in self.claim or isinstance(op, Constant)
        if native and not isinstance(op, Control):
            return op.with_operands(operands).results, True
        if isinstance(op, Control):
            return self.control(op, operands), native
        if not op.composite() or op.meets:
            raise _LeftOut(op.name)
        moved = op.with_operands(operands)
        return self.values(moved.expansion(), {v: v for v in moved.present}), False

    def control(self, op: Control, operands: Sequence[Value | None]) -> Sequence[Value]:
        if op.name in self.claim:
            bodies = {a.name: self.body(op.attrs[a.name]) for a in op.body_fields()}
            return op.with_operands(operands, **bodies).results
        if not op.composite() or op.meets:
            raise _LeftOut(op.name)
        body: Graph = op.attrs["body"]
        given = [v for v in operands if v is not None]
        return self.values(body.outputs, dict(zip(body.inputs, given, strict=True)))

    def body(self, body: Graph) -> Graph:
        out, env = leaves_of(body, lambda v: v.type)
        out.depth = inner_graph(body.name).depth
        out.outputs, out.output_names = list(self.values(body.outputs, env)), body.output_names
        return out

    def values(self, outs: Sequence[Value], env: dict[Value, Value]) -> Sequence[Value]:
        nodes = topological(outs, stop=frozenset(env))
        replay(nodes, env, lambda op, operands: self.node(op, operands)[0])
        return [env[v] for v in outs]
