"""The end of mir-to-lir: views become places of numbered memories, and the steps a ``Schedule``."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects.bridge import trail_of
from rlx.dialects.convert import from_type
from rlx.lowering.functions import argument_marks, output_names
from rlx.lowering.region import producer
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View
from rlx.schedule.plan import KernelRef, Role, Schedule, Signature
from rlx.schedule.steps import Launch, Layout, Place, launches, map_each
from rlx.types import TensorType

__all__ = ["schedule_of"]


def schedule_of(lowering: Lowering, main: ir.Operation) -> Schedule:
    """The schedule of a finished lowering of ``main``."""
    arena = lowering.plan_arena()
    signatures, locations = _signatures(main)
    written = locations.items() if lowering.for_text else ()
    trails: dict[Role, list[str]] = {
        role: [trail_of(place) for place in found] for role, found in written
    }
    planned = [*lowering.prologue, *lowering.main]
    numbers = {old: n for n, old in enumerate(dict.fromkeys(s.kernel for s in launches(planned)))}
    known = list(lowering.kernels)
    kernels = [KernelRef(f"{known[n][0]}_{n}", *known[n]) for n in numbers]
    places = _Places(lowering, signatures, arena)

    def launch(step: Launch[View]) -> Launch[Place]:
        where = tuple([places.of(v) for v in step.places])
        return Launch(numbers[step.kernel], step.grid, where, step.sizes, step.origin)

    follows = [tuple(sorted(params)) for params in lowering.follows]
    prologue = map_each(lowering.prologue, launch, places.of)
    return Schedule(
        lowering.target.name, tuple(kernels), arena, lowering.packed.size,
        signatures["param"], lowering.constants, signatures["input"], signatures["output"],
        tuple(zip(prologue, follows, strict=True)), map_each(lowering.main, launch, places.of),
        lowering.sites, lowering.slots, trails, lowering.planned_later,
    )  # fmt: skip


class _Places:
    """Numbers the memories, and says where a view lies."""

    def __init__(
        self, lowering: Lowering, signatures: dict[Role, list[Signature]], arena: int
    ) -> None:
        counts = {
            "arena": 1, "packed": 1, "error": 1, "param": len(signatures["param"]),
            "constant": len(lowering.constants), "input": len(signatures["input"]),
        }  # fmt: skip
        self.first: dict[str, int] = {"arena": 0}
        for role, after in zip(counts, [*list(counts)[1:], "output"], strict=True):
            self.first[after] = self.first[role] + counts[role]
        self.for_text = lowering.for_text
        self.room = [arena, lowering.packed.size, 16]
        types = [TensorType.of(shape, dt) for _, dt, shape in signatures["param"]]
        self.room += [t.nbytes for t in types]
        self.room += [a.nbytes for a in lowering.constants]
        types = [*signatures["input"], *signatures["output"]]
        self.room += [TensorType.of(shape, dt).nbytes for _, dt, shape in types]

    def of(self, view: View) -> Place:
        """The place of a view, now that its memory has one."""
        memory, width = view.memory, view.dtype.bytes
        # Of a buffer of the arena or the packed memory, the index is no number of a memory.
        index = 0 if memory.role in ("arena", "packed") else memory.index
        base, offset = self.first[memory.role] + index, memory.offset + view.start * width
        moves = tuple([(rounds.depth, n * width) for rounds, n in view.moves if n])
        if isinstance(view.last, int) and isinstance(offset, int):
            reach = offset + (view.last - view.start + 1) * width if view.size else offset
            assert 0 <= offset <= reach <= self.room[base], f"{view} reaches out of its memory"
        return Place(base, offset, moves, self.layout(view))

    def layout(self, view: View) -> Layout | None:
        """What lies there, as lir text says it."""
        if not self.for_text:
            return None
        return Layout(view.dtype.name, view.shape, view.strides, view.trail)


def _signatures(
    main: ir.Operation,
) -> tuple[dict[Role, list[Signature]], dict[Role, list[ir.Location]]]:
    """The params, inputs and outputs of a function, and where each comes from."""
    block = main.regions[0].blocks[0]
    found: dict[Role, list[Signature]] = {"param": [], "input": [], "output": []}
    places: dict[Role, list[ir.Location]] = {"param": [], "input": [], "output": []}

    def note(role: Role, name: str, v: ir.Value, location: ir.Location) -> None:
        t = from_type(v.type)
        found[role].append((name, t.dtype.name, t.static_shape))
        places[role].append(location)

    for arg, mark in zip(block.arguments, argument_marks(main), strict=False):
        named = ir.DictAttr(mark)
        roles: tuple[Role, Role] = ("param", "input")
        for role in roles:
            if f"rlx.{role}" in named:
                note(role, ir.StringAttr(named[f"rlx.{role}"]).value, arg, arg.location)
    returned = list(block.operations)[-1].operation.operands
    for name, v in zip(output_names(main), returned, strict=True):
        op = producer(v)
        note("output", name, v, v.location if op is None else op.location)
    return found, places
