"""Make docs/view.png: a compile of MiniLM as ``rlx view`` shows it, with one line selected.

    python tools/view_picture.py [docs/view.png]

It needs MiniLM (`make demo`) and a browser (`make drivers`, then `. .drivers/env`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from find_model import minilm_dir

import rlx
from rlx.models.bert import BertConfig, bert_encoder

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SIZE = (1560, 880)
SELECTED = "mir.gelu"


def line_of(page: str, level: str, part: str) -> int:
    """The number of the first line of a level of a page that has a part, from 1."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    (lines,) = (v["lines"] for v in json.loads(data)["levels"] if v["name"] == level)
    return next(n for n, line in enumerate(lines, 1) if part in line)


def main(path: str = "docs/view.png") -> int:
    """Write the page to a temporary folder, and its picture to a file."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    model = minilm_dir()
    if browser is None or model is None:
        print("there is no browser (make drivers), or no MiniLM (make demo)", file=sys.stderr)
        return 1
    graph = bert_encoder(BertConfig.from_dir(model))
    dims = {"batch": 8, "tokens": 32}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "minilm.html")
        rlx.inspect_html(graph, page, dims=dims, target="cpu:x86-64-v4")
        line = line_of(page.read_text(encoding="utf-8"), "fused", SELECTED)
        subprocess.run(
            [
                browser, "--headless=new", "--no-sandbox", "--hide-scrollbars",
                f"--user-data-dir={folder}/profile", f"--window-size={SIZE[0]},{SIZE[1]}",
                "--virtual-time-budget=5000", f"--screenshot={Path(path).resolve()}",
                f"{page.as_uri()}#fused:{line}",
            ],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
