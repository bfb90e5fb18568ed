"""The loop around steps: its end, its data, Ctrl-C, checkpoints and the progress bar."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.conftest import batch

import rlx
from rlx.errors import GraphError, NonFiniteError
from rlx.optim import SGD
from rlx.training import Batches, TrainStep
from rlx.training.fit import History

Make = Callable[..., TrainStep]


def test_steps_and_epochs_say_where_a_run_ends(make_step: Make) -> None:
    step = make_step()
    data = [batch(n) for n in range(4)]
    history = rlx.fit(step, data, epochs=1)
    assert (history.first, len(history.steps), step.position) == (0, 4, 4)
    history = rlx.fit(step, lambda n: data[n % 4], steps=6)
    assert (history.first, len(history.losses), step.position) == (4, 2, 6)
    assert rlx.fit(step, data, steps=3).steps == []


def test_a_run_goes_on_from_its_checkpoint_with_its_data(make_step: Make, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    rows = batch(0, 40)
    assert repr(Batches(rows, 8)) == "Batches of 8 of 40 rows: " + ", ".join(rows)
    whole = rlx.fit(make_step(), Batches(rows, 8), epochs=4).losses
    first = rlx.fit(make_step(), Batches(rows, 8), steps=7, checkpoint=path)
    second = rlx.fit(make_step(), Batches(rows, 8), epochs=4, checkpoint=path)
    assert second.first == 7
    assert first.losses + second.losses == whole


def test_a_finished_run_says_that_nothing_is_left(
    make_step: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.safetensors"
    rows = batch(0, 16)
    assert rlx.fit(make_step(), Batches(rows, 8), epochs=1, checkpoint=path).resumed == ""
    assert capsys.readouterr().err == ""
    before = path.read_bytes()
    history = rlx.fit(make_step(), Batches(rows, 8), epochs=1, checkpoint=path)
    said = f"resumed from {path} at batch 2 of 2: nothing left to train"
    assert said in capsys.readouterr().err and history.steps == []
    with pytest.raises(GraphError, match=r"fit trained on no batch: resumed from .* 2 of 2"):
        history.losses[-1]
    assert path.read_bytes() == before


def test_other_settings_than_the_checkpoints_are_named(
    make_step: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.safetensors"
    rlx.fit(make_step(SGD(lr=0.125), clip=lambda g: g), batch, steps=2, checkpoint=path)
    rlx.fit(make_step(SGD(lr=0.5), accumulate=1), batch, steps=3, checkpoint=path)
    said = capsys.readouterr().err
    assert "resumed from" in said and "at batch 2 of 3; it was trained with SGD(lr=0.125" in said
    assert "and this run has SGD(lr=0.5" in said and " at 0x" not in said
    rlx.fit(make_step(SGD(lr=0.5)), batch, steps=4, checkpoint=path)
    assert "trained with" not in capsys.readouterr().err


def test_a_run_of_no_steps_has_no_losses(make_step: Make) -> None:
    with pytest.raises(GraphError, match="no batch: 0 were asked for"):
        rlx.fit(make_step(), batch, steps=0).losses[0]
    with pytest.raises(GraphError, match="no batch: it was interrupted"):
        History(0, interrupted=True).losses[0]


def test_checkpoints_are_written_every_so_often(make_step: Make, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    seen: list[int] = []

    def look(step: TrainStep, result: Any) -> None:
        if path.exists():
            other = make_step()
            other.load(path)
            seen.append(other.position)

    rlx.fit(make_step(), batch, steps=7, checkpoint=path, every=3, on_step=look)
    assert seen == [3, 3, 3, 6]


def test_ctrl_c_ends_the_batch_keeps_the_state_and_returns(
    make_step: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.safetensors"

    def interrupt(step: TrainStep, result: Any) -> None:
        if step.position == 3:
            os.kill(os.getpid(), signal.SIGINT)

    step = make_step()
    before = signal.getsignal(signal.SIGINT)
    history = rlx.fit(step, batch, steps=10, checkpoint=path, on_step=interrupt)
    assert history.interrupted and len(history.steps) == 3
    assert "interrupted after 3 of 10 batches" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    rest = rlx.fit(make_step(), batch, steps=10, checkpoint=path)
    assert not rest.interrupted
    assert history.losses + rest.losses == rlx.fit(make_step(), batch, steps=10).losses


def test_a_second_ctrl_c_stops_at_once(make_step: Make) -> None:
    def twice(n: int) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        rlx.fit(make_step(), twice, steps=10)


def test_it_runs_in_a_thread_too(make_step: Make) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(rlx.fit(make_step(), batch, steps=2)))
    thread.start()
    thread.join()
    assert len(found[0].steps) == 2


def test_nan_ends_the_run_and_the_checkpoint_is_the_state_before(
    make_step: Make, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"

    def data(n: int) -> Any:
        given = batch(n)
        if n == 4:
            given["x"][0, 0] = np.nan
        return given

    with pytest.raises(NonFiniteError, match="batch 4: the loss is nan: 'x' was given with"):
        rlx.fit(make_step(), data, steps=10, checkpoint=path, every=2)
    step = make_step()
    step.load(path)
    assert step.position == 4
    assert np.isfinite(step.params()["w"]).all()


def test_the_bar_shows_loss_and_time_and_is_silent_without_a_terminal(
    make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for show, expected in ((True, True), (None, False)):
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        rlx.fit(make_step(), batch, steps=3, show=show)
        text = stream.getvalue()
        assert ("loss " in text and " ms a step [" in text and "s left" in text) == expected
        assert bool(text) == expected


# -- batches -------------------------------------------------------------------------------


def test_every_epoch_has_all_rows_in_an_order_of_its_own() -> None:
    data = Batches({"i": np.arange(10), "j": -np.arange(10)}, 3, seed=5)
    assert len(data) == 3
    epochs = [np.concatenate([data[3 * e + n]["i"] for n in range(3)]) for e in range(2)]
    for rows in epochs:
        assert len(set(rows)) == 9
    assert not np.array_equal(*epochs)
    np.testing.assert_array_equal(data[0]["i"], epochs[0][:3])  # any batch at any time
    np.testing.assert_array_equal(data[4]["j"], -data[4]["i"])
    other = Batches({"i": np.arange(10)}, 3, seed=6)
    assert not np.array_equal(other[0]["i"], data[0]["i"])


def test_batches_in_order() -> None:
    data = Batches({"i": np.arange(7)}, 2, shuffle=False)
    assert [data[n]["i"].tolist() for n in range(4)] == [[0, 1], [2, 3], [4, 5], [0, 1]]


def test_a_list_begins_anew_at_its_end(make_step: Make) -> None:
    batches = [batch(n) for n in range(2)]
    found = rlx.fit(make_step(), batches, epochs=2).losses
    assert found == rlx.fit(make_step(), lambda n: batches[n % 2], steps=4).losses


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: rlx.fit(s, batch), "give epochs or steps, one of them; found None and None"),
        (lambda s: rlx.fit(s, batch, epochs=1, steps=1), "give epochs or steps, one of them"),
        (lambda s: rlx.fit(s, batch, epochs=1), "a function has no epochs; give steps"),
        (lambda s: rlx.fit(s, batch, steps=-1), "a number of steps, found -1"),
        (lambda s: rlx.fit(s, [], epochs=1), "data is empty, and has no batch to train on"),
        (
            lambda s: rlx.fit(s, iter([]), steps=1),
            "data gives batches by number, .* found a list_iter",
        ),
        (
            lambda s: rlx.fit(s, batch, steps=1, every=2),
            "every is a number of batches .* found 2 with",
        ),
        (lambda s: Batches({"a": np.ones(3), "b": np.ones(4)}, 1), "arrays of one length"),
        (lambda s: Batches({}, 1), "arrays of one length are cut into batches, found none"),
        (lambda s: Batches({"a": np.ones(3)}, 0), "size is a number of rows from 1 on, found 0"),
        (lambda s: Batches({"a": np.ones(3)}, 4), "a batch has 4 rows, and the arrays have 3"),
    ],
)
def test_calls_without_a_meaning_are_refused(make_step: Make, call: Any, message: str) -> None:
    with pytest.raises(rlx.RlxError, match=message):
        call(make_step())
