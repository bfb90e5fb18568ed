"""The page: one file that needs no network, with the compile as data and a script that shows it.

Nothing of the compile is ever HTML: the data is JSON in which no tag can end or begin, and the
script puts it into the page as text; the picture has names and types as escaped text. A policy in
the page lets no other script or file in.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import asdict, astuple
from html import escape
from pathlib import Path
from typing import Any

from rlx.lowering.report import DispatchReport, MissedFusion
from rlx.view.compile import CompileView
from rlx.view.picture import MOST, svg

__all__ = ["page", "page_data"]

_HERE = Path(__file__).resolve().parent


def page(view: CompileView) -> str:
    """The HTML of a view."""
    style, script = _read("page.css"), _read("page.js") + _read("reports.js")
    allowed = f"style-src {_digest(style)}; script-src {_digest(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{escape(_printable(view.title))} - RLX</title>
<style>{style}</style>
</head>
<body>
{_picture(view)}
<noscript>This page shows a compile by a script of its own; scripts are turned off.</noscript>
<script type="application/json" id="data">{_json(page_data(view))}</script>
<script>{script}</script>
</body>
</html>
"""


def _picture(view: CompileView) -> str:
    """The fused level as a picture, folded; nothing where no such level was made, or it is too
    large to look at."""
    if not 0 < len(view.boxes) <= MOST:
        return ""
    count = sum(b.kind in ("op", "fused") for b in view.boxes)
    return (
        f'<details id="picture"><summary>Picture: {count} ops and regions after fusion</summary>'
        f"<div>{svg(view.boxes)}</div></details>"
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _printable(text: str) -> str:
    """File names may hold bytes that are no text."""
    return text.encode(errors="replace").decode()


def _json(data: Any) -> str:
    """JSON in ASCII that holds no character of HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def page_data(view: CompileView) -> dict[str, Any]:
    """What the script reads; in ``page.js`` and ``reports.js``."""
    c = view.compilation
    return {
        "title": view.title,
        "target": view.target,
        "levels": [asdict(v) for v in view.levels],
        "origins": view.origins,
        "kernels": [
            {**asdict(k), "node": node}
            for k, node in zip(view.kernels, view.kernel_nodes, strict=True)
        ],
        "launches": [[step.kernel, step.node] for step in view.launches],
        "arena": {
            "bytes": view.arena_bytes,
            "packed": view.packed_bytes,
            "buffers": [astuple(b) for b in view.arena],
        },
        "fused": sorted(c.fusion.fused.items()),
        "missed": _missed(c.fusion.missed, view.missed_nodes),
        "dispatch": _dispatch(c.dispatch),
        "seconds": list(c.seconds.items()),
    }


def _missed(missed: list[MissedFusion], nodes: list[int]) -> list[dict[str, Any]]:
    """The misses, equal ones once with their number."""
    counts = Counter(zip(missed, nodes, strict=True))
    return [
        {**m._asdict(), "file": m.location[0], "line": m.location[1], "node": node, "count": n}
        for (m, node), n in counts.items()
    ]


def _dispatch(report: DispatchReport) -> list[tuple[str, str, int]]:
    paths = {"native": report.native, "common": report.common, "rewritten": report.rewritten}
    return [(path, name, n) for path, found in paths.items() for name, n in sorted(found.items())]
