"""The pages are whole: the navigation has each, every link and anchor leads somewhere, and the API
reference has every public name. The site that `make docs` builds says the same of itself."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest

import rlx
from rlx.lowering.registry import PASSES
from support.documents import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")])
TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
MARKDOWN = [p for p in [*TOP, *PAGES] if p.suffix == ".md"]

SPAN = re.compile(r"```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
NAMED = re.compile(r"`((?:rlx|test|tools|docs|examples|cmake|bench)/[\w./]*)`")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: Counter[str] = Counter()
    names: set[str] = set()
    for heading in re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return names


def listed(page: Path) -> list[Path]:
    """The pages that the tables of contents on a page name, and those that these name."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    else:
        trees = re.findall(r"^\.\. toctree::\n((?:(?:   .*)?\n)*)", text, re.MULTILINE)
    found: list[Path] = []
    for name in re.findall(r"^ *(?:.* <)?([\w/\-]+)>?$", "\n".join(trees), re.MULTILINE):
        (path,) = (p for s in (".md", ".rst") if (p := page.parent / f"{name}{s}").exists())
        found += [path, *listed(path)]
    return found


def test_the_navigation_has_every_page_once() -> None:
    named = listed(DOCS / "index.md")
    assert not [p for p, count in Counter(named).items() if count > 1]
    expected = set(PAGES) - {DOCS / "index.md"}
    assert set(named) == expected


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_is_linked_is_there(path: Path) -> None:
    text = SPAN.sub("", path.read_text(encoding="utf-8"))
    wrong: list[str] = []
    for target, anchor in LINK.findall(text):
        file = (path.parent / unquote(target)).resolve() if target else path
        if not file.exists():
            wrong.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            wrong.append(f"{target}#{anchor}")
    assert not wrong


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_files_that_are_named_are_there(path: Path) -> None:
    named = set(NAMED.findall(path.read_text(encoding="utf-8")))
    # NAME stands for one that the reader chooses.
    assert not [n for n in sorted(named) if "NAME" not in n and not (ROOT / n).exists()]


def test_the_page_on_the_architecture_has_every_pass_in_order() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^  │  ([a-z-]+) {2,}\S", text, re.MULTILINE)
    assert steps == [*PASSES, "kernels", "load"]


def test_the_glossary_is_sorted_and_names_files() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+) \| (.+) \|$", text, re.MULTILINE)[1:]
    terms = [term for term, _, _ in rows]
    assert len(rows) > 40 and terms == sorted(terms)
    assert [n for _, _, file in rows for n in NAMED.findall(file)] == [f[1:-1] for *_, f in rows]


def test_the_page_on_the_tree_has_every_folder() -> None:
    text = (DOCS / "layout.md").read_text(encoding="utf-8")
    folders = {p.parent.name for p in (ROOT / "rlx").glob("*/__init__.py")}
    assert len(folders) > 20
    assert not {f for f in folders if not re.search(rf"\b{f}/", text)}


def test_the_api_reference_has_every_public_name_once() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted((DOCS / "api").glob("*.rst")))
    named = Counter(re.findall(r"^\.\. auto\w+:: rlx\.(\w+)$", text, re.MULTILINE))
    modules = set(re.findall(r"^\.\. automodule:: rlx\.(\w+)$", text, re.MULTILINE))
    # A name that a documented module exports is there with its module.
    exported = {n for m in modules if m in rlx.NAMESPACES for n in getattr(rlx, m).__all__}
    missing = [n for n in rlx.NAMES if n not in named and n not in exported]
    assert not missing
    assert not [n for n, count in named.items() if count > 1]


def test_a_heading_has_the_anchor_that_github_gives(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`: c, d\n## Twice\n## Twice\n```sh\n# no heading\n```\n")
    assert anchors(page) == {"a-b-c-d", "twice", "twice-1"}


def test_the_check_of_the_site_finds_what_is_wrong(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "tools" / "check_site.py")
    assert spec is not None
    assert spec.loader is not None
    check_site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_site)
    (tmp_path / "a.html").write_text(
        '<p id="here"></p><a href="#here"></a><a href="b.html#no"></a><a href="c.html"></a>'
        '<a href="https://example.org"></a><img src="https://example.org/x.png">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#here"></a><link rel="next" href="a.html">')
    assert check_site.problems(tmp_path) == [
        "a.html: b.html#no has no such anchor",
        "a.html: c.html leads nowhere",
        "a.html: https://example.org/x.png is loaded from outside",
    ]
    assert check_site.problems(tmp_path / "none") == [f"{tmp_path / 'none'} has no pages"]


NOT_PYTHON = {"rlx.h", "rlx.hpp", "rlx.js", "rlx.NAME", "rlx.name", "rlx.packed"}
"""Files, attributes of MLIR and what stands for any name."""


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module or leads to something in one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            found: object = importlib.import_module(".".join(parts[:n]))
            for part in parts[n:]:
                fields = getattr(found, "__annotations__", {})
                if part not in fields and not hasattr(found, part):
                    return False
                found = getattr(found, part, None)
            return True
    return False


def test_names_in_pages_and_docstrings_are_there() -> None:
    found: dict[str, list[str]] = {}
    for path in [*MARKDOWN, *(ROOT / "rlx").rglob("*.py")]:
        for name in set(re.findall(r"`(rlx(?:\.\w+)+)", path.read_text(encoding="utf-8"))):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    wrong = {n: files for n, files in found.items() if n not in NOT_PYTHON and not _is_there(n)}
    assert not wrong
