"""Kernel configs survive the way through LIR text."""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx._mlir import ir
from rlx.errors import GraphError, IRError
from rlx.kernels.registry import FAMILIES, config_classes
from rlx.lowering.compilation import Options
from rlx.lowering.passes.text_config import decode, encode
from rlx.types import DTYPES


@dataclass(frozen=True)
class Inner:
    kind: str
    value: Any


@dataclass(frozen=True)
class Outer:
    parts: tuple[Any, ...]
    flag: bool
    inner: Inner | None


CLASSES = {"Inner": Inner, "Outer": Outer}
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.sampled_from(list(DTYPES.values())),
    st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)
INNER = st.builds(Inner, st.text('ab"\\\n{}'), LEAVES)
PARTS = st.recursive(LEAVES | INNER, lambda x: st.lists(x, max_size=3).map(tuple), max_leaves=8)
OUTER = st.builds(Outer, st.lists(PARTS, max_size=4).map(tuple), st.booleans(), st.none() | INNER)


def through_text(value: Any, classes: dict[str, type]) -> Any:
    with ir.Context(), ir.Location.unknown():
        return decode(ir.Attribute.parse(str(encode(value))), classes)


@settings(max_examples=60)
@given(OUTER)
def test_a_config_comes_back_as_it_was(value: Outer) -> None:
    back = through_text(value, CLASSES)
    assert repr(back) == repr(value)  # tells 1, 1.0 and True apart, and 0.0 from -0.0


def test_numbers_that_compare_equal_stay_apart() -> None:
    value = Outer((1, 1.0, True, 0.0, -0.0, math.inf, -math.inf, 0, False), False, None)
    assert repr(through_text(value, CLASSES)) == repr(value)
    assert math.isnan(through_text(Inner("x", math.nan), CLASSES).value)


def test_an_unknown_class_is_an_error_that_lists_the_known() -> None:
    with ir.Context(), ir.Location.unknown():
        a = encode(Inner("x", 1))
        with pytest.raises(IRError, match="'Inner', expected one of Outer"):
            decode(a, {"Outer": Outer})
        with pytest.raises(IRError, match="cannot hold"):
            decode(ir.Attribute.parse("affine_map<(d0) -> (d0)>"), CLASSES)


def test_what_no_config_holds_is_refused() -> None:
    with ir.Context(), ir.Location.unknown(), pytest.raises(TypeError, match="cannot hold a set"):
        encode(Inner("x", {1}))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_classes_of_a_family_are_what_its_configs_are_made_of(family: str) -> None:
    classes = config_classes(family)
    assert [name for name in classes if name.endswith("Config")]
    assert "DType" not in classes
    assert all(is_dataclass(kind) and kind.__name__ == name for name, kind in classes.items())


def test_a_class_is_found_within_its_family() -> None:
    """Families may have classes of the same name."""
    assert {"GpuContractionConfig", "Tile", "Split", "Program", "Step"} <= {
        *config_classes("gpu_contraction")
    }
    assert "Rows" in config_classes("loop") and "Rows" not in config_classes("contraction")


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_limit_of_rounds_is_positive(rounds: int) -> None:
    with pytest.raises(GraphError, match=f"number from 1 on, found {rounds}"):
        Options(most_rounds=rounds)
