"""How Sphinx makes the documentation site: ``make docs``.

The site needs no network, to be built or to be read: scripts, styles and fonts are its own.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import Any

import rlx

project = "RLX"
author = "the RLX authors"
copyright = "the RLX authors"
release = version = rlx.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
exclude_patterns = ["conf.py"]
# The annotation "bytes" is the type, and not a property of that name.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Docstrings say ``x`` for code and `x` for nothing.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 110
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"RLX {release}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "native"
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

_ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_WHOLE = re.compile(r"(?<!!)\[([^\[\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)\)")
_SHOWN = {
    "README.md": "start/readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files at the top of the tree, and the pages of the site that show them."""


def _links(text: str, folder: Path, page: Path) -> str:
    """Links of a file in a folder, as a page has them. Of a file that the site has not, the name
    alone is left."""

    def target(link: str) -> Path:
        path = (folder / link).resolve()
        shown = _SHOWN.get(path.relative_to(_ROOT).as_posix())
        return _ROOT / "docs" / shown if shown is not None else path

    def known(m: re.Match[str]) -> str:
        return m[0] if target(m[2]).is_relative_to(_ROOT / "docs") else m[1]

    def moved(m: re.Match[str]) -> str:
        return f"]({os.path.relpath(target(m[1]), page.parent)}{m[2] or ''})"

    return _LINK.sub(moved, _WHOLE.sub(known, text))


def _read(app: Any, name: str, source: list[str]) -> None:
    page = _ROOT / "docs" / f"{name}.md"
    if not page.exists():
        return
    if page.parent.name == "tutorials":
        offer = f'<a href="../notebooks/{page.stem}.ipynb" download>This page as a notebook</a>'
        source[0] = source[0].replace("\n\n", f"\n\n{offer}\n\n", 1)
    shown = {v: k for k, v in _SHOWN.items()}.get(f"{name}.md")
    if shown is None:
        source[0] = _links(source[0], page.parent, page)
        return
    text = (_ROOT / shown).read_text(encoding="utf-8")
    # The file that a block is of would be an argument of a directive here.
    text = re.sub(r"^```(\w+) \S+$", r"```\1", text, flags=re.MULTILINE)
    source[0] = _links(text, _ROOT, page)


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Programs in docstrings are paragraphs that are indented by four."""
    out: list[str] = []
    inside = False
    for i, line in enumerate(lines):
        begins = line.startswith("    ") and not inside and (i == 0 or not lines[i - 1].strip())
        if begins:
            out += [f".. code-block:: {_language(lines[i:])}", ""]
            inside = True
        elif line.strip() and not line.startswith("    "):
            inside = False
        out.append(line)
    lines[:] = out


def _language(lines: list[str]) -> str:
    """What the indented lines are that these begin with: Python if Python takes them."""
    program = list(takewhile(lambda line: not line.strip() or line.startswith("    "), lines))
    try:
        compile(textwrap.dedent("\n".join(program)), "docstring", "exec")
    except SyntaxError:
        return "text"
    return "python"


def _notebooks(app: Any, failed: Exception | None) -> None:
    sys.path.insert(0, str(_ROOT / "tools"))
    import notebooks

    notebooks.write(Path(app.outdir) / "notebooks")


def setup(app: Any) -> None:
    app.connect("source-read", _read)
    app.connect("build-finished", _notebooks)
    app.connect("autodoc-process-docstring", _docstring)
