"""Where the buffers of a GPU's memory begin, as a schedule says it."""

from __future__ import annotations

import pytest

from rlx.dialects.context import parse
from rlx.errors import IRError
from rlx.lowering.passes.lir_reader import read_schedule

TEXT = """module attributes {lir.arena_slots = array<i64: STARTS>} {
  func.func @main(%arena: memref<128xi8> {lir.role = "arena"}) { return }
}"""


def test_slots_are_read() -> None:
    assert read_schedule(parse(TEXT.replace("STARTS", "0, 64"))).slots == {"arena": [0, 64]}


@pytest.mark.parametrize("starts", ["64", "0, 64, 64", "0, 64, 32"])
def test_slots_that_do_not_rise_are_refused(starts: str) -> None:
    with pytest.raises(IRError, match=r"lir\.arena_slots must be numbers that rise from 0"):
        read_schedule(parse(TEXT.replace("STARTS", starts)))
