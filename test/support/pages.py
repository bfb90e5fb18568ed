"""Pages of ``rlx.inspect_html``, and graphs for them."""

from __future__ import annotations

import json
import re
from typing import Any

import rlx

__all__ = ["CPU", "NAME", "Page", "data_of", "hostile", "two_branches"]

CPU = "cpu:x86-64-v4"


def two_branches() -> rlx.Graph:
    g = rlx.Graph("two_branches")
    x = g.input("x", [8, 16])
    w, b = g.param("w", [16, 32]), g.param("b", [32])
    left = g.linear(x, w, b, activation="gelu")
    right = x.transpose([1, 0]).softmax(axis=-1)
    g.set_outputs([left, right])
    return g


def data_of(page: str) -> dict[str, Any]:
    return json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])


class Page:
    """The page's data, and what it marks when a line is selected."""

    def __init__(self, page: str) -> None:
        self.data = data_of(page)
        self.levels = {v["name"]: v for v in self.data["levels"]}
        self.stages = {s["stage"] for k in self.data["kernels"] for s in k["listings"]}

    def node(self, level: str, text: str) -> int:
        found = self.levels[level]
        lines = [i for i, line in enumerate(found["lines"]) if text in line]
        assert len(lines) == 1, (text, [found["lines"][i] for i in lines])
        return found["nodes"][lines[0]]

    def related(self, node: int, level: str) -> list[str]:
        origins = self.data["origins"]
        found = {node, *origins[node], *(n for n, o in enumerate(origins) if node in o)}
        v = self.levels[level]
        return [s for s, n in zip(v["lines"], v["nodes"], strict=True) if n in found]

    def words(self, node: int, level: str, pattern: str = r'"([hml]ir\.\w+)"') -> list[str]:
        return re.findall(pattern, "\n".join(self.related(node, level)))


NAME = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&amp;\"'\u2028"


def hostile() -> rlx.Graph:
    """A graph of a hostile name, with an input of that name, in a file of such a name."""
    space: dict[str, Any] = {"rlx": rlx, "NAME": NAME}
    code = "g = rlx.Graph(NAME)\ng.set_outputs(g.input(NAME, [4], 'f32').gelu())"
    exec(compile(code, f"{NAME}\n.py", "exec"), space)
    return space["g"]
