"""The reference page of an op, from its class: for ``docs/ops.md`` and ``rlx-opt --explain``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from rlx.dialects.context import SharedContext
from rlx.dialects.export import to_mlir
from rlx.ir.graph import Graph
from rlx.ir.op import REQUIRED, Attr, Op, type_of
from rlx.ir.value import Value
from rlx.kernels.registry import families_on
from rlx.lowering.compilation import Compilation
from rlx.lowering.pipeline import planned
from rlx.lowering.report import DispatchReport
from rlx.ops.control.control import Control
from rlx.ops.pointwise.base import ANY, ARITHMETIC, COMPARED, INEXACT, NUMERIC, ORDERED
from rlx.targets import find_target
from rlx.types import FLOATS, DType, f32

__all__ = ["section"]

GROUPS = {
    ANY: "all",
    ORDERED: "all but complex ones and 8-bit floats",
    COMPARED: "all but complex ones",
    FLOATS: "floats",
    INEXACT: "floats, complex",
    NUMERIC: "floats, integers",
    ARITHMETIC: "floats, integers, complex",
}
"""The usual sets of element types, in words."""

TARGET = "cpu:x86-64-v4"
"""Named, so that the page is the same on every machine."""


def section(cls: type[Op]) -> str:
    """What one op says of itself, in Markdown."""
    lines = [f"\n### `{cls.name}`\n", inspect.cleandoc(cls.__doc__ or ""), ""]
    fields = [*_operands(cls), *(_attribute(a) for a in cls.attr_fields)]
    if fields:
        lines += ["| name | kind | |", "|---|---|---|", *fields, ""]
    lines.append(f"Element types: {_dtypes(cls.dtypes)}. Runs: {how(cls)}.{_results(cls)}")
    return "\n".join(lines) + "\n"


def _operands(cls: type[Op]) -> Iterator[str]:
    for f in cls.operand_fields:
        yield _row(f.name, "operand, may be absent" if f.optional else "operand", f.doc)


def _attribute(a: Attr) -> str:
    shown = "" if a.default is REQUIRED else f" = {a.default!r}".replace("rlx.", "")
    return _row(a.name, f"{a.kind}{shown}", a.doc)


def _row(*cells: str) -> str:
    name, kind, doc = (" ".join(c.split()).replace("|", "\\|") for c in cells)
    return f"| `{name}` | {kind} | {doc} |"


def _dtypes(dtypes: tuple[DType, ...]) -> str:
    if not dtypes:
        return "as its attributes say"
    return GROUPS.get(dtypes) or ", ".join(d.name for d in dtypes)


def _results(cls: type[Op]) -> str:
    return "" if cls.result_count == 1 else f" Results: {cls.result_count}."


def how(cls: type[Op]) -> str:
    """How an op is run, with the kernel families that run one of its samples whole."""
    if issubclass(cls, Control):
        return "its body, in its place" if cls.composite() else "control flow"
    if cls.composite():
        way = "expands"
    elif cls.pointwise:
        way = "pointwise"
    elif hasattr(cls, "loops"):
        way = "loops"
    else:
        return "literal"
    report = _dispatch(_graph(cls))
    if not (report.native or report.common or report.rewritten):
        return "view"
    short = cls.name.split(".")[1]
    found = {key.split(": ")[0] for key in report.native if key.endswith(f": {short}")}
    return ", ".join([way, *(f for f in families_on("cpu") if f in found)])


_contexts = SharedContext()


def _dispatch(graph: Graph) -> DispatchReport:
    """What the compiler says of who runs the ops of a graph."""
    compilation = Compilation(find_target(TARGET))
    with _contexts.get() as context:
        planned(to_mlir(graph, context), compilation)
    return compilation.dispatch


def _graph(cls: type[Op]) -> Graph:
    """A graph of the op on all its samples, each on inputs of its own."""
    kind = f32 if f32 in cls.dtypes or not cls.dtypes else cls.dtypes[0]
    graph = Graph(cls.name)
    results: list[Value] = []
    for n, sample in enumerate(cls.samples):
        types = [None if t is None else type_of(t, kind) for t in sample.types]
        leaves = [
            None if t is None else graph.input(f"s{n}_x{i}", t.shape, t.dtype)
            for i, t in enumerate(types)
        ]
        results += cls(*leaves, **sample.attrs).results
    graph.set_outputs(results)
    return graph
