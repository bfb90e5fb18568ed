"""``rlx.inspect_html``: the page of a graph."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rlx.base.units import bytes_text
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.location import NamedLocation

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs
    from rlx.runtime.profile import Profile

__all__ = ["Page", "inspect_html", "names_of_nodes"]


class Page(str):
    """The text of a page, which a notebook shows in a frame."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<a page of {bytes_text(len(self))}; give a path to write it>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self)}" style="width: 100%; height: 700px; border: 0"'
            ' sandbox="allow-scripts"></iframe>'
        )


@located
def inspect_html(
    graph: Graph,
    path: str | Path | None = None,
    target: str = "cpu",
    *,
    dims: dict[str, int] | None = None,
    profile: Profile | None = None,
    **options: Unpack[OptionArgs],
) -> Page:
    """Compile ``graph`` and return a page, one HTML file, that shows every level of the compile.

    The levels stand side by side, from your lines to the assembly of each kernel, and a line shows
    what it came from and what came of it; below are the arena, fusions and misses, and the times.
    The page holds those of your lines that made the graph. It is written to ``path`` if given, and
    shows itself where it is the last line of a notebook's cell.

    The picture has the times of ``profile`` (``CompiledGraph.profile``), if it is given.
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
        view = watch(
            module, "hir", compilation,
            title=graph.name, texts=names_of_nodes(graph), profile=profile,
        )  # fmt: skip
        text = Page(page(view))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def names_of_nodes(graph: Graph) -> dict[str, str]:
    """The names of an imported model's nodes as lines, in the place of a file that is no text."""
    named: dict[str, dict[int, str]] = {}
    for _, place in graph.places():
        if isinstance(place, NamedLocation) and not place[0].endswith(".py"):
            named.setdefault(place[0], {})[place[1]] = place.name
    return {
        file: "\n".join(names.get(n, "") for n in range(1, max(names) + 1))
        for file, names in named.items()
    }
