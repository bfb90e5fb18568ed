"""A little of ``tools/endure.py``: threads, memory and forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.endurance import Trial, forked, threaded

TEST = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial()


def test_many_threads_get_the_same_bits(trial: Trial) -> None:
    assert threaded(trial, 8, 500) == 0


# In a process of its own: what a long session has let go of is given back at whatever time.
GROWTH = "from support.endurance import Trial, growth; print(growth(Trial(), 20_000))"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow() -> None:
    code = f"import sys; sys.path[:0] = {[str(TEST), str(TEST.parent)]!r}; {GROWTH}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1 << 20


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_forked_child_runs(trial: Trial) -> None:
    assert forked(trial) == 0
