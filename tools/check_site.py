"""Check the built site: every link and anchor in it resolves, and nothing is loaded from outside.

python tools/check_site.py build/docs
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
"""What a browser loads by itself, by tag: all of it must be in the site."""

ONLY_NAMED = ("next", "prev", "canonical")
"""Kinds of ``link`` that name a page and load nothing."""


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in LOADED and given.get(LOADED[tag]) and given.get("rel") not in ONLY_NAMED:
            self.loads.append(given[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    found.append(f"{where}: {link} is loaded from outside")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{where}: {link} leads nowhere")
            elif parts.fragment and target.suffix == ".html":
                # The theme's own targets: the top of the page, and the search box.
                known = pages[target].anchors if target in pages else set()
                if unquote(parts.fragment) not in known:
                    found.append(f"{where}: {link} has no such anchor")
    return sorted(set(found))


def main(site: str) -> int:
    """Print what is wrong; returns 1 if anything is."""
    found = problems(Path(site).resolve())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
