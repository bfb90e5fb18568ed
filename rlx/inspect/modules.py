"""MLIR modules as listings: hir, mir and fused by the nodes that their ops denote, lir by steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rlx._mlir import ir
from rlx.base.units import bytes_text
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.control import control_of
from rlx.dialects.convert import from_type
from rlx.inspect.listing import (
    Listing,
    NodeOrigin,
    Row,
    Stats,
    by_count,
    leaf_name,
    name_results,
    node_row,
    total_bytes,
)
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.functions import functions
from rlx.lowering.passes.lir_text import memory_types
from rlx.schedule.plan import Schedule
from rlx.schedule.steps import KINDS, Launch, Place, Step, launches

__all__ = ["list_module", "list_schedule"]


def list_module(module: ir.Module, title: str) -> Listing:
    """The listing of a module of tensor ops, a region as one op with its body below it."""
    lister = _Lister()
    with module.context:
        found = functions(module)
        lister.functions = found
        for name in sorted(found, key=lambda n: (n == "main", n != "prologue")):
            if len(found[name].regions[0].blocks):
                lister.function(name, found[name], alone=len(found) == 1)
        attrs = module.operation.attributes
        graph = ir.StringAttr(attrs["rlx.graph"]).value if "rlx.graph" in attrs else "main"
    stats = Stats(f"{title} @{graph}", lister.kinds, lister.outputs, total_bytes(lister.types))
    return Listing(stats, lister.rows)


class _Lister:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.kinds: Counter[str] = Counter()
        self.types: list[Any] = []
        self.outputs = 0
        self.number = 0
        self.names: dict[Value, str] = {}
        self.values: dict[ir.Value, Value] = {}
        self.functions: dict[str, ir.Operation] = {}
        self.counts = True

    def function(self, name: str, f: ir.Operation, *, alone: bool) -> None:
        depth = 0 if alone else 1
        self.counts = name in ("main", "prologue")
        if not alone:
            self.rows.append(Row(f"{name}:"))
        block = f.regions[0].blocks[0]
        marks = list(ir.ArrayAttr(f.attributes["arg_attrs"])) if "arg_attrs" in f.attributes else []
        for i, arg in enumerate(block.arguments):
            role, named = _role(marks[i], i) if i < len(marks) else ("argument", f"arg{i}")
            v = self.value(arg, leaf_name(named))
            self.rows.append(Row(f"{self.names[v]} [{role}]", str(v.type), depth=depth))
        for view in block.operations:
            self.op(view.operation, depth)
        self.outputs = len(list(block.operations)[-1].operation.operands)

    def value(self, v: ir.Value, name: str) -> Value:
        self.values[v] = Value(from_type(v.type))
        self.names[self.values[v]] = name
        return self.values[v]

    def op(self, op: ir.Operation, depth: int) -> None:
        origin = str(NodeOrigin(*place_of(op)))
        if op.name in ("func.return", "mir.yield"):
            listed = ", ".join(self.names[self.values[v]] for v in op.operands)
            word = "return" if op.name == "func.return" else "yield"
            self.rows.append(Row(f"{word} {listed}", depth=depth))
            return
        outermost = not self._inside(op)
        if op.name == "mir.fused":
            kind = ir.StringAttr(op.attributes["kind"]).value
            self.count(f"fused {kind}", op, outermost)
            made = [Value(from_type(v.type)) for v in op.results]
            name_results(made, self.number, self.names)
            self.number += 1
            self.values.update(zip(op.results, made, strict=True))
            listed = ", ".join(self.names[v] for v in made)
            types = ", ".join(str(v.type) for v in made)
            self.rows.append(Row(f"{listed} = fused {kind}", types, origin, depth))
            for view in op.regions[0].blocks[0].operations:
                self.op(view.operation, depth + 1)
            return
        node = self.node(op)
        name_results(node.results, self.number, self.names)
        self.number += 1
        self.values.update(zip(op.results, node.results, strict=True))
        self.count(node.short, op, outermost)
        self.rows.append(node_row(node, self.names, origin, depth))

    def node(self, op: ir.Operation) -> Op:
        """The node that an op, or a call of a control function, denotes."""
        if op.name != "func.call":
            operands = [None if v is None else self.values[v] for v in operands_of(op)]
            return node_of(op, operands)
        node, bodies = control_of(op, self.functions)
        for name, body in bodies.items():
            node.attrs[name].name = f"@{ir.StringAttr(body.attributes['sym_name']).value}"
        return node.with_operands([self.values[v] for v in op.operands])

    def count(self, kind: str, op: ir.Operation, outermost: bool) -> None:
        if outermost and self.counts:
            self.kinds[kind] += 1
            self.types += [from_type(v.type) for v in op.results]

    def _inside(self, op: ir.Operation) -> bool:
        return op.parent is not None and op.parent.name == "mir.fused"


def _role(mark: ir.Attribute, index: int) -> tuple[str, str]:
    for role in ("input", "param", "packed"):
        if f"rlx.{role}" in ir.DictAttr(mark):
            named = ir.DictAttr(mark)[f"rlx.{role}"]
            if role == "packed":
                return role, f"packed{ir.IntegerAttr(named).value}"
            return role, ir.StringAttr(named).value
    return "argument", f"arg{index}"


# -- lir -----------------------------------------------------------------------------------


def list_schedule(schedule: Schedule) -> str:
    """The listing of a schedule: memories, kernels, and the steps of both entries."""
    memories = [
        (f"{role} {name}" if name is not None else role, kind)
        for role, name, kind in memory_types(schedule)
    ]
    prologue = [step for step, _ in schedule.prologue]
    counted = Counter(
        schedule.kernels[s.kernel].family for s in launches([*prologue, *schedule.main])
    )
    names = [name for name, _, _ in schedule.params]
    after = [", ".join(names[i] for i in params) for _, params in schedule.prologue]
    steps = len(schedule.main) + len(schedule.prologue)
    sizes = ", ".join(
        f"{name} {bytes_text(n)}"
        for name, n in (("arena", schedule.arena_bytes), ("packed", schedule.packed_bytes))
    )
    listed = ", ".join(f"{k}={n}" for k, n in by_count(counted)) or "none"
    lines = [
        f"lir for {schedule.target} ({steps} steps, {len(after)} of them of the prologue; {sizes})",
        f"launches: {listed}",
        "",
        "memories:",
        *(f"  {name} : {kind}" for name, kind in memories),
    ]
    lister = _StepLister(schedule, [name for name, _ in memories])
    remarks = [f"after {a}" for a in after]
    places = [str(NodeOrigin(*s.origin.place)) for s in schedule.main]
    for title, entry, said in (
        ("prologue:", prologue, remarks), ("main:", schedule.main, places)
    ):  # fmt: skip
        lines += ["", title]
        for step, remark in zip(entry, said, strict=True):
            first, *inner = lister.lines([step], 1)
            lines += [f"{first}  // {remark}", *inner]
    return "\n".join(lines)


class _StepLister:
    """The lines of steps, those inside a step below it."""

    def __init__(self, schedule: Schedule, memories: Sequence[str]) -> None:
        self.kernels, self.memories = schedule.kernels, memories

    def lines(self, steps: Sequence[Step[Place]], depth: int) -> list[str]:
        pad, lines = "  " * depth, list[str]()
        for step in steps:
            lines += [f"{pad}{self.line(step)}", *self.lines(step.children(), depth + 1)]
        return lines

    def place(self, place: Place) -> str:
        moves = "".join(f"+{n}*round{k}" for k, n in place.moves)
        return f"{self.memories[place.base]}+{place.offset}{moves}"

    def line(self, step: Step[Place]) -> str:
        if isinstance(step, Launch):
            return self.launch(step)
        said = [type(step).__name__.lower()]
        for f in KINDS[type(step)]:
            value = getattr(step, f.name)
            if f.kind in ("place", "place?") and value is not None:
                said.append(f"{f.name} {self.place(value)}")
            elif f.kind == "word":
                said.append(f"{f.name} {value}")
            elif f.kind == "flag" and value:
                said.append(f.name)
        return " ".join(said)

    def launch(self, step: Launch[Place]) -> str:
        kernel, (count, grain, scratch) = self.kernels[step.kernel], step.grid
        where = ", ".join(map(self.place, step.places))
        how = f"range {count} grain {grain}" + (f" scratch {scratch}" if scratch else "")
        given = f"; {', '.join(map(str, step.sizes))}" if step.sizes else ""
        return f"{kernel.name} ({kernel.family}) {how}: {where}{given}"
