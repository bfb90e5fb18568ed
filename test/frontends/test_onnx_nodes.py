"""ONNX's own cases of single op types: what becomes of each is what the table says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

pytest.importorskip("onnx")

from support.onnx_cases import TABLE, Outcome, all_cases, is_expanded, listed, outcomes
from support.sweeps import covering


def check(table: Mapping[str, Outcome], found: Mapping[str, Outcome]) -> None:
    """A case that is listed as passing passes, with the inputs fixed that the table says, and no
    other does. After a change: ``python tools/onnx_cases.py``."""
    wrong = [
        f"listed {table[n]}, found {o}"
        for n, o in found.items()
        if table[n].verdict != o.verdict or (o.verdict == "pass" and table[n] != o)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_case_is_as_listed() -> None:
    """Of each op type and each reason why a case fails some, interpreted, and compiled but for
    those that are others, expanded into functions."""
    table, every = {o.name: o for o in listed()}, all_cases()
    assert table.keys() == {c.name for c in every}, (
        "of another version of onnx; write the table again"
    )
    chosen = covering(
        every,
        lambda c: [
            table[c.name].detail,
            *((node.op_type, is_expanded(c.name)) for node in c.model.graph.node),
        ],
    )
    found = {o.name: o for o in outcomes(chosen, expanded=False)}
    left_out = {n for n, o in table.items() if is_expanded(n) and o.detail.startswith("compiled:")}
    check(table, {n: o for n, o in found.items() if n not in left_out})


@pytest.mark.slow
def test_every_case_is_as_listed_compiled() -> None:
    check({o.name: o for o in listed()}, {o.name: o for o in outcomes(all_cases())})


def test_the_head_of_the_table_counts_its_rows() -> None:
    counts = Counter(o.verdict for o in listed())
    head = TABLE.read_text(encoding="utf-8").splitlines()[1]
    assert head.startswith(f"# {counts['pass']} of {counts['pass'] + counts['fail']} pass;")
