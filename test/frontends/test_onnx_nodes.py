"""ONNX's own cases of single op types: what becomes of each is what the table says."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("onnx")

from support.onnx_cases import TABLE, all_cases, listed, outcomes


def test_every_case_is_as_listed() -> None:
    """A case that is listed as passing passes, interpreted and compiled, with the inputs fixed that
    the table says, and no other does. After a change: ``python tools/onnx_cases.py``."""
    table = {o.name: o for o in listed()}
    found = {o.name: o for o in outcomes(all_cases())}
    assert table.keys() == found.keys(), (
        "another version of onnx; tools/onnx_cases.py writes the table"
    )
    passing = [o for o in (*table.values(), *found.values()) if o.verdict == "pass"]
    wrong = sorted({o.name for o in passing if table[o.name] != found[o.name]})
    assert not wrong, "\n".join(f"listed {table[n]}, found {found[n]}" for n in wrong)
    assert all(table[n].verdict == o.verdict for n, o in found.items())


def test_the_head_of_the_table_counts_its_rows() -> None:
    counts = Counter(o.verdict for o in listed())
    head = TABLE.read_text(encoding="utf-8").splitlines()[1]
    assert head.startswith(f"# {counts['pass']} of {counts['pass'] + counts['fail']} pass;")
