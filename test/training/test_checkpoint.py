"""Checkpoints: what they hold, that a run goes on from one, and that they are whole or absent."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from training.conftest import batch

import rlx
from rlx.errors import CheckpointError
from rlx.models.safetensors import SafeTensors, write_safetensors
from rlx.optim import SGD, Adafactor, Adam, Lion, Muon
from rlx.training import LossScale, TrainStep

ROOT = Path(__file__).resolve().parent.parent.parent
Make = Callable[..., TrainStep]


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": SGD(lr=0.1, momentum=0.9)},
        {"optimizer": Adam(lr=0.01), "ema": 0.9, "accumulate": 3},
        {"optimizer": Lion()},
        {"optimizer": Adafactor()},
        {"optimizer": Muon()},
        {"optimizer": Adam(lr=0.01), "dtype": "f16",
         "loss_scale": LossScale(initial=2.0**18, interval=2)},
    ],
)  # fmt: skip
def test_a_run_goes_on_with_the_same_bits(
    make_step: Make, settings: dict[str, Any], tmp_path: Path
) -> None:
    path, dtype = tmp_path / "run.safetensors", settings.get("dtype", "f32")
    whole, first, second = (make_step(**settings) for _ in range(3))
    losses = [whole(batch(n, dtype=dtype)).loss for n in range(10)]
    found = [first(batch(n, dtype=dtype)).loss for n in range(5)]
    first.save(path)
    second.load(path)
    found += [second(batch(n, dtype=dtype)).loss for n in range(5, 10)]
    assert found == losses
    for name in whole._kept():
        np.testing.assert_array_equal(second.state[name], whole.state[name], err_msg=name)


def test_others_can_read_it(make_step: Make, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    step = make_step(session=rlx.Session("interpret"))
    step(batch(0))
    step.save(tmp_path / "run.safetensors")
    found = safetensors.load_file(tmp_path / "run.safetensors")
    np.testing.assert_array_equal(found["params/w"], step.state["params/w"])


def test_a_checkpoint_of_another_run_is_refused_and_changes_nothing(
    make_step: Make, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    step = make_step()
    before = {n: a.copy() for n, a in step.state.items()}
    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: None, "cannot read .*run.safetensors: No such file"),
        (lambda: path.write_bytes(b"x" * 30) and None, "no valid safetensors file"),
        (lambda: write_safetensors(path, {}), "no checkpoint of this version: its metadata are {}"),
        (lambda: make_step(SGD()).save(path), "has no 'optimizer/mean/w'"),
        (lambda: make_step(ema=0.9).save(path), "has 'ema/.', which the run has not"),
        (
            lambda: other_sizes().save(path),
            r"'params/w' is float32\[5\], and the run has float32\[6, 4\]",
        ),
    ]
    for make, message in cases:
        make()
        with pytest.raises(CheckpointError, match=message):
            step.load(path)
        for name, a in before.items():
            np.testing.assert_array_equal(step.state[name], a)


def other_sizes() -> TrainStep:
    g = rlx.Graph()
    w, b = (g.param(n, value=np.zeros(5, np.float32)) for n in "wb")
    g.set_outputs((w + b).sum())
    return rlx.compile_training(g, Adam())


def test_a_file_that_cannot_be_written_is_an_error(make_step: Make, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"cannot write .*gone.run: No such file or directory"
    ):
        make_step().save(tmp_path / "gone" / "run")


# -- the files -----------------------------------------------------------------------------


def test_tensors_of_every_type_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "all.safetensors"
    tensors = {
        name: np.arange(6).reshape(2, 3).astype(dt.numpy)
        for name, dt in rlx.types.DTYPES.items()
        if name != "c128"  # for which the format has no name
    }
    tensors |= {
        "scalar": np.float32(3) * np.ones(()),
        "empty": np.zeros((0, 4)),
        "cut": tensors["f32"].T,
    }
    tensors["scalar"] = tensors["scalar"].astype(np.float32)
    write_safetensors(path, tensors, {"a": "b"})
    found = SafeTensors(path)
    assert found.metadata == {"a": "b"} and set(found) == set(tensors)
    for name, a in tensors.items():
        assert found[name].dtype == a.dtype
        np.testing.assert_array_equal(found[name], a)
        assert found[name].ctypes.data % a.itemsize == 0
    with pytest.raises(rlx.errors.ModelError, match="tensor 'c' is complex128, for which"):
        write_safetensors(path, {"c": np.zeros(2, np.complex128)})
    with pytest.raises(rlx.errors.ModelError, match="tensor 'f8' is float8_e4m3fnuz, for which"):
        write_safetensors(path, {"f8": np.zeros(2, ml_dtypes.float8_e4m3fnuz)})
    assert SafeTensors(path).metadata == {"a": "b"}, "a refusal leaves the file as it was"


def test_a_write_that_fails_leaves_the_file_before_and_a_later_one_clears_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.safetensors"
    write_safetensors(path, {"a": np.ones(3, np.float32)})
    with monkeypatch.context() as m:
        m.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(rlx.errors.ModelError, match=r"cannot write .*: No space left"):
            write_safetensors(path, {"a": np.zeros(3, np.float32)})
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
    np.testing.assert_array_equal(SafeTensors(path)["a"], 1)
    (tmp_path / ".run.safetensors.0123456789ab").write_bytes(b"cut short")
    (tmp_path / ".run.safetensors.other").write_bytes(b"of someone else")
    write_safetensors(path, {"a": np.zeros(3, np.float32)})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".run.safetensors.other",
        "run.safetensors",
    ]


def test_a_run_that_is_killed_goes_on_with_the_same_losses() -> None:
    path = ROOT / "tools" / "kill_training.py"
    spec = importlib.util.spec_from_file_location("kill_training", path)
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.main(["--rounds", "1", "--steps", "150", "--kills", "2"]) == 0
