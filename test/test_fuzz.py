"""A little fuzzing of every target; ``tools/fuzz.py`` does it for long."""

from __future__ import annotations

import os
import random
import signal

import pytest

from rlx.errors import IRError
from support.fuzz_targets import TARGETS
from support.fuzzing import Target, fuzz
from support.mutation import mutated_bytes, mutated_text, mutated_value
from support.text import transformed

COUNTS = {
    "text": 200, "safetensors": 1000, "calls": 150, "schedule": 1000, "steps": 2000, "object": 1000,
    "artifact": 1000, "entry": 1000, "gguf": 1000, "splat": 1000, "onnx": 75, "signatures": 400,
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_wrong_inputs_are_refused_or_taken(name: str) -> None:
    outcome = fuzz(TARGETS[name], COUNTS[name], seed=2026)
    assert not outcome.findings, "\n".join(f"{f.number}: {f.what}" for f in outcome.findings)
    assert outcome.taken + outcome.refused == COUNTS[name]
    assert outcome.taken and (outcome.refused or name in ("calls", "signatures"))


def test_every_way_to_go_wrong_is_a_finding() -> None:
    def attempt(n: int) -> None:
        if n == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if n == 5:
            raise KeyError("not ours")
        if n == 7:
            os._exit(3)
        if n % 2 == 0:
            raise IRError("ours")

    numbered = Target(
        lambda: {random.Random(f"0:{n}").random(): n for n in range(10)},
        lambda known, r: known[r.random()],
        attempt,
    )
    outcome = fuzz(numbered, 10, batch=4)
    assert [f.number for f in outcome.findings] == [3, 5, 7]
    assert [f.shown for f in outcome.findings] == ["3", "5", "7"]
    for f, what in zip(
        outcome.findings, ("SIGSEGV", "KeyError: 'not ours'", "exit 3"), strict=True
    ):
        assert what in f.what
    assert (outcome.taken, outcome.refused) == (2, 5)


def test_changes_follow_from_the_seed_and_change_something() -> None:
    text = 'func.func @main() {\n  %a = "mir.exp"(%b) {n = 3 : i64} : (f32) -> f32\n}'
    for change in (
        lambda r: mutated_text(text, r, ["word"]),
        lambda r: mutated_bytes(text.encode(), r, range(8)),
        lambda r: mutated_value((1, [2, {"a": 3}], "b"), r),
    ):
        made = [repr(change(random.Random(n))) for n in range(200)]
        assert made == [repr(change(random.Random(n))) for n in range(200)]
        assert len(set(made)) > 50


CHAIN = """
func.func @main(%x: tensor<4x8xf32> {rlx.input = "x"}, %w: tensor<8x8xf32> {rlx.param = "w"})
    -> tensor<4x8xf32> {
  %0 = "mir.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = "mir.fused"() ({
    %2 = "mir.exp"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = "mir.abs"(%2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    "mir.yield"(%3) : (tensor<4x8xf32>) -> ()
  }) {kind = "elementwise"} : () -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}"""


def test_fuse_takes_nothing_out_of_a_region() -> None:
    """Found by fuzzing: the only user of the product stands in a region."""
    transformed(CHAIN, "--fuse,fuse")
    transformed(CHAIN, "lir")
