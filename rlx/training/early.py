"""Ending a run that no longer gets better."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.errors import GraphError, shown
from rlx.ir.location import caller
from rlx.training.step import StepResult, TrainStep

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """An ``on_step`` of ``fit`` that ends the run once a number has stopped falling.

        rlx.fit(step, data, epochs=100, on_step=rlx.training.EarlyStopping(200))

    The number is the loss of a batch, or what ``measure(step)`` gives, such as the loss on data
    that is held back; it is looked at after every ``every`` batches. The run ends when it has not
    fallen below its ``best`` by more than ``least`` for ``patience`` looks in a row; a NaN is no
    fall. On many ranks ``measure`` gives the same on each. Checkpoints do not hold ``best``: a run
    that goes on from one begins to look anew. GraphError for counts below 1 or ``least`` below 0.
    """

    def __init__(
        self,
        patience: int,
        *,
        least: float = 0.0,
        every: int = 1,
        measure: Callable[[TrainStep], float] | None = None,
    ) -> None:
        for name, count in (("patience", patience), ("every", every)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise GraphError(f"{name} is a number from 1 on, found {shown(count)}", caller())
        if isinstance(least, bool) or not isinstance(least, int | float) or not least >= 0:
            raise GraphError(f"least is a number from 0 on, found {shown(least)}", caller())
        self.patience, self.least, self.every, self.measure = patience, least, every, measure
        self.best = math.inf
        self.waited = 0
        """How many looks in a row found nothing better."""

    def __call__(self, step: TrainStep, result: StepResult) -> bool:
        """Whether the run is to end after this batch."""
        if step.position % self.every:
            return False
        found = result.loss if self.measure is None else float(self.measure(step))
        better = found < self.best - self.least
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = found
        return self.waited >= self.patience
