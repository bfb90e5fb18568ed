"""IR dumps (RLX_IR_DUMP): every compile shows its levels, on standard error or in files."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rlx import knobs
from rlx.errors import KnobError, did_you_mean
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Compilation, Options
from rlx.lowering.report import times_text
from rlx.targets.base import Target

__all__ = ["dump_levels", "section"]

_dumped: Counter[str] = Counter()
"""How often this process has dumped to each file or name in a directory."""


def dump_levels(graph: Graph, target: Target, options: Options) -> None:
    """Write the levels of a graph where RLX_IR_DUMP says, each as it is reached, so that those
    before a failure are there. The graph is lowered once more for this, so that it is shown on a
    cache hit too. KnobError if it says no level, or nothing can be written there."""
    said = knobs.ir_dump.get()
    if not said:
        return
    from rlx.dialects.context import make_context
    from rlx.dialects.export import to_mlir
    from rlx.lowering.levels import lower

    compilation = Compilation(target, options)
    try:
        write = _writer(said, graph.name)
        with make_context() as context:
            module = to_mlir(graph, context)
            lower(module, compilation, lambda level, module: write(level, str(module)))
        reports = (compilation.fusion, compilation.dispatch, times_text(compilation.seconds))
        write("reports", "\n\n".join(map(str, reports)))
    except OSError as e:
        raise KnobError(
            f"environment variable {knobs.ir_dump.variable} is {said!r}: {e.strerror}"
        ) from None


def section(title: str, text: str) -> str:
    """A text under a line with its title."""
    return f"===== {title} =====\n{text.rstrip()}\n"


def _writer(said: str, name: str) -> Callable[[str, str], None]:
    """What writes a level (or the reports) of the graph called ``name``."""
    if "/" not in said:
        return _printer(said, name)
    if said.endswith("/") or Path(said).is_dir():
        return _directory(Path(said), name)
    path, first = Path(said), not _dumped[said]
    _dumped[said] += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    if first:
        path.write_text("", encoding="utf-8")

    def append(level: str, text: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(section(f"{name}: {level}", text))

    return append


def _printer(said: str, name: str) -> Callable[[str, str], None]:
    from rlx.lowering.pipeline import STAGES

    wanted = [w.strip() for w in said.split(",") if w.strip()]
    known = (*STAGES, "all")
    for w in wanted:
        if w not in known:
            raise KnobError(
                f"environment variable {knobs.ir_dump.variable} is {said!r}: no level is called "
                f"{w!r}{did_you_mean(w, known)}; expected {knobs.ir_dump.form}"
            )

    def show(level: str, text: str) -> None:
        if level in wanted or "all" in wanted:
            print(section(f"{name}: {level}", text), file=sys.stderr)

    return show


def _directory(folder: Path, name: str) -> Callable[[str, str], None]:
    """A file for each level. A second compile of a name gets a number, so that none is lost."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = str(folder / (re.sub(r"[^\w-]", "_", name)[:80] or "main"))
    _dumped[stem] += 1
    if _dumped[stem] > 1:
        stem += f".{_dumped[stem]}"

    def write(level: str, text: str) -> None:
        from rlx.lowering.pipeline import STAGES

        ending = "mlir" if level in STAGES else "txt"
        Path(f"{stem}.{level}.{ending}").write_text(text.rstrip() + "\n", encoding="utf-8")

    return write
