"""The oracle of symbolic lowering: bound to sizes it computes what a compile for them does.

``judge`` lowers a graph with symbols at some sizes and compares, at all sizes given that meet the
guards, every kernel, word and constant with those of the bound graph. What differs, as where the
bound graph has folded numbers of a known count, is run beside it and must have the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rlx.base.dims import Dim, SymDim
from rlx.base.giving_way import compiles
from rlx.compiler.driver import CompileReport, compile_schedule, lowered
from rlx.compiler.symbolic import SymbolicSchedule, lower_symbolic
from rlx.errors import FaultError, RlxError
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.replay import replay
from rlx.ir.value import Value
from rlx.lowering.compilation import Compilation
from rlx.runtime.executable import Executable
from rlx.schedule.bind import bind_schedule
from rlx.schedule.plan import Schedule
from rlx.targets import find_target
from rlx.types import TensorType, dtype

__all__ = [
    "differences",
    "is_bound",
    "judge",
    "lower_at",
    "numbers_of",
    "sizes_of",
    "with_sizes",
    "with_symbol",
    "with_symbols",
]  # fmt: skip

LABELS = ("ops", "trail", "place", "trails", "sites")
"""Fields of a step's origin that people read."""


def lower_at(
    graph: Graph, sizes: Mapping[str, int], general: bool = False, target: str = "cpu"
) -> SymbolicSchedule:
    """The symbolic schedule of a graph at sizes, for a target; by default this machine's CPU."""
    with compiles:
        return lower_symbolic(graph, sizes, Compilation(find_target(target)), general)


def judge(
    graph: Graph,
    at: Mapping[str, int],
    others: Iterable[Mapping[str, int]],
    general: bool = False,
    most: int | None = None,
) -> tuple[int, list[str]]:
    """How many sizes met the guards, and what was found to differ there. Of the others no more than
    ``most`` that meet them are tried."""
    found = lower_at(graph, at, general)
    assert found.serves(at), f"its own sizes {at} do not meet {found.guards}"
    met, wrong = 0, list[str]()
    for sizes in (at, *others):
        if not found.serves(sizes):
            continue
        if most is not None and met > most:
            break
        met += 1
        with compiles:
            wanted = lowered(graph.bind(sizes), Compilation(find_target("cpu")))
        given = bind_schedule(found.schedule, sizes)
        differ = differences(given, wanted)
        if differ and _bits(given, sizes) != _bits(wanted, sizes):
            guards = ", ".join(map(str, found.guards))
            wrong.append(f"lowered at {at}, bound to {sizes} ({guards}): {'; '.join(differ[:3])}")
    return met, wrong


def _bits(schedule: Schedule, sizes: Mapping[str, int]) -> list[bytes] | str:
    """What a schedule computes on some numbers, or how it fails."""
    target = find_target("cpu")
    with compiles:
        artifact = compile_schedule(schedule, target, CompileReport(Compilation(target)))
    executable = Executable(artifact)
    rng = np.random.default_rng(0)
    for name, dt, shape in schedule.params:
        executable.weights.set_param(name, numbers_of(rng, dt, shape))
    given = [numbers_of(rng, dt, shape) for _, dt, shape in schedule.inputs]
    try:
        return [a.tobytes() for a in executable.run_slots(*given)]
    except FaultError as e:
        return with_sizes(e.message, sizes)


def with_sizes(message: str, sizes: Mapping[str, int]) -> str:
    """A message, which names the symbols of sizes, with the sizes."""
    for name, size in sizes.items():
        message = re.sub(rf"\b{name}\b", str(size), message)
    return message


def numbers_of(rng: np.random.Generator, name: str, shape: Sequence[int]) -> Any:
    """Numbers of an element type: 0 and 1, of floats others."""
    dt = dtype(name)
    if dt.is_float or dt.is_complex:
        return rng.standard_normal(shape).astype(dt.numpy)
    return rng.integers(0, 2, shape).astype(dt.numpy)


def differences(a: Schedule, b: Schedule) -> list[str]:
    """Where two schedules differ."""
    return list(_differ(a, b, ""))


def _differ(a: Any, b: Any, at: str) -> Iterable[str]:  # noqa: C901
    if type(a) is not type(b):
        yield f"{at}: {a!r} and {b!r}"
    elif is_dataclass(a) and not isinstance(a, type):
        for f in fields(a):
            if f.name not in LABELS:
                yield from _differ(getattr(a, f.name), getattr(b, f.name), f"{at}.{f.name}")
    elif isinstance(a, tuple | list):
        if len(a) != len(b):
            yield f"{at}: {len(a)} and {len(b)} items"
        for n, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from _differ(x, y, f"{at}[{n}]")
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            yield f"{at}: the arrays differ"
    elif repr(a) != repr(b):  # which is one for nan
        yield f"{at}: {a!r} and {b!r}"


def is_bound(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether a graph may have these sizes."""
    try:
        graph.bind(sizes)
    except RlxError:
        return False
    return True


def sizes_of(graph: Graph) -> list[int]:
    """The sizes of its leaves that can be symbols."""
    return sorted({d for v in graph.inputs for d in v.shape if isinstance(d, int) and d > 1})


def with_symbols(graph: Graph) -> list[tuple[Graph, int]]:
    """The graph with each size of its leaves as a symbol, where its ops can say their shapes."""
    found: list[tuple[Graph, int]] = []
    for size in sizes_of(graph):
        try:
            found.append((with_symbol(graph, size), size))
        except RlxError:
            continue
    return found


def with_symbol(graph: Graph, size: int, name: str = "n") -> Graph:
    """A graph in which every dim of a size is the symbol of a name: those of leaves, and those in
    attributes. Raises as its ops do where they cannot say their shapes with it."""
    symbol = SymDim.symbol(name)

    def dim(d: Dim) -> Dim:
        return symbol if d == size else d

    def type_of(v: Value) -> TensorType:
        return v.type.with_shape(tuple(dim(d) for d in v.shape))

    def body(g: Graph) -> Graph:
        return _rebuilt(g)

    changed: dict[str, Any] = {"tuple[Dim, ...]": lambda ds: tuple(map(dim, ds)), "Graph": body}

    def node(op: Op, operands: Any) -> Any:
        attrs = {
            a.name: changed[a.kind](op.attrs[a.name]) for a in op.attr_fields if a.kind in changed
        }
        return op.with_operands(operands, **attrs).results

    def _rebuilt(g: Graph) -> Graph:
        out, env = leaves_of(g, type_of)
        replay(g.nodes(), env, node)
        out.outputs, out.output_names = [env[v] for v in g.outputs], g.output_names
        out.param_values = {}
        return out

    return _rebuilt(graph)
