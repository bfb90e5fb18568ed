"""What notebooks show: HTML that says what an object is, without scripts and broken tags."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError
from rlx.models.progress import Progress
from rlx.training.fit import History
from rlx.view.chart import chart
from rlx.view.picture import MOST, Box, boxes_of_graph, svg

VOID = {"line", "rect", "path", "polyline", "br", "hr"}


class Checked(HTMLParser):
    """Reads HTML, and fails for a tag that does not close another."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script"
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def shown(thing: Any) -> str:
    """The text that a notebook shows."""
    parser = Checked()
    parser.feed(thing._repr_html_())
    assert not parser.open
    return parser.text


def graph(rows: int | str = 8) -> rlx.Graph:
    g = rlx.Graph("small <b>")
    x = g.input("x & y", [rows, 16])
    y = (x @ g.param("w", value=np.eye(16, dtype=np.float32)) + 1.0).gelu()
    g.set_outputs({"y": y, "mean": (y + x).mean(axes=0)})
    return g


def test_a_graph_is_its_picture() -> None:
    said = shown(graph("batch"))
    for part in ("small <b>", "x & y", "f32[batch, 16]", "w: f32[16, 16]", "gelu", "output mean"):
        assert part in said
    empty = rlx.Graph("new")
    empty.input("x", [2])
    assert "it has no outputs yet" in shown(empty)


def test_a_large_graph_is_counted() -> None:
    g = rlx.Graph("long")
    x = g.input("x", [2])
    for _ in range(MOST):
        x = x.exp()
    g.set_outputs([x])
    assert f"{MOST + 2} boxes are too many to look at" in shown(g) and "exp=600" in shown(g)


def test_values_and_what_is_compiled() -> None:
    g = graph()
    said = shown(g.outputs[0])
    assert "gelu(f32[8, 16])" in said and f"{Path(__file__).name}:" in said
    assert "x & y" in shown(g.inputs[0])
    f = rlx.Session().compile(g)
    assert "fused" in shown(f) and "mean" in shown(f)
    assert "cpu" in shown(rlx.Session())
    assert "variant 0" in shown(rlx.compile_artifact(g))
    assert "mir.fused" in shown(rlx.inspect_pipeline(g))
    profile = f.profile({"x & y": np.ones((8, 16), np.float32)}, 2)
    assert "contraction" in shown(profile) and "1024 B of params" in shown(profile)


def test_a_page_shows_itself_and_is_short_in_text() -> None:
    page = rlx.inspect_html(graph())
    assert len(repr(page)) < 80 < len(page)
    assert page.startswith("<!doctype html>") and isinstance(page, str)
    frame = page._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "<!doctype" not in frame
    assert 'id="picture"' in page and "fused contraction" in page and "output mean" in page


def test_the_picture_of_a_page_has_times() -> None:
    g = graph()
    f = rlx.Session().compile(g)
    page = rlx.inspect_html(g, profile=f.profile({"x & y": np.ones((8, 16), np.float32)}, 2))
    assert re.search(r"[\d.]+ us, [\d.]+%", page)
    assert not re.search(r"[\d.]+ us, [\d.]+%", rlx.inspect_html(g))


# -- pictures ------------------------------------------------------------------------------


def drawn(text: str) -> dict[str, tuple[float, float, float, float]]:
    """The boxes of a picture by their first line: left, top, right, bottom."""
    found: dict[str, tuple[float, float, float, float]] = {}
    for group in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}g"):
        rect, name = group[0].attrib, group[2].text
        x, y, w, h = (float(rect[k]) for k in ("x", "y", "width", "height"))
        found[str(name)] = (x, y, x + w, y + h)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_boxes_lie_below_what_they_read_and_on_no_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes: list[Box] = []
    for i in range(int(rng.integers(1, 40))):
        count = int(rng.integers(0, min(i, 3) + 1))
        reads = tuple(int(n) for n in rng.choice(i, count, replace=False)) if i else ()
        boxes.append(Box("op", (f"n{i}", "x" * int(rng.integers(1, 30))), reads))
    text = svg(boxes)
    found = drawn(text)
    assert len(found) == len(boxes)
    left, top, wide, high = map(float, ElementTree.fromstring(text).attrib["viewBox"].split())
    for i, b in enumerate(boxes):
        x0, y0, x1, y1 = found[f"n{i}"]
        assert left <= x0 and x1 <= left + wide and top <= y0 and y1 <= top + high
        for n in b.reads:
            assert found[f"n{n}"][3] < y0
        for j in range(i):
            a0, b0, a1, b1 = found[f"n{j}"]
            assert x1 <= a0 or a1 <= x0 or y1 <= b0 or b1 <= y0


