"""A schedule as a lir module, for those who look at one: kernels, then @prologue and @main.

A compile needs no such text: ``lir_reader.py`` beside this reads it where it is what was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx._mlir import ir, parse_module
from rlx.codegen.reg import mlir_element
from rlx.dialects.convert import to_attr
from rlx.ir.mlir_text import element_text
from rlx.lowering.passes.lir_control import FORMS
from rlx.lowering.passes.text_config import encode
from rlx.schedule.plan import ROLES, Role, Schedule
from rlx.schedule.steps import Launch, Layout, Origin, Place, Step, launches
from rlx.types import DTYPES, dtype

__all__ = ["Entry", "memory_types", "module_of"]


def module_of(schedule: Schedule, context: ir.Context) -> ir.Module:
    """The lir module of a schedule; IRError if it is none."""
    with context, ir.Location.unknown():
        lines = ["module attributes {" + ", ".join(_module_attributes(schedule)) + "} {"]
        prologue = [step for step, _ in schedule.prologue]
        declared: dict[int, Launch[Place]] = {}
        for step in launches([*prologue, *schedule.main]):
            declared.setdefault(step.kernel, step)
        for number, kernel in enumerate(schedule.kernels):
            step = declared[number]
            types = ", ".join([*map(_flat, step.places), *["index"] * len(step.sizes)])
            lines.append(
                f"  func.func private @{kernel.name}({types}) attributes "
                f'{{lir.family = "{kernel.family}", lir.config = {encode(kernel.config)}}}'
            )
        memories = _Memories(schedule)
        names = [k.name for k in schedule.kernels]
        before = Entry("prologue", memories, names)
        for step, follows in schedule.prologue:
            before.add(step, follows)
        main = Entry("main", memories, names)
        for step in schedule.main:
            main.add(step)
        module = parse_module("\n".join([*lines, *before.lines(), *main.lines(), "}"]), context)
        # As text the elements would take several times their memory.
        for i, a in enumerate(schedule.constants):
            module.operation.attributes[f"lir.constant{i}"] = to_attr(a, "Array")
        return module


def _module_attributes(schedule: Schedule) -> list[str]:
    out = [f'lir.target = "{schedule.target}"']
    sites = [
        f"{{message = {_quoted(message)}, file = {_quoted(file)}, line = {line} : i64}}"
        for message, file, line in schedule.sites
    ]
    for role, starts in schedule.slots.items():
        out.append(f"lir.{role}_slots = {_numbers(starts)}")
    return [*out, f"lir.sites = [{', '.join(sites)}]"]


def _quoted(text: str) -> str:
    return str(ir.StringAttr.get(text))


def _numbers(numbers: Iterable[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"array<i64{': ' if listed else ''}{listed}>"


def _loc(trail: Sequence[str]) -> str:
    """The location of what came from all of ``trail``."""
    known = [t for t in dict.fromkeys(trail) if t != "unknown"]
    if len(known) > 1:
        return f"loc(fused[{', '.join(known)}])"
    return f"loc({known[0] if known else 'unknown'})"


def _place(origin: Origin) -> str:
    return _loc([origin.trail])


def _layout(place: Place) -> Layout:
    assert place.layout is not None, "a place that was read from an artifact has no layout"
    return place.layout


def _flat(place: Place) -> str:
    dt = DTYPES[_layout(place).dtype]
    return f"memref<?x{element_text(dt) if dt.is_complex else mlir_element(dt, memory=True)}>"


def memory_types(schedule: Schedule) -> list[tuple[Role, str | None, str]]:
    """The memories in the order of their numbers: the role, the name if the role has several, and
    the type of one, as lir says it: ``2x3xf32``."""
    constants = [(str(i), dtype(a.dtype).name, a.shape) for i, a in enumerate(schedule.constants)]
    signatures = {
        "param": schedule.params, "constant": constants, "input": schedule.inputs,
        "output": schedule.outputs,
    }  # fmt: skip
    own = {"arena": f"{schedule.arena_bytes}xi8", "packed": f"{schedule.packed_bytes}xi8"}
    found: list[tuple[Role, str | None, str]] = []
    for role in ROLES:
        if role in signatures:
            for name, dt, shape in signatures[role]:
                dims = "".join(f"{d}x" for d in shape)
                found.append((role, name, f"{dims}{element_text(DTYPES[dt])}"))
        else:
            found.append((role, None, own.get(role, "2xi64")))
    return found


class _Memories:
    """The arguments of the entries: their SSA names and types, by the numbers of the memories."""

    def __init__(self, schedule: Schedule) -> None:
        self.names: list[tuple[str, str]] = []
        self.arguments: list[str] = []
        typed = zip(schedule.memories, memory_types(schedule), strict=True)
        for (_, index), (role, name, kind) in typed:
            ssa = f"%{role}" if name is None else f"%{role}{index}"
            self.names.append((ssa, f"memref<{kind}>"))
            named = f", lir.name = {_quoted(name)}" if name is not None else ""
            trails = schedule.trails.get(role, ())
            where = _loc([trails[index]] if index < len(trails) else [])
            self.arguments.append(f'{ssa}: memref<{kind}> {{lir.role = "{role}"{named}}} {where}')


class Entry:
    """The text of an entry, as it grows. Sizes and views stand at its top level, before what uses
    them; a view that moves with the rounds of a loop stands at the head of the loop's body."""

    def __init__(self, name: str, memories: _Memories, kernels: Sequence[str]) -> None:
        self.name, self.memories, self.kernels = name, memories, kernels
        self.head: list[str] = []
        self.body: list[str] = []
        self.sizes: dict[int, str] = {}
        self.views: dict[str, str] = {}
        self.follows: tuple[int, ...] = ()
        self.tests = 0
        # Of the loops that are open: the SSA names of their rounds, and the heads of their bodies.
        self.rounds: list[str] = []
        self.heads: list[list[str]] = []
        self.loops = 0

    def add(self, step: Step[Place], follows: tuple[int, ...] = ()) -> None:
        """Add a step, of the prologue with the params that it follows."""
        self.follows = follows
        self.body += self.step(step, "    ")

    def lines(self) -> list[str]:
        """The function."""
        return [
            f"  func.func @{self.name}({', '.join(self.memories.arguments)}) {{",
            *self.head,
            *self.body,
            "    return",
            "  }",
        ]

    def size(self, n: int) -> str:
        """The SSA name of a constant."""
        if n not in self.sizes:
            self.sizes[n] = f"%s{len(self.sizes)}"
            self.head.append(f"    {self.sizes[n]} = arith.constant {n} : index")
        return self.sizes[n]

    def view(self, place: Place) -> str:
        """The SSA name of a place."""
        layout = _layout(place)
        base, kind = self.memories.names[place.base]
        where = f"offset = {place.offset} : i64"
        where += f", shape = {_numbers(layout.shape)}, strides = {_numbers(layout.strides)}"
        if place.moves:
            where += f", moves = {_numbers(step for _, step in place.moves)}"
        operands = ", ".join([base, *(self.rounds[depth] for depth, _ in place.moves)])
        types = ", ".join([kind, *["index"] * len(place.moves)])
        text = f'"lir.view"({operands}) {{{where}}} : ({types}) -> {_flat(place)}'
        # A view that ops became is theirs: it is not shared with an equal one of other ops.
        key = f"{text} {_loc(layout.trail)}"
        if key not in self.views:
            self.views[key] = f"%v{len(self.views)}"
            line = f"{self.views[key]} = {key}"
            if place.moves:
                inner = self.heads[max(depth for depth, _ in place.moves)]
                inner.append("  " * (2 + len(self.heads)) + line)
            else:
                self.body.append("    " + line)
        return self.views[key]

    def step(self, step: Step[Place], indent: str) -> list[str]:
        """The lines of a step."""
        if isinstance(step, Launch):
            return [indent + self.launch(step)]
        return FORMS[type(step)].write(self, step, indent)

    def named(self, place: Place) -> tuple[str, str]:
        """The SSA name of a place, and its type."""
        return self.view(place), _flat(place)

    def location(self, step: Step[Place]) -> str:
        """Where a step comes from."""
        return _place(step.origin)

    def block(self, steps: Sequence[Step[Place]], indent: str) -> list[str]:
        """The lines of the steps inside a step."""
        return [line for s in steps for line in self.step(s, indent + "  ")]

    def launch(self, s: Launch[Place]) -> str:
        """The call of a kernel."""
        args = ", ".join([*(self.view(p) for p in s.places), *(self.size(n) for n in s.sizes)])
        types = ", ".join([*map(_flat, s.places), *["index"] * len(s.sizes)])
        count, grain, scratch = s.grid
        marks = f"lir.range = {count} : i64, lir.grain = {grain} : i64"
        marks += f", lir.scratch = {scratch} : i64, lir.ops = {_quoted(s.origin.ops)}"
        marks += f", lir.flops = {s.origin.flops} : i64, lir.bytes = {s.origin.bytes} : i64"
        if self.name == "prologue":
            marks += f", lir.when = {_numbers(self.follows)}"
        callee = self.kernels[s.kernel]
        return f"func.call @{callee}({args}) {{{marks}}} : ({types}) -> () {_place(s.origin)}"
