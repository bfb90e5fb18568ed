"""A little of ``tools/endure.py``: threads, memory and forks."""

from __future__ import annotations

import sys

import pytest

from support.endurance import Trial, forked, growth, threaded


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial()


def test_many_threads_get_the_same_bits(trial: Trial) -> None:
    assert threaded(trial, 8, 500) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow(trial: Trial) -> None:
    assert growth(trial, 20_000) < 1 << 20


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_forked_child_runs(trial: Trial) -> None:
    assert forked(trial) == 0