def test_boxes_of_a_graph_are_joined_as_its_nodes_are() -> None:
    boxes = boxes_of_graph(graph())
    names = [b.lines[0] for b in boxes]
    joined = {(names[n], b.lines[0]) for b in boxes for n in b.reads}
    assert {("x & y", "matmul"), ("gelu", "output y"), ("reduce_mean", "output mean")} <= joined


# -- training ------------------------------------------------------------------------------


def history(losses: list[float]) -> History:
    steps: Any = [SimpleNamespace(loss=loss) for loss in losses]
    return History(10, steps, seconds=2.0)


def test_a_history_is_a_line_and_a_curve(tmp_path: Path) -> None:
    h = history([2.0, 1.0, float("nan"), 0.5])
    assert str(h) == "trained 4 steps in 2.0 s (500.0 ms a step): loss 2 to 0.5"
    assert "loss 2 to 0.5" in repr(h) and len(repr(h)) < 100
    assert "14" in shown(h) and "step" in shown(h)
    h.plot(tmp_path / "loss.svg")
    curves = list(
        ElementTree.parse(tmp_path / "loss.svg").iter("{http://www.w3.org/2000/svg}polyline")
    )
    assert [len(c.attrib["points"].split()) for c in curves] == [2, 1], "nan is a gap"
    assert "no batch" in str(history([])) and shown(history([]))
    with pytest.raises(GraphError, match="no batch"):
        history([]).plot(tmp_path / "none.svg")


def test_long_curves_have_few_points() -> None:
    text = chart([float(i) for i in range(100_000)], 0, "step", "loss")
    assert len(text) < 50_000


def test_lines_come_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    clock = iter(i * 0.5 for i in range(1000))
    monkeypatch.setattr("rlx.models.progress.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    with Progress("loss 1", 400, None, stream, lines=True) as bar:
        for _ in range(400):
            bar.advance()
    done = [int(line.split("/")[0]) for line in stream.getvalue().splitlines()]
    assert done == [2, 4, 8, 16, 32, 64, 128, 248, 368]
    assert stream.getvalue().splitlines()[0] == "2/400: loss 1, 199 s left"


# -- prompts -------------------------------------------------------------------------------


def test_a_prompt_shows_what_an_object_is() -> None:
    session = rlx.Session("cpu")
    f = session.compile(graph("batch"))
    assert repr(session) == "Session on cpu, in f32"
    assert repr(f) == (
        "CompiledGraph 'small <b>' on cpu: (x & y: batchx16xf32) -> y: batchx16xf32, mean: 16xf32"
    )
    g = rlx.Graph("plain")
    g.set_outputs([g.input("x", [2]) * 2.0])
    assert repr(session.compile(g)) == "CompiledGraph 'plain' on cpu: (x: 2xf32) -> 2xf32"
    loss = rlx.Graph("line")
    w = loss.param("w", value=np.ones(2, np.float32))
    loss.set_outputs([(loss.input("x", [2]) * w).sum()])
    step = rlx.compile_training(loss, rlx.optim.SGD(0.1))
    step({"x": np.ones(2, np.float32)})
    assert repr(step) == "TrainStep of 'line': 1 param, batch 1"


def test_ipython_prints_reports_as_pages() -> None:
    f = rlx.Session("cpu").compile(graph())
    (report,) = f.reports
    found: list[str] = []
    printer = SimpleNamespace(text=found.append)
    whole = [report, report.compilation.fusion, report.compilation.dispatch]
    for page in (*whole, rlx.inspect_pipeline(graph())):
        page._repr_pretty_(printer, False)
        assert found.pop() == str(page) != repr(page)
