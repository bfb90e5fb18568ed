"""Writing the schedule as a lir module: kernel declarations, then @prologue and @main."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir, parse_module
from rlx.dialects.bridge import trail_of
from rlx.dialects.convert import element, from_type
from rlx.kernels.reg import mlir_element
from rlx.lowering.base import argument_marks
from rlx.lowering.config import encode
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import producer
from rlx.lowering.steps import Branch, For, Launched, Repeat, Step, launches
from rlx.lowering.views import Memory, Rounds, View
from rlx.types import DType, TensorType

__all__ = ["write_module"]


def write_module(lowering: Lowering, main: ir.Operation) -> ir.Module:
    """The lir module of a finished lowering."""
    arena = lowering.plan_arena()
    memories = _Memories(lowering, main, arena)
    lines = ["module attributes {" + ", ".join(_module_attributes(lowering, main)) + "} {"]
    declared: dict[str, Launched] = {}
    for step in launches([*lowering.prologue, *lowering.main]):
        declared.setdefault(step.kernel, step)
    configs = {name: key for key, name in lowering.kernels.items()}
    for name, step in declared.items():
        family, config = configs[name]
        types = ", ".join(
            [*(_flat(v.dtype) for v in step.views), *["index"] * len(step.launch.sizes)]
        )
        lines.append(
            f"  func.func private @{name}({types}) attributes "
            f'{{lir.family = "{family}", lir.config = {encode(config)}}}'
        )
    for entry, steps in (("prologue", lowering.prologue), ("main", lowering.main)):
        lines += _function(entry, steps, memories)
    lines.append("}")
    return parse_module("\n".join(lines), main.context)


def _module_attributes(lowering: Lowering, main: ir.Operation) -> list[str]:
    out = [f'lir.target = "{lowering.target.name}"']
    out += [f"lir.constant{i} = {a}" for i, a in enumerate(lowering.constants)]
    sites = [
        f"{{message = {_quoted(s.message)}, file = {_quoted(s.location[0])}, "
        f"line = {s.location[1]} : i64}}"
        for s in lowering.sites
    ]
    for role, starts in lowering.slots.items():
        out.append(f"lir.{role}_slots = array<i64: {', '.join(map(str, starts))}>")
    return [*out, f"lir.sites = [{', '.join(sites)}]"]


def _quoted(text: str) -> str:
    return str(ir.StringAttr.get(text))


def _loc(trail: Sequence[str]) -> str:
    """The location of what came from all of ``trail``."""
    known = [t for t in dict.fromkeys(trail) if t != "unknown"]
    if len(known) > 1:
        return f"loc(fused[{', '.join(known)}])"
    return f"loc({known[0] if known else 'unknown'})"


def _flat(dt: DType) -> str:
    item = _element(dt) if dt.is_complex else mlir_element(dt, memory=True)
    return f"memref<?x{item}>"


class _Memories:
    """The arguments of the entries: their SSA names and types."""

    def __init__(self, lowering: Lowering, main: ir.Operation, arena: int) -> None:
        self.names: dict[tuple[str, int], tuple[str, str]] = {}
        self.arguments: list[str] = []
        self._add("arena", 0, f"memref<{arena}xi8>", None)
        self._add("packed", 0, f"memref<{lowering.packed.size}xi8>", None)
        self._add("error", 0, "memref<2xi64>", None)
        block = main.regions[0].blocks[0]
        leaves: dict[str, list[tuple[str, ir.Value]]] = {"param": [], "input": []}
        for arg, mark in zip(block.arguments, argument_marks(main), strict=False):
            for role, found in leaves.items():
                if f"rlx.{role}" in ir.DictAttr(mark):
                    found.append((ir.StringAttr(ir.DictAttr(mark)[f"rlx.{role}"]).value, arg))
        self._list("param", [(n, from_type(v.type), v.location) for n, v in leaves["param"]])
        nowhere = ir.Location.unknown(main.context)
        constants = [from_type(ir.DenseElementsAttr(a).type) for a in lowering.constants]
        self._list("constant", [(str(i), t, nowhere) for i, t in enumerate(constants)])
        self._list("input", [(n, from_type(v.type), v.location) for n, v in leaves["input"]])
        returned = list(block.operations)[-1].operation.operands
        self._list(
            "output",
            [(str(i), from_type(v.type), _origin(v)) for i, v in enumerate(returned)],
        )

    def _list(self, role: str, leaves: list[tuple[str, TensorType, ir.Location]]) -> None:
        for i, (name, t, location) in enumerate(leaves):
            dims = "".join(f"{d}x" for d in t.static_shape)
            self._add(role, i, f"memref<{dims}{_element(t.dtype)}>", name, trail_of(location))

    def _add(
        self, role: str, index: int, kind: str, name: str | None, trail: str = "unknown"
    ) -> None:
        ssa = f"%{role}" if name is None else f"%{role}{index}"
        self.names[role, index] = (ssa, kind)
        named = f", lir.name = {_quoted(name)}" if name is not None else ""
        self.arguments.append(f'{ssa}: {kind} {{lir.role = "{role}"{named}}} {_loc([trail])}')

    def of(self, memory: Memory) -> tuple[str, str]:
        index = memory.index if memory.role in ("param", "constant", "input", "output") else 0
        return self.names[memory.role, index]


def _origin(v: ir.Value) -> ir.Location:
    op = producer(v)
    return v.location if op is None else op.location


def _element(dt: DType) -> str:
    return str(element(dt))


def _function(name: str, steps: list[Step], memories: _Memories) -> list[str]:
    return _Entry(name, memories).lines(steps)


class _Entry:
    """The text of an entry. Sizes and views stand at its top level, before what uses them; a view
    that moves with the rounds of a loop stands at the head of the loop's body."""

    def __init__(self, name: str, memories: _Memories) -> None:
        self.name, self.memories = name, memories
        self.head: list[str] = []
        self.body: list[str] = []
        self.sizes: dict[int, str] = {}
        self.views: dict[str, str] = {}
        self.tests = 0
        # Of the loops: the SSA names, and while they are open, the heads of the bodies.
        self.rounds: dict[Rounds, str] = {}
        self.heads: dict[Rounds, list[str]] = {}

    def lines(self, steps: list[Step]) -> list[str]:
        for step in steps:
            self.body += self.step(step, "    ")
        return [
            f"  func.func @{self.name}({', '.join(self.memories.arguments)}) {{",
            *self.head,
            *self.body,
            "    return",
            "  }",
        ]

    def size(self, n: int) -> str:
        if n not in self.sizes:
            self.sizes[n] = f"%s{len(self.sizes)}"
            self.head.append(f"    {self.sizes[n]} = arith.constant {n} : index")
        return self.sizes[n]

    def view(self, v: View) -> str:
        base, kind = self.memories.of(v.memory)
        offset = v.memory.offset + v.start * v.dtype.bytes
        shape, strides = (", ".join(map(str, x)) for x in (v.shape, v.strides))
        shape, strides = (f"array<i64{': ' if x else ''}{x}>" for x in (shape, strides))
        where = f"offset = {offset} : i64, shape = {shape}, strides = {strides}"
        moves = [(rounds, step * v.dtype.bytes) for rounds, step in v.moves if step]
        if moves:
            where += f", moves = array<i64: {', '.join(str(step) for _, step in moves)}>"
        operands = ", ".join([base, *(self.rounds[rounds] for rounds, _ in moves)])
        types = ", ".join([kind, *["index"] * len(moves)])
        text = f'"lir.view"({operands}) {{{where}}} : ({types}) -> {_flat(v.dtype)}'
        # A view that ops became is theirs: it is not shared with an equal one of other ops.
        key = f"{text} {_loc(v.trail)}"
        if key not in self.views:
            self.views[key] = f"%v{len(self.views)}"
            line = f"{self.views[key]} = {key}"
            if moves:
                inner = [r for r in self.heads if r in dict(moves)][-1]
                self.heads[inner].append("  " * (2 + len(self.heads)) + line)
            else:
                self.body.append("    " + line)
        return self.views[key]

    def step(self, step: Step, indent: str) -> list[str]:
        match step:
            case Launched():
                return [indent + self.launch(step)]
            case Branch():
                return self.branch(step, indent)
            case Repeat():
                return self.repeat(step, indent)
            case For():
                return self.count(step, indent)

    def block(self, steps: list[Step], indent: str) -> list[str]:
        return [line for s in steps for line in self.step(s, indent + "  ")]

    def launch(self, s: Launched) -> str:
        sizes = s.launch.sizes
        args = ", ".join([*(self.view(v) for v in s.views), *(self.size(n) for n in sizes)])
        types = ", ".join([*(_flat(v.dtype) for v in s.views), *["index"] * len(sizes)])
        marks = f"lir.range = {s.launch.range} : i64, lir.grain = {s.launch.grain} : i64"
        marks += f", lir.scratch = {s.launch.scratch} : i64, lir.ops = {_quoted(s.ops)}"
        marks += f", lir.flops = {s.flops} : i64, lir.bytes = {s.bytes} : i64"
        if self.name == "prologue":
            params = ", ".join(map(str, sorted(s.params)))
            marks += f", lir.when = array<i64{': ' if params else ''}{params}>"
        return f"func.call @{s.kernel}({args}) {{{marks}}} : ({types}) -> () {_place(s)}"

    def test(self, flag: View, s: Branch | Repeat, indent: str) -> tuple[str, str]:
        """The SSA name of a test, and the line that makes it."""
        self.tests += 1
        name = f"%t{self.tests - 1}"
        kind = _flat(flag.dtype)
        return name, f'{indent}{name} = "lir.test"({self.view(flag)}) : ({kind}) -> i1 {_place(s)}'

    def branch(self, s: Branch, indent: str) -> list[str]:
        then, otherwise = (self.block(steps, indent) for steps in (s.then, s.otherwise))
        name, test = self.test(s.flag, s, indent)
        end = f"{indent}}} {_place(s)}"
        return [test, f"{indent}scf.if {name} {{", *then, f"{indent}}} else {{", *otherwise, end]

    def repeat(self, s: Repeat, indent: str) -> list[str]:
        before, body = (self.block(steps, indent) for steps in (s.test, s.body))
        name, test = self.test(s.flag, s, indent + "  ")
        limit = f"lir.limit = {s.limit} : i64, lir.site = {s.site} : i64"
        return [
            f"{indent}scf.while : () -> () {{",
            *before,
            test,
            f"{indent}  scf.condition({name})",
            f"{indent}}} do {{",
            *body,
            f"{indent}  scf.yield",
            f"{indent}}} attributes {{{limit}}} {_place(s)}",
        ]

    def count(self, s: For, indent: str) -> list[str]:
        name = self.rounds[s.rounds] = f"%i{len(self.rounds)}"
        head = self.heads[s.rounds] = []
        zero, one, count = (self.size(n) for n in (0, 1, s.rounds.count))
        body = self.block(s.body, indent)
        if s.counter is not None:
            store = f'"lir.count"({name}, {self.view(s.counter)})'
            kinds = f"(index, {_flat(s.counter.dtype)}) -> ()"
            head.append(f"{indent}  {store} : {kinds} {_place(s)}")
        del self.heads[s.rounds]
        mark = " {lir.reverse}" if s.reverse else ""
        return [
            f"{indent}scf.for {name} = {zero} to {count} step {one} {{",
            *head,
            *body,
            f"{indent}}}{mark} {_place(s)}",
        ]


def _place(s: Step) -> str:
    return _loc([s.trail])
