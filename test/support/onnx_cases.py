"""ONNX's own test cases of single op types, run through ``rlx.from_onnx``.

The cases are those of ``onnx.backend.test``. A case counts if its inputs and outputs are tensors of
our element types. Inputs whose elements decide shapes are found from what the import says, and are
given as ``constants``. ``test/frontends/onnx_node_cases.txt`` lists what became of every case;
``tools/onnx_cases.py`` writes it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, numpy_helper

import rlx
from rlx.errors import RlxError, UnsupportedError
from rlx.frontends.onnx.tensors import ELEM_TYPES, type_text

__all__ = [
    "TABLE",
    "Case",
    "Outcome",
    "all_cases",
    "compare",
    "is_expanded",
    "listed",
    "outcomes",
    "prepared",
]

TABLE = Path(__file__).resolve().parents[1] / "frontends" / "onnx_node_cases.txt"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model of one node or a few, and what it gives for what."""

    name: str
    model: ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def feeds(self) -> dict[str, Any]:
        """The inputs by name."""
        names = [v.name for v in self.model.graph.input]
        return dict(zip(names, self.inputs, strict=False))

    def excluded(self) -> str:
        """Why the case does not count; empty if it does."""
        for v in (*self.model.graph.input, *self.model.graph.output):
            reason = _foreign(v.type)
            if reason:
                return reason
        return ""


def _foreign(t: TypeProto) -> str:
    kind = str(t.WhichOneof("value")).removesuffix("_type")
    if kind != "tensor":
        return kind
    found = t.tensor_type.elem_type
    return "" if found in ELEM_TYPES.values() else type_text(found).lower()


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in the order of names."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    assert all(len(c.data_sets) == 1 for c in found)
    cases = [
        Case(
            c.name, c.model, _arrays(c.data_sets[0][0]), _arrays(c.data_sets[0][1]), c.rtol, c.atol
        )
        for c in found
    ]
    return tuple(sorted(cases, key=lambda c: c.name))


@dataclass(frozen=True)
class Prepared:
    """An imported case, with the inputs that are left, and those that were fixed."""

    case: Case
    graph: rlx.Graph
    feeds: dict[str, Any]
    fixed: tuple[str, ...]


def prepared(case: Case) -> Prepared:
    """Import a case, fixing inputs as the import asks for them."""
    fixed: dict[str, Any] = {}
    while True:
        try:
            graph = rlx.from_onnx(case.model, constants=fixed)
        except UnsupportedError as error:
            asked = set(re.findall(r"'([^']+)': array", error.message)) - set(fixed)
            if not asked:
                raise
            fixed |= {name: case.feeds[name] for name in asked}
        else:
            left = {n: a for n, a in case.feeds.items() if n not in fixed}
            return Prepared(case, graph, left, tuple(sorted(fixed)))


def compare(case: Case, found: Sequence[Array]) -> None:
    """The outputs have the expected count, element types, shapes and elements; AssertionError."""
    assert len(found) == len(case.outputs), f"{len(found)} outputs for {len(case.outputs)}"
    for i, (a, given) in enumerate(zip(found, case.outputs, strict=True)):
        want = np.asarray(given)
        assert a.dtype == want.dtype, f"output {i} is {a.dtype}, expected {want.dtype}"
        assert a.shape == want.shape, f"output {i} is {a.shape}, expected {want.shape}"
        if want.dtype.kind not in "iub" and want.dtype.itemsize == 1:  # rounded once, from the same
            np.testing.assert_array_equal(a.astype(np.float32), want.astype(np.float32))
            continue
        if want.dtype.kind in "iub":
            assert (a == want).all(), f"output {i} differs"
            continue
        wide = [x.astype(np.float64) for x in (a, want)]
        rtol, atol = _tolerance(case, want.dtype, wide[1])
        close = np.isclose(*wide, rtol=rtol, atol=atol, equal_nan=True)
        assert close.all(), f"output {i} differs at {(~close).sum()} of {close.size} places"


def _arrays(given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for x in given)


