"""A compile, watched: the module is copied down as text after each level, with its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.levels import lower
from rlx.lowering.passes.lir_reader import read_schedule
from rlx.lowering.report import ArenaBuffer
from rlx.schedule.plan import KernelRef
from rlx.targets.base import BINARY_STAGES, Target
from rlx.view.levels import Level, level_lines, source_level
from rlx.view.picture import Box
from rlx.view.provenance import Provenance
from rlx.view.regions import boxes_of_module

if TYPE_CHECKING:
    from rlx.runtime.profile import Profile

__all__ = ["Buffer", "CompileView", "KernelView", "LaunchView", "watch"]


@frozen
class Listing:
    """A stage of a kernel as text. ``lines`` has for each line that of the kernel's own text which
    it came from (from 1; 0 for none), and is empty where the target does not say."""

    stage: str
    text: str
    lines: list[int]


@frozen
class KernelView:
    """A kernel: its name in LIR, its config, and its listings, its own MLIR text first."""

    name: str
    family: str
    config: str
    listings: list[Listing]


def view_kernel(kernel: KernelRef, target: Target, compilation: Compilation) -> KernelView:
    """Emit a kernel, stage by stage; the time goes to ``compilation``."""
    with compilation.timed("kernel text"):
        text = emit_kernel(kernel.family, kernel.name, kernel.config, target.kernels)
    own = Listing("mlir", text.text, list(range(1, text.text.count("\n") + 2)))
    listings = [own]
    lines = target.emitter.lines(text)
    for stage in target.stages:
        if stage not in BINARY_STAGES:
            with compilation.timed(f"kernel {stage}"):
                emitted = target.emitter.emit([text], stage).decode()
            listings.append(Listing(stage, emitted, lines.get(stage, [])))
    return KernelView(kernel.name, kernel.family, repr(kernel.config), listings)


TITLES = {"hir": "HIR", "mir": "MIR", "fused": "MIR, fused", "lir": "LIR"}


@frozen
class LaunchView:
    """A launch: its kernel, its node, and the types of what it touches in the arena by offset."""

    kernel: str
    node: int
    arena: dict[int, str]


@frozen
class Buffer:
    """A value in the arena, as ``ArenaBuffer`` has it; ``text`` is its type, and ``node`` that of
    the launch that writes it."""

    offset: int
    size: int
    first: int
    last: int
    text: str
    node: int


@frozen
class CompileView:
    """All that the page shows. ``origins`` are those of ``Provenance``, ``launches`` are those of
    main, ``kernel_nodes`` the node of each kernel, ``missed_nodes`` the line of each missed fusion,
    ``boxes`` the picture of the fused level.
    """

    title: str
    target: str
    levels: list[Level]
    origins: list[tuple[int, ...]]
    kernels: list[KernelView]
    kernel_nodes: list[int]
    launches: list[LaunchView]
    arena: list[Buffer]
    arena_bytes: int
    packed_bytes: int
    compilation: Compilation
    missed_nodes: list[int]
    boxes: list[Box]


def watch(
    module: ir.Module,
    level: str,
    compilation: Compilation,
    *,
    title: str,
    parsed: tuple[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    profile: Profile | None = None,
) -> CompileView:
    """Take a module from ``level`` to LIR, and emit the kernels.

    ``parsed`` is the name and the text of what the module was parsed from, if it was, ``texts`` are
    what stands for files that cannot be shown, and ``profile`` is that of the graph, whose times
    the picture has. Raises what a compile raises.
    """
    provenance = Provenance(parsed[0] if parsed else "-")
    levels: list[Level] = []
    boxes: list[Box] = []

    def show(level: str, module: ir.Module) -> None:
        levels.append(_level(level, module, provenance))
        if level == "fused":
            boxes.extend(boxes_of_module(module, profile))

    module = lower(module, compilation, show, level=level)
    schedule = read_schedule(module)
    steps = _launches(module, provenance)
    kernels = [view_kernel(k, compilation.target, compilation) for k in schedule.kernels]
    nodes = {k.name: provenance.node(_uses(k.name, steps.values(), provenance)) for k in kernels}
    _declare(levels[-1], nodes)
    main = steps["main"]
    missed = [provenance.source(*m.location) for m in compilation.fusion.missed]
    source = source_level(provenance, dict([parsed] if parsed else [], **texts or {}))
    return CompileView(
        title, compilation.target.spec, [source, *levels],
        provenance.origins, kernels, [nodes[k.name] for k in kernels], main,
        _buffers(compilation.arena, main), schedule.arena_bytes, schedule.packed_bytes,
        compilation, missed, boxes,
    )  # fmt: skip


def _level(name: str, module: ir.Module, provenance: Provenance) -> Level:
    first = provenance.number(module)
    return level_lines(Level(name, TITLES[name]), module, first, provenance)


def _launches(module: ir.Module, provenance: Provenance) -> dict[str, list[LaunchView]]:
    """The launches of each entry in order, those in loops included."""
    found: dict[str, list[LaunchView]] = {"main": [], "prologue": []}

    for name, entry in functions(module).items():
        if name not in found:
            continue

        def visit(op: ir.Operation, into: list[LaunchView] = found[name]) -> ir.WalkResult:
            if op.name == "func.call":
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                into.append(LaunchView(callee, provenance.own_of(op), _in_arena(op)))
            return ir.WalkResult.ADVANCE

        entry.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _in_arena(call: ir.Operation) -> dict[int, str]:
    """The views of the arena, which is the first argument of an entry, that a launch touches."""
    found: dict[int, str] = {}
    for v in call.operands:
        if isinstance(v.owner, ir.Block) or v.owner.name != "lir.view":
            continue
        base, attrs = v.owner.operands[0], v.owner.attributes
        if ir.BlockArgument(base).arg_number == 0:
            dims = "x".join(map(str, ir.DenseI64ArrayAttr(attrs["shape"])))
            element = ir.MemRefType(v.type).element_type
            found[ir.IntegerAttr(attrs["offset"]).value] = f"{element}[{dims}]"
    return found


def _uses(kernel: str, entries: Iterable[list[LaunchView]], provenance: Provenance) -> set[int]:
    launches = [step.node for entry in entries for step in entry if step.kernel == kernel]
    return {n for node in launches for n in (node, *provenance.origins[node])}


def _declare(lir: Level, nodes: Mapping[str, int]) -> None:
    """The line that declares a kernel is the kernel's."""
    for i, line in enumerate(lir.lines):
        head, found, rest = line.partition("func.func private @")
        if found and not head.strip():
            lir.nodes[i] = nodes.get(rest.split("(")[0], -1)


def _buffers(planned: Sequence[ArenaBuffer], launches: Sequence[LaunchView]) -> list[Buffer]:
    """The arena as the lowering planned it; nothing where LIR is what was read."""
    found: list[Buffer] = []
    for b in planned:
        writer = launches[b.first]
        text = writer.arena.get(b.offset, "")
        found.append(Buffer(b.offset, b.size, b.first, b.last, text, writer.node))
    return found
