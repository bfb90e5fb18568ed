"""The stubs agree with what is found by name as it is used."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlx.ops import BUILDERS, WITHOUT_VALUE
from rlx.schedule.steps import Extent, Field

TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_stubs.py"


@pytest.fixture(scope="module")
def make_stubs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_stubs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up the module of a class
    spec.loader.exec_module(module)
    return module


def test_the_stubs_are_up_to_date(make_stubs: ModuleType) -> None:
    for name, text in make_stubs.STUBS.items():
        written = (make_stubs.PACKAGE / name).read_text(encoding="utf-8")
        assert written == text(), f"rlx/{name} is old: run tools/make_stubs.py"


def test_every_builder_is_declared(make_stubs: ModuleType) -> None:
    tree = ast.parse(make_stubs.stub())
    declared = {
        c.name: {f.name for f in c.body if isinstance(f, ast.FunctionDef)}
        for c in tree.body
        if isinstance(c, ast.ClassDef)
    }
    # Graph declares these itself.
    assert set(BUILDERS) - declared["GraphOps"] == {"constant", "iota"}
    # These take no Value first.
    assert set(BUILDERS) - declared["ValueOps"] == set(WITHOUT_VALUE)


def test_every_method_says_what_it_does(make_stubs: ModuleType) -> None:
    for method in make_stubs.methods():
        first = method.text.split("\n\n")[0]
        assert first.endswith((".", ":")), f"{method.name}: {first!r}"


WRONG = {
    "bytes counts nothing": (Field("bytes", "word"),),
    "bytes counts bytes, and no place holds them": (Field("bytes", "word", "bytes"),),
    "to does not say what lies there": (Field("to", "place"),),
    "to does not say what lies there in every": (
        Field("kind", "word", "choice"),
        Field("to", "place", holds=(Extent(where=("kind", (1,))),)),
    ),
    "size is no word": (Field("to", "place", holds=(Extent(by=("size",)),)),),
    "elements needs one of the unit 'element type'": (
        Field("n", "word", "elements"), Field("to", "place", holds=(Extent(by=("n",)),)),
    ),
    "rank needs one of the unit 'ranks'": (Field("peers", "words", "rank"),),
}  # fmt: skip


@pytest.mark.parametrize("says", WRONG)
def test_a_row_that_leaves_a_count_or_a_place_unchecked_is_no_row(
    make_stubs: ModuleType, says: str
) -> None:
    assert says in str(make_stubs.unsaid(WRONG[says]))
