"""MLIR modules as listings: hir, mir and fused by the nodes that their ops denote, lir by steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.control import control_of
from rlx.dialects.convert import from_type
from rlx.inspect.listing import (
    Listing,
    NodeOrigin,
    Row,
    Stats,
    by_count,
    bytes_text,
    leaf_name,
    name_results,
    node_row,
    total_bytes,
)
from rlx.lowering.base import functions
from rlx.lowering.schedule import Schedule, read_schedule
from rlx.ops.base import Op
from rlx.ops.value import Value

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
            v = self.value(op.results[0], f"%{self.number}")
            self.number += 1
            self.rows.append(Row(f"{self.names[v]} = fused {kind}", str(v.type), origin, depth))
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


def list_schedule(module: ir.Module) -> str:
    """The listing of a lir module: memories, kernels, and the steps of both entries."""
    schedule = read_schedule(module)
    with module.context:
        memories = _memories(functions(module)["main"])
    families = {k.name: k.family for k in schedule.kernels}
    launches = Counter(families[name] for name in _launched(schedule))
    names = [name for name, _, _ in schedule.params]
    after = [", ".join(names[i] for i in params) for _, params in schedule.prologue]
    steps = len(schedule.main) + len(schedule.prologue)
    sizes = ", ".join(
        f"{name} {bytes_text(n)}"
        for name, n in (("arena", schedule.arena_bytes), ("packed", schedule.packed_bytes))
    )
    listed = ", ".join(f"{k}={n}" for k, n in by_count(launches)) or "none"
    lines = [
        f"lir for {schedule.target} ({steps} steps, {len(after)} of them of the prologue; {sizes})",
        f"launches: {listed}",
        "",
        "memories:",
        *(f"  {text}" for text in memories.values()),
    ]
    prologue = zip(
        [step for step, _ in schedule.prologue], [f"after {a}" for a in after], strict=True
    )
    main = zip(schedule.main, [str(NodeOrigin(*p)) for p in schedule.places], strict=True)
    for title, entry in (("prologue:", prologue), ("main:", main)):
        lines += ["", title]
        for step, remark in entry:
            first, *inner = _steps([step], list(memories), families, 1)
            lines += [f"{first}  // {remark}", *inner]
    return "\n".join(lines)


def _memories(main: ir.Operation) -> dict[str, str]:
    """The memories that an entry names, in order: a short name, and its line."""
    found: dict[str, str] = {}
    marks = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
    for arg, mark in zip(main.regions[0].blocks[0].arguments, marks, strict=True):
        d = ir.DictAttr(mark)
        role = ir.StringAttr(d["lir.role"]).value
        name = f"{role} {ir.StringAttr(d['lir.name']).value}" if "lir.name" in d else role
        found[name] = f"{name} : {str(arg.type).removeprefix('memref<').removesuffix('>')}"
    return found


def _launched(schedule: Schedule) -> list[str]:
    def names(step: Any) -> list[str]:
        if step[0] == "launch":
            return [step[1]]
        return [n for part in step if isinstance(part, list) for s in part for n in names(s)]

    return [n for step in (*(s for s, _ in schedule.prologue), *schedule.main) for n in names(step)]


def _steps(
    steps: Sequence[Any], memories: list[str], families: dict[str, str], depth: int
) -> list[str]:
    """The lines of steps; structured ones hold others in lists."""
    pad, lines = "  " * depth, list[str]()

    def place(ref: tuple[Any, ...]) -> str:
        base, offset, *moves = ref
        return f"{memories[base]}+{offset}" + "".join(f"+{n}*round{k}" for k, n in moves)

    for step in steps:
        if step[0] != "launch":
            lines.append(f"{pad}{step[0]} {_control(step, place)}")
            for part in (p for p in step if isinstance(p, list)):
                lines += _steps(part, memories, families, depth + 1)
            continue
        _, name, count, grain, scratch, refs, sizes = step
        where = ", ".join(map(place, refs))
        how = f"range {count} grain {grain}" + (f" scratch {scratch}" if scratch else "")
        given = f"; {', '.join(map(str, sizes))}" if sizes else ""
        lines.append(f"{pad}{name} ({families[name]}) {how}: {where}{given}")
    return lines


def _control(step: Any, place: Callable[[tuple[Any, ...]], str]) -> str:
    """What decides how often the steps inside a step run."""
    match step:
        case ("for", count, _, counter, reverse):
            order = ", the last first" if reverse else ""
            return f"{count}{order}" + (f", round in {place(counter)}" if counter else "")
        case ("while", _, flag, _, limit, _):
            return place(flag) + (f", at most {limit}" if limit >= 0 else "")
        case _:
            return place(step[1])
