"""What notebooks show of RLX's objects: HTML without scripts, in the colours of the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from rlx.base.units import counted
from rlx.inspect.facts import facts_of_artifact, lines_of
from rlx.view.picture import MOST, boxes_of_graph, short_type, svg

if TYPE_CHECKING:
    from rlx.compiler.observe import PipelineInspect
    from rlx.ir.graph import Graph
    from rlx.ir.value import Value
    from rlx.runtime.artifact import Artifact
    from rlx.runtime.profile import Profile
    from rlx.runtime.session import CompiledGraph, Session

__all__ = [
    "artifact_html", "compiled_html", "graph_html", "picture_html", "pipeline_html",
    "profile_html", "session_html", "value_html",
]  # fmt: skip


def graph_html(graph: Graph) -> str:
    """The signature of a graph, and its picture."""
    nodes = len(graph.nodes()) if graph.outputs else 0
    head = _head(
        f"Graph {graph.name}", f"{counted(nodes, 'node')}, {counted(len(graph.params), 'param')}"
    )
    if not graph.outputs:
        rows = [(str(v.name), short_type(v.type)) for v in graph.inputs]
        return head + _table(("input", "type"), rows) + "<div>it has no outputs yet</div>"
    return head + picture_html(graph)


def picture_html(graph: Graph) -> str:
    """The picture of a graph, in a pane that scrolls; of a large one what its ops are."""
    boxes = boxes_of_graph(graph)
    if len(boxes) > MOST:
        from rlx.inspect.listing import list_graph

        said = f"{len(boxes)} boxes are too many to look at; {list_graph(graph).stats}"
        return _text(said)
    return f'<div style="max-height: 600px; overflow: auto">{svg(boxes)}</div>'


def value_html(v: Value) -> str:
    """A value: its type, what made it, and where."""
    rows = [("type", short_type(v.type))]
    if v.name:
        rows.insert(0, ("name", v.name))
    if v.op is not None:
        file, line = v.op.location
        operands = ", ".join(short_type(o.type) for o in v.op.present)
        rows += [("op", f"{v.op.short}({operands})"), ("made at", f"{file}:{line}")]
    return _head("Value", "") + _table(("", ""), rows)


def compiled_html(f: CompiledGraph) -> str:
    """The signature of a compiled graph, and what its compiles said of themselves."""
    inputs, outputs = f.signature
    names = f.graph.output_names or [str(i) for i in range(len(outputs))]
    rows = [("input", name, short_type(t)) for name, t in inputs]
    rows += [("output", n, short_type(t)) for n, t in zip(names, outputs, strict=True)]
    reports = "\n\n".join(str(r) for r in f.reports) or "nothing is compiled yet"
    return (
        _head("CompiledGraph", f"on {f.backend.name}")
        + _table(("", "name", "type"), rows)
        + _folded("graph", picture_html(f.graph))
        + _folded("how it was compiled", _text(reports))
    )


def pipeline_html(p: PipelineInspect) -> str:
    """The levels of a compile, each to be unfolded."""
    levels = [
        ("HIR", p.hir), ("MIR", p.mir), ("MIR, fused", p.fused), ("LIR", p.lir),
        ("what fusion changed", p.diff), ("fusion", p.fusion), ("dispatch", p.dispatch),
    ]  # fmt: skip
    rows = [(name, f"{1e3 * took:.2f} ms") for name, took in p.seconds.items()]
    folded = [_folded(name, _text(text)) for name, text in levels]
    return _head("Compile", "") + "".join(folded) + _folded("times", _table(("", ""), rows))


def profile_html(p: Profile) -> str:
    """The rows of a profile, the slowest first, with bars of their shares."""
    if p.whole:
        return _text(str(p))
    head, *rows = p.table()
    shares = [r.seconds / p.launched if p.launched else 0.0 for r in p.slowest()]
    bars = [
        f'<div style="background: #f08030; height: 0.7em; width: {120 * s:.0f}px"></div>'
        for s in shares
    ]
    cells = [[*map(escape, row), bar] for row, bar in zip(rows, bars, strict=True)]
    sums = "\n".join(p.sums())
    return _raw_table([*map(escape, head), ""], cells) + _text(sums)


def artifact_html(a: Artifact) -> str:
    """The signature, the dims and the variants of an artifact."""
    text = "\n".join(lines_of(facts_of_artifact(a), False))
    return _head("Artifact", "") + _text(text)


def session_html(s: Session) -> str:
    """The device of a session, and in what it computes."""
    from rlx.runtime.devices.available import full_name

    rows = [("device", f"{s.device}: {full_name(s.device)}"), ("precision", str(s.precision))]
    return _head("Session", "") + _table(("", ""), rows)


def _head(name: str, said: str) -> str:
    return f"<div><b>{escape(name)}</b> {escape(said)}</div>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _raw_table(list(map(escape, head)), [list(map(escape, row)) for row in rows])


def _raw_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML, which scrolls where it is wider than the notebook."""
    top = "".join(f"<th>{c}</th>" for c in head) if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in rows)
    table = f"<table>{f'<tr>{top}</tr>' if top else ''}{body}</table>"
    return f'<div style="overflow-x: auto">{table}</div>'


def _folded(name: str, html: str) -> str:
    return f"<details><summary>{escape(name)}</summary>{html}</details>"


def _text(said: str) -> str:
    """Lines as they are, which scroll like tables."""
    return f'<pre style="overflow-x: auto">{escape(said)}</pre>'
