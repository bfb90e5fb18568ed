"""The page in a browser: its script runs, marks what is linked, and runs nothing else."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import rlx
import rlx.view.page as pages
from support.pages import CPU, NAME, data_of, hostile, two_branches

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is here")


def dom(page: str, fragment: str, tmp_path: Path) -> str:
    """The page's elements as text after its script ran, without the script and the data."""
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    options = ["--headless", "--disable-gpu", "--no-sandbox", "--window-size=1800,1000"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [str(BROWSER), *options, profile, "--dump-dom", f"{path.as_uri()}#{fragment}"],
        capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)


def marked(text: str, kind: str) -> dict[str, list[int]]:
    """The lines of each pane that carry a class."""
    found: dict[str, list[int]] = {}
    for classes, pane, line in re.findall(r'<div class="(row[^"]*)"[^>]*id="(\w+)-(\d+)"', text):
        if kind in classes.split():
            found.setdefault(pane, []).append(int(line))
    return found


def line_of(page: str, level: str, text: str) -> int:
    lines = next(v["lines"] for v in data_of(page)["levels"] if v["name"] == level)
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_a_fragment_selects_a_line_and_marks_what_is_linked(tmp_path: Path) -> None:
    page = rlx.inspect_html(two_branches(), target=CPU)
    here = line_of(page, "hir", "hir.linear")
    text = dom(page, f"hir:{here}", tmp_path)
    assert marked(text, "selected") == {"hir": [here]}
    related = marked(text, "related")
    assert related["mir"] == [line_of(page, "mir", f'"mir.{n}"') for n in ("matmul", "add", "gelu")]
    assert line_of(page, "lir", "    call @contraction") in related["lir"]
    assert line_of(page, "lir", "    call @rowwise") not in related["lir"]
    assert len(related["source"]) == 1
    # The kernel of the launch is the one that is shown.
    assert re.search(r'id="asm-\d+"[^>]*><i>\d+</i><span>contraction_\d+_body:', text)


def test_a_line_of_assembly_marks_the_line_that_it_came_from(tmp_path: Path) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [64]).sqrt())
    page = rlx.inspect_html(g, target=CPU)
    (kernel,) = data_of(page)["kernels"]
    mlir, _, asm = (s["text"].splitlines() for s in kernel["listings"])
    line = next(i for i, text in enumerate(asm, 1) if "vsqrtps" in text)
    found = marked(dom(page, f"{kernel['name']}/asm:{line}", tmp_path), "related")
    (root,) = found["mlir"]
    assert "math.sqrt" in mlir[root - 1]
    assert line in found["asm"] and found["lir"] and found["llvm"]


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path) -> None:
    text = dom(rlx.inspect_html(hostile(), target=CPU), "", tmp_path)
    title = html.unescape(re.findall(r"<h1>(.*?)</h1>", text, re.DOTALL)[0])
    assert title == NAME
    assert "<img" not in text and "<title>owned" not in text


USE = """
const press = (...keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true })));
const ids = (kind) => [...document.querySelectorAll(`.row.${kind}`)].map((r) => r.id);
const noted = {};

document.querySelector("#pane-hir .code").focus();
press("End", "ArrowUp");
noted.moved = ids("selected");
press("End", "ArrowRight", "ArrowDown");
noted.right = ids("selected");
press("/");
search.value = "SOFTMAX";
search.dispatchEvent(new Event("input"));
noted.hits = ids("hit");
press("Enter", "Enter");
noted.second = ids("selected");
search.blur();
press("1", "2", "3", "Escape");
noted.panes = [...panes.values()].filter((p) => !p.box.hidden).map((p) => p.name);
noted.cleared = ids("selected");
document.body.append(make("pre", { id: "noted" }, JSON.stringify(noted)));
"""


def test_keys_move_the_selection_and_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pages._read
    used = {"reports.js": USE}
    monkeypatch.setattr(pages, "_read", lambda name: read(name) + used.get(name, ""))
    page = rlx.inspect_html(two_branches(), target=CPU)
    text = dom(page, "", tmp_path)
    noted = json.loads(html.unescape(re.findall(r'<pre id="noted">(.*?)</pre>', text)[0]))
    softmax = line_of(page, "hir", "mir.softmax")
    assert noted["moved"] == [f"hir-{softmax - 1}"]
    # To the right is the fused level, where the region of softmax comes first.
    assert noted["right"] == [f"fused-{line_of(page, 'fused', 'mir.softmax') - 1}"]
    found = [f"{level}-{line_of(page, level, 'mir.softmax')}" for level in ("hir", "fused")]
    assert noted["hits"][1:3] == found and noted["hits"][0].startswith("source-")
    assert noted["second"] == found[:1]
    assert noted["panes"] == ["mir", "fused", "lir", "asm"] and noted["cleared"] == []
