"""Writing the schedule as a lir module: kernel declarations, then @prologue and @main."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir, parse_module
from rlx.dialects.bridge import trail_of
from rlx.dialects.convert import element, from_type
from rlx.kernels.reg import mlir_element
from rlx.lowering.config import encode
from rlx.lowering.lowering import Lowering, StepRecord
from rlx.lowering.region import producer
from rlx.lowering.views import Memory, View
from rlx.types import DType, TensorType

__all__ = ["write_module"]


def write_module(lowering: Lowering, main: ir.Operation) -> ir.Module:
    """The lir module of a finished lowering."""
    arena = lowering.plan_arena()
    memories = _Memories(lowering, main, arena)
    lines = ["module attributes {" + ", ".join(_module_attributes(lowering, main)) + "} {"]
    declared: dict[str, StepRecord] = {}
    for step in (*lowering.prologue, *lowering.main):
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
    return f"memref<?x{mlir_element(dt, memory=True)}>"


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
        for arg, mark in zip(
            block.arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=False
        ):
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


def _function(name: str, steps: list[StepRecord], memories: _Memories) -> list[str]:
    head: list[str] = []
    body: list[str] = []
    sizes: dict[int, str] = {}
    views: dict[str, str] = {}

    def size(n: int) -> str:
        if n not in sizes:
            sizes[n] = f"%s{len(sizes)}"
            head.append(f"    {sizes[n]} = arith.constant {n} : index")
        return sizes[n]

    def view(v: View) -> str:
        base, kind = memories.of(v.memory)
        offset = v.memory.offset + v.start * v.dtype.bytes
        shape, strides = (", ".join(map(str, x)) for x in (v.shape, v.strides))
        shape, strides = (f"array<i64{': ' if x else ''}{x}>" for x in (shape, strides))
        where = f"offset = {offset} : i64, shape = {shape}, strides = {strides}"
        text = f'"lir.view"({base}) {{{where}}} : ({kind}) -> {_flat(v.dtype)}'
        # A view that ops became is theirs: it is not shared with an equal one of other ops.
        key = f"{text} {_loc(v.trail)}"
        if key not in views:
            views[key] = f"%v{len(views)}"
            body.append(f"    {views[key]} = {key}")
        return views[key]

    for s in steps:
        args = ", ".join([*(view(v) for v in s.views), *(size(n) for n in s.launch.sizes)])
        types = ", ".join([*(_flat(v.dtype) for v in s.views), *["index"] * len(s.launch.sizes)])
        marks = f"lir.range = {s.launch.range} : i64, lir.grain = {s.launch.grain} : i64"
        marks += f", lir.scratch = {s.launch.scratch} : i64"
        if name == "prologue":
            params = ", ".join(map(str, sorted(s.params)))
            marks += f", lir.when = array<i64{': ' if params else ''}{params}>"
        body.append(
            f"    func.call @{s.kernel}({args}) {{{marks}}} : ({types}) -> () {_loc([s.trail])}"
        )
    return [
        f"  func.func @{name}({', '.join(memories.arguments)}) {{",
        *head,
        *body,
        "    return",
        "  }",
    ]
