"""``rlx.inspect_html``: the page of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlx.ir.builders import located
from rlx.ir.graph import Graph

__all__ = ["inspect_html"]


@located
def inspect_html(
    graph: Graph,
    path: str | Path | None = None,
    target: str = "cpu",
    *,
    dims: dict[str, int] | None = None,
    **options: Any,
) -> str:
    """Compile ``graph`` and return a page, one HTML file, that shows every level of the compile.

    The levels stand side by side, from your lines to the assembly of each kernel, and a line shows
    what it came from and what came of it; below are the arena, fusions and misses, and the times.
    The page holds those of your lines that made the graph. It is written to ``path`` if given.

    ``target``, ``dims`` and ``options`` are those of ``rlx.inspect_pipeline``, and so are the
    errors.
    """
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.lowering.compilation import Compilation, Options
    from rlx.targets import find_target
    from rlx.view.compile import watch
    from rlx.view.page import page

    compilation = Compilation(find_target(target), Options.of(options))
    bound = graph.bind(dims) if dims else graph
    context = make_context()
    with context:
        with compilation.timed("to-mlir"):
            module = to_mlir(bound, context)
        text = page(watch(module, "hir", compilation, title=graph.name))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
