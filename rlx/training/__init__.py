"""Training: a graph with a loss becomes a step that updates its params in place.

    step = rlx.compile_training(graph, rlx.optim.AdamW(lr=1e-3))
    rlx.fit(step, rlx.training.Batches({"x": x, "label": y}, 32), epochs=10)

docs/training.md is the way from data to a deployed model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.errors import no_attribute
from rlx.training.data import Batches
from rlx.training.early import EarlyStopping
from rlx.training.fit import Data, History, fit
from rlx.training.pipelined import PipelineStep
from rlx.training.state import State
from rlx.training.step import LossScale, StepResult, TrainStep, compile_training

__all__ = [
    "Batches", "Data", "EarlyStopping", "History", "LossScale", "PipelineStep", "State",
    "StepResult", "TrainStep", "compile_training", "fit",
]  # fmt: skip


if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

    def __getattr__(name: str) -> object:
        raise no_attribute(__name__, name, __all__)
