"""The names of the page on porting are there: those of RLX, and those of other libraries where
these are installed."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import pytest

import rlx
from support.documents import ROOT

PAGE = (ROOT / "docs" / "howto" / "porting.md").read_text(encoding="utf-8")


def cells() -> list[tuple[str, str]]:
    """What stands in code in the tables, with the title of its column."""
    found: list[tuple[str, str]] = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, _, *rows = ([c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines())
        for row in rows:
            for title, cell in zip(head, row, strict=True):
                found += [(title, code) for code in re.findall(r"`([^`]+)`", cell)]
    return found


CELLS = cells()


def resolve(name: str) -> Any:
    """What a dotted name means; its modules are imported on the way."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], module)
    raise AssertionError(f"there is no module of {name}")


def test_the_tables_are_read() -> None:
    assert len(CELLS) > 150
    assert {title for title, _ in CELLS} == {"PyTorch", "JAX", "NumPy", "ONNX Runtime", "RLX"}


def test_the_names_of_rlx() -> None:
    g = rlx.Graph("names")
    x = g.input("x", [4, 4])
    g.set_outputs(x)
    f = rlx.Session("cpu").compile(g)
    step = rlx.training.TrainStep
    owners = {"x": x, "q": x, "g": g, "f": f, "step": step, "rlx": rlx}
    for title, code in CELLS:
        if title != "RLX":
            continue
        names = re.findall(r"\b(x|q|g|f|step|rlx)((?:\.[a-z_]\w*)+)", code, re.IGNORECASE)
        assert names or code == "x @ y" or code.startswith("rlx "), code
        for owner, path in names:
            functools.reduce(getattr, path.strip(".").split("."), owners[owner])


@pytest.mark.parametrize(
    ("library", "package"), [("PyTorch", "torch"), ("JAX", "jax"), ("NumPy", "numpy")]
)
def test_the_names_of_another_library(library: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{library} is not installed: it is a peer only")
    names = [code for title, code in CELLS if title == library]
    assert len(names) > 20
    for name in names:
        assert name.startswith(f"{package}."), name
        resolve(name)


def test_the_names_of_onnx_runtime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is a peer only")
    for title, code in CELLS:
        if title == "ONNX Runtime":
            for name in re.findall(r"SessionOptions\.(\w+)", code):
                assert hasattr(onnxruntime.SessionOptions, name), code
