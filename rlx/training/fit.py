"""The loop around a training step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from rlx.base.clock import Tick
from rlx.errors import GraphError, shown
from rlx.ir.builders import located
from rlx.ir.location import caller
from rlx.models.progress import Progress
from rlx.training.pipelined import PipelineStep
from rlx.training.step import StepResult, TrainStep

__all__ = ["Data", "History", "fit"]


class Data(Protocol):
    """Batches by number, counted from 0; ``len`` is the number of batches of an epoch."""

    def __len__(self) -> int: ...
    def __getitem__(self, n: int, /) -> Mapping[str, Any]: ...


@dataclass(repr=False)
class History:
    """What ``fit`` did: the results of its steps in order, the number ``first`` of the first of
    them, and whether Ctrl-C (``interrupted``) or ``on_step`` (``stopped``) ended it. ``resumed``
    says which checkpoint it went on from, and where; ``seconds`` is how long the steps took.
    ``str`` is one line, and a notebook shows the losses as a plot."""

    first: int
    steps: list[StepResult] = field(default_factory=list[StepResult])
    interrupted: bool = False
    stopped: bool = False
    resumed: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        n = len(self.steps)
        if not n:
            return "trained on no batch"
        ended = "interrupted after" if self.interrupted else "stopped after"
        said = f"{ended if self.interrupted or self.stopped else 'trained'} {n} steps"
        losses = f"loss {self.steps[0].loss:.4g} to {self.steps[-1].loss:.4g}"
        return f"{said} in {self.seconds:.1f} s ({1e3 * self.seconds / n:.1f} ms a step): {losses}"

    def __repr__(self) -> str:
        return f"<History: {self}>"

    def _repr_html_(self) -> str:
        from rlx.view.chart import chart

        plot = chart([s.loss for s in self.steps], self.first + 1, "step", "loss")
        return f"<div>{escape(str(self))}</div>{plot}"

    def plot(self, path: str | Path) -> None:
        """Write the losses by step as a picture, an SVG file."""
        from rlx.view.chart import chart

        losses = self.losses  # GraphError, if there are none
        Path(path).write_text(chart(losses, self.first + 1, "step", "loss"), encoding="utf-8")

    @property
    def losses(self) -> list[float]:
        """The losses of the steps. GraphError, which says why, if there were none."""
        if not self.steps:
            why = self.resumed or ("it was interrupted" if self.interrupted else "0 were asked for")
            raise GraphError(f"fit trained on no batch: {why}", caller())
        return [s.loss for s in self.steps]


@located
def fit(
    step: TrainStep | PipelineStep,
    data: Data | Callable[[int], Mapping[str, Any]],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    checkpoint: str | Path | None = None,
    every: int = 0,
    show: bool | None = None,
    on_step: Callable[[Any, StepResult], object] | None = None,
) -> History:
    """Train until ``steps`` batches, or ``epochs`` times those of ``data``, have been trained on.

    ``data`` gives a batch by its number: ``Batches``, a list, which begins anew at its end, or a
    function, which has no epochs. ``checkpoint`` is a file, or with a mesh a folder. If it is
    there, the run goes on from it, and a line on standard error says so, with the optimiser's
    settings where they differ from the file's: the new ones hold. It is written after every
    ``every`` batches and at the end. ``on_step`` is called after each batch, before that; True ends
    the run (``EarlyStopping``). ``show`` forces the progress bar on or off; else there is one on a
    terminal, and elsewhere a line on standard error at growing intervals once training takes longer
    than a second, and a last one that sums it up.

    Where many ranks train together, all of them call it. The first one shows how far it is, and
    when one gets Ctrl-C all of them stop after the same batch. ``Batches(..., mesh=mesh)`` gives
    each its part of a batch.

    Ctrl-C lets the batch at hand end, writes the checkpoint and returns; a second one stops at
    once. NonFiniteError as ``TrainStep`` raises it; the checkpoint holds the state before.
    """
    _check_step(step)
    total = _total(data, epochs, steps)
    if every < 0 or (every and checkpoint is None):
        raise GraphError(f"every is a number of batches between checkpoints, found {every!r}"
                         f" with checkpoint={checkpoint!r}")  # fmt: skip
    path = None if checkpoint is None else Path(checkpoint)
    resumed = _resume(step, path, total) if path is not None and step.finds(path) else ""
    history, left = History(step.position, resumed=resumed), max(0, total - step.position)
    show = show if step.rank == 0 else False
    with _interruptible() as stopped, Progress("training", left, show, lines=True) as bar:
        while step.position < total and not step.on_any_rank(bool(stopped) or history.stopped):
            began = Tick.now()
            n = step.position
            result = step(_batch(data, n))
            history.steps.append(result)
            took = Tick.now().seconds_since(began)
            history.seconds += took
            bar.label = f"loss {result.loss:.4g}, {1e3 * took:.1f} ms a step"
            bar.advance()
            if on_step is not None:
                history.stopped = on_step(step, result) is True
            if path is not None and every and step.position % every == 0:
                step.save(path)
    history.interrupted = step.position < total and not history.stopped
    if path is not None and (history.steps or not resumed):
        step.save(path)
    if bar.shown:
        print(history, file=sys.stderr)
    if history.interrupted and step.rank == 0:
        print(f"interrupted after {step.position} of {total} batches", file=sys.stderr)
    return history


def _check_step(step: Any) -> None:
    if not isinstance(step, TrainStep | PipelineStep):
        raise GraphError(
            f"fit trains a step that rlx.compile_training made, or a PipelineStep, found"
            f" {shown(step)}; write rlx.fit(rlx.compile_training(graph, optimizer), data, epochs=1)"
        )


def _resume(step: TrainStep | PipelineStep, path: Path, total: int) -> str:
    """Go on from a checkpoint; what is said of that."""
    before, now = step.load(path), step.plan.settings
    said = f"resumed from {path} at batch {step.position} of {total}"
    if step.position >= total:
        said += ": nothing left to train; ask for more epochs or steps, or use another file"
    if before and before != now:
        said += f"; it was trained with {before}, and this run has {now}"
    if step.rank == 0:
        print(said, file=sys.stderr)
    return said


def _total(data: Any, epochs: int | None, steps: int | None) -> int:
    if (epochs is None) == (steps is None):
        raise GraphError(f"give epochs or steps, one of them; found {epochs!r} and {steps!r}")
    n = steps if epochs is None else epochs
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise GraphError(f"a number of {'steps' if epochs is None else 'epochs'}, found {n!r}")
    _check_data(data)
    if epochs is None:
        return n
    if callable(data):
        raise GraphError("a function has no epochs; give steps")
    return n * len(data)


def _check_data(data: Any) -> None:
    if not callable(data) and not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise GraphError(
            f"data gives batches by number, as Batches, a list or a function do; found a"
            f" {type(data).__name__}"
        )
    if isinstance(data, Sequence) and not data:
        raise GraphError("data is empty, and has no batch to train on")
    if isinstance(data, Mapping):
        raise GraphError(
            "data is a mapping of arrays, which has no batches by number; cut it into some:"
            " rlx.training.Batches(data, 32)"
        )


def _batch(data: Data | Callable[[int], Mapping[str, Any]], n: int) -> Mapping[str, Any]:
    if callable(data):
        return data(n)
    return data[n % len(data) if isinstance(data, Sequence) else n]


@contextmanager
def _interruptible() -> Generator[list[int]]:
    """While the block runs, the first Ctrl-C is only noted in the list that it gets. Other threads
    than the main one get no signals."""
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