def _tolerance(case: Case, dtype: Any, want: Array) -> tuple[float, float]:
    """The case's own, but at least two roundings of a 16-bit float, of the largest element too:
    ONNX rounds after every step, RLX once."""
    if dtype.itemsize > 2 or not want.size:
        return case.rtol, case.atol
    eps = float(ml_dtypes.finfo(dtype).eps)
    largest = np.max(np.abs(want), where=np.isfinite(want), initial=0)
    return max(case.rtol, 2 * eps), max(case.atol, eps * float(largest))


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``pass``, with the inputs that were fixed, or why not."""

    name: str
    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        return " | ".join(filter(None, (self.name, self.verdict, self.detail)))


def outcomes(cases: Sequence[Case], expanded: bool = True) -> list[Outcome]:
    """Import every case, interpret it, and run those that pass compiled; in the order given.

    Many cases are there a second time, expanded into the function of their op type; these are
    compiled only with ``expanded``.
    """
    found = [_interpreted(case) for case in cases]
    ready = [p for p in found if isinstance(p, Prepared)]
    ready = [p for p in ready if expanded or not is_expanded(p.case.name)]
    wrong: dict[str, str] = {}
    for at in range(0, len(ready), TOGETHER):
        wrong |= _compiled(ready[at : at + TOGETHER])
    return [_judged(p, wrong) if isinstance(p, Prepared) else p for p in found]


def is_expanded(name: str) -> bool:
    """Whether a case is another one, expanded."""
    return "_expanded" in name


TOGETHER = 64
"""Cases that are compiled as one graph."""


def _interpreted(case: Case) -> Prepared | Outcome:
    excluded = case.excluded()
    if excluded:
        return Outcome(case.name, "excluded", excluded)
    try:
        found = prepared(case)
        compare(case, rlx.interpret(found.graph, found.feeds))
    except (RlxError, AssertionError) as e:
        return Outcome(case.name, "fail", _short(e))
    return found


def _judged(p: Prepared, wrong: dict[str, str]) -> Outcome:
    if p.case.name in wrong:
        return Outcome(p.case.name, "fail", f"compiled: {wrong[p.case.name]}")
    fixed = f"constants {', '.join(p.fixed)}" if p.fixed else ""
    return Outcome(p.case.name, "pass", fixed)


def _compiled(found: Sequence[Prepared]) -> dict[str, str]:
    """What is wrong with cases that are compiled and run together; if they do not compile, with
    each alone."""
    wrong: dict[str, str] = {}
    try:
        graph, feeds = joined(found)
        results = rlx.Session("cpu").compile(graph).run(feeds)
    except RlxError as e:
        if len(found) == 1:
            return {found[0].case.name: _short(e)}
        return {n: text for p in found for n, text in _compiled([p]).items()}
    for p in found:
        mine, results = results[: len(p.graph.outputs)], results[len(p.graph.outputs) :]
        try:
            compare(p.case, mine)
        except AssertionError as e:
            wrong[p.case.name] = _short(e)
    return wrong


def _short(e: BaseException) -> str:
    text = e.message if isinstance(e, RlxError) else str(e)
    return " ".join(text.split("; docs/")[0].split())[:120]


def listed() -> Iterator[Outcome]:
    """What the table says."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Outcome(*line.split(" | ", 2))


def joined(found: Sequence[Prepared]) -> tuple[rlx.Graph, dict[str, Any]]:
    """Several imported cases as one graph, whose outputs are those of the cases in order, and the
    inputs of all."""
    whole = rlx.Graph("cases")
    feeds: dict[str, Any] = {}
    outputs: list[rlx.Value] = []
    for n, p in enumerate(found):
        env: dict[rlx.Value, rlx.Value] = {}
        for v in p.graph.inputs:
            name = f"{n}.{v.name}"
            env[v] = whole.input(name, v.shape, v.dtype)
            feeds[name] = p.feeds[str(v.name)]
        for v in p.graph.params:
            value = p.graph.param_values[str(v.name)]
            env[v] = whole.param(f"{n}.{v.name}", value=value)
        for op in p.graph.nodes():
            node = op.with_operands([None if v is None else env[v] for v in op.operands])
            env.update(zip(op.results, node.results, strict=True))
        outputs += [env[v] for v in p.graph.outputs]
    whole.set_outputs(outputs)
    return whole, feeds
