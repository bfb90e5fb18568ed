"""The conversions of f16 that machines without them are given, as code for this one: against
NumPy's, on every f16 and on what lies half way between two."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlx.targets.llvm.half import with_conversions

IR = "define half @same(half %x) {\n  ret half %x\n}\n"

HALVES = np.arange(65536, dtype=np.uint16)


@pytest.fixture(scope="module")
def function() -> Iterator[Callable[[str, Any, Any], Any]]:
    """A function of the text by name, result and argument."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = with_conversions(IR, boxed=False, group="0") + "attributes #0 = { nounwind }\n"
    # Names of their own: the process has functions of the same names.
    text = text.replace("define internal", "define").replace("@__", "@ours_")
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()

    def of(name: str, result: Any, argument: Any) -> Any:
        return ctypes.CFUNCTYPE(result, argument)(engine.get_function_address(f"ours_{name}"))

    yield of


def _same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(found, expected)  # where nan is equal to nan
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


def test_every_f16_widens(function: Callable[[str, Any, Any], Any]) -> None:
    widen = function("extendhfsf2", ctypes.c_float, ctypes.c_uint32)
    found = np.array([widen(int(h)) for h in HALVES], np.float32)
    _same(found, HALVES.view(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "kind", "argument"),
    [("truncsfhf2", np.float32, ctypes.c_float), ("truncdfhf2", np.float64, ctypes.c_double)],
)
def test_ties_and_their_neighbours_narrow(
    name: str, kind: Any, argument: Any, function: Callable[[str, Any, Any], Any]
) -> None:
    narrow = function(name, ctypes.c_uint32, argument)
    exact = np.sort(HALVES[::3].view(np.float16).astype(kind))
    exact = exact[np.isfinite(exact)]
    ties = (exact[1:] + exact[:-1]) / 2
    beside = [np.nextafter(ties, kind(np.inf)), np.nextafter(ties, kind(-np.inf))]
    given = np.concatenate([exact, ties, *beside, np.array([np.inf, -np.inf, np.nan, 1e30], kind)])
    found = np.array([narrow(float(x)) for x in given], np.uint32).astype(np.uint16)
    with np.errstate(all="ignore"):
        _same(found.view(np.float16), given.astype(np.float16))


def test_text_without_halves_stays_as_it_is() -> None:
    assert with_conversions("ret void", boxed=True, group="0") == "ret void"
