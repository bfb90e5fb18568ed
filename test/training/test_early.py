"""Runs that end because nothing gets better any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training.conftest import batch

import rlx
from rlx.errors import GraphError
from rlx.optim import SGD
from rlx.training import EarlyStopping, TrainStep

Make = Callable[..., TrainStep]


def test_a_run_ends_that_no_longer_gets_better(make_step: Make, tmp_path: Path) -> None:
    numbers = [5.0, 4.0, 3.0, 3.5, 2.95, float("nan"), 2.0, 1.0]
    step, path = make_step(), tmp_path / "run.safetensors"
    early = EarlyStopping(
        3, least=0.1, every=2, measure=lambda step: numbers[step.position // 2 - 1]
    )
    history = rlx.fit(step, batch, steps=40, on_step=early, checkpoint=path)
    assert (step.position, early.best, early.waited) == (12, 3.0, 3)
    assert history.stopped and not history.interrupted
    assert str(history).startswith("stopped after 12 steps")
    going_on = make_step()
    assert not rlx.fit(going_on, batch, steps=14, checkpoint=path).stopped
    assert going_on.position == 14


def test_the_loss_of_batches_is_what_ends_a_run(make_step: Make) -> None:
    still = make_step(SGD(lr=0.0))
    history = rlx.fit(still, lambda n: batch(0), steps=40, on_step=EarlyStopping(4))
    assert len(history.steps) == 5 and len({*history.losses}) == 1
    falls = rlx.fit(make_step(), lambda n: batch(0), steps=9, on_step=EarlyStopping(4))
    assert len(falls.steps) == 9 and not falls.stopped


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"patience": 0}, "patience is a number from 1 on, found 0"),
        ({"patience": 2, "every": True}, "every is a number from 1 on, found True"),
        ({"patience": 2, "least": -1.0}, r"least is a number from 0 on, found -1\.0"),
    ],
)
def test_ends_that_mean_nothing(given: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        EarlyStopping(**given)
