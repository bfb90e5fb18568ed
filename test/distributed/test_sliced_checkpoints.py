"""Checkpoints of many ranks: any number of ranks goes on from them; they are whole or absent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.distributed import run_threads
from rlx.errors import CheckpointError
from rlx.models.safetensors import SafeTensors, write_safetensors
from rlx.training import TrainStep, slices

ROWS = 16
DATA = np.random.default_rng(3).standard_normal((6, ROWS, 3)).astype(np.float32)


def make(mesh: rlx.Mesh | None = None, rows: int = ROWS // 8, **options: Any) -> TrainStep:
    """A layer with dropout, whose params no number of ranks divides."""
    rng = np.random.default_rng(2)
    g = rlx.Graph("layer")
    w, b = (
        g.param("w", value=rng.standard_normal((3, 5)).astype(np.float32)),
        g.param("b", value=np.zeros(5, np.float32)),
    )
    y = (g.input("x", [rows, 3]) @ w + b).dropout(g.input("key", [2], "u32"), 0.3)
    g.set_outputs([(y * y).mean()])
    settings: dict[str, Any] = {"reproducible": True, "accumulate": 2, "ema": 0.9, **options}
    return rlx.compile_training(g, rlx.optim.AdamW(lr=1e-2), key="key", mesh=mesh, **settings)


def losses(step: TrainStep, begin: int, end: int, ranks: int = 1) -> list[float]:
    each = ROWS // ranks
    mine = slice(step.rank * each, (step.rank + 1) * each)
    return [step({"x": DATA[n][mine]}).loss for n in range(begin, end)]


def test_any_number_of_ranks_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    """From the middle of two batches that are added up, of ranks that have slices."""
    path, file = tmp_path / "run", tmp_path / "run.safetensors"
    alone = make()
    straight = losses(alone, 0, 6)
    four, two = rlx.Mesh(data=4), rlx.Mesh(data=2)

    def first(rank: int) -> list[float]:
        step = make(four, zero=3)
        assert not step.finds(path)
        found = losses(step, 0, 3, 4)
        step.save(path)
        return found

    def second(rank: int) -> list[float]:
        step = make(two, zero=1)
        assert step.finds(path) and "AdamW" in step.load(path)
        step.save(path)  # by other ranks, in the place of the first
        return losses(step, 3, 6, 2)

    assert run_threads(four, first) == [straight[:3]] * 4
    assert len(list((path / "1").iterdir())) == 4
    assert run_threads(two, second) == [straight[3:]] * 2
    assert sorted(p.name for p in path.iterdir()) == ["2", "manifest.json"]
    step = make()
    step.load(path)
    assert losses(step, 3, 6) == straight[3:]
    for name in step._kept():
        np.testing.assert_array_equal(step.state[name], alone.state[name])

    other = make()
    losses(other, 0, 3)
    other.save(file)

    def third(rank: int) -> list[float]:
        step = make(two, zero=3)
        step.load(file)
        return losses(step, 3, 6, 2)

    assert run_threads(two, third) == [straight[3:]] * 2


def test_slices_across_another_axis_stay_apart(tmp_path: Path) -> None:
    """Each rank along 'model' has params of its own."""
    path, square, row = tmp_path / "run", rlx.Mesh(data=2, model=2), rlx.Mesh(data=1, model=2)

    def graph(rank: int, mesh: rlx.Mesh) -> rlx.Graph:
        g = rlx.Graph("columns")
        w = g.param("w", value=np.full(5, mesh.coordinates(rank)["model"] + 1.0, np.float32))
        total = (w.sum() * g.input("x", [])).all_reduce(mesh["model"], replicated=True)
        g.set_outputs([total * total])
        return g

    def step_of(rank: int, mesh: rlx.Mesh) -> TrainStep:
        return rlx.compile_training(graph(rank, mesh), rlx.optim.SGD(lr=1e-3), mesh=mesh)

    def save(rank: int) -> Any:
        step = step_of(rank, square)
        step({"x": np.float32(1)})
        step.save(path)
        return step.params()["w"]

    def load(rank: int) -> Any:
        step = step_of(rank, row)
        step.load(path)
        return step.params()["w"]

    saved, loaded = run_threads(square, save), run_threads(row, load)
    np.testing.assert_array_equal(saved[:2], loaded)
    assert (saved[0] != saved[1]).all()
    with pytest.raises(CheckpointError, match=r"of a mesh {'data': 2, 'model': 2}, whose slices"):
        rlx.compile_training(graph(0, row), rlx.optim.SGD(lr=1e-3), mesh=None).load(path)


def test_a_rank_that_cannot_write_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mesh = tmp_path / "run", rlx.Mesh(data=2)
    real = slices.write_safetensors

    def write(file: Path, tensors: Any, metadata: Any) -> None:
        if file.parent.name == "2" and file.name.startswith("1-"):
            raise rlx.errors.ModelError(f"cannot write {file}: No space left on device")
        real(file, tensors, metadata)

    def run(rank: int) -> tuple[str, list[float]]:
        step = make(mesh)
        step.save(path)
        losses(step, 0, 1, 2)
        with pytest.raises(CheckpointError) as found:
            step.save(path)
        step.load(path)
        with pytest.raises(CheckpointError) as none:
            step.load(tmp_path / "none" if rank else path)
        assert ("rank 1 could not read" if rank == 0 else "No such file") in none.value.message
        return found.value.message, losses(step, 0, 2, 2)

    monkeypatch.setattr(slices, "write_safetensors", write)
    (first, found), (second, _) = run_threads(mesh, run)
    assert f"rank 1 could not write {path}: its error says why" in first
    assert "No space left on device" in second
    assert found == losses(make(), 0, 2)
    monkeypatch.undo()
    # What was left is written over, and goes with the next one.
    run_threads(mesh, lambda rank: make(mesh).save(path))
    run_threads(mesh, lambda rank: make(mesh).save(path))
    assert sorted(p.name for p in path.iterdir()) == ["3", "manifest.json"]


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_no_checkpoint_of_the_run_is_refused(tmp_path: Path) -> None:
    path, mesh = tmp_path / "run", rlx.Mesh(data=1)
    step = make(mesh)
    step.save(path)
    manifest = (path / "manifest.json").read_text()
    file = path / "1" / "0-of-1.safetensors"
    found = SafeTensors(file)
    tensors = {n: found[n].copy() for n in found}

    def rewritten(**changes: Any) -> None:
        made = {n: a for n, a in {**tensors, **changes}.items() if a is not None}
        write_safetensors(file, made, {"generation": "1"})

    def tensor(**fields: Any) -> Callable[[dict[str, Any]], object]:
        return lambda m: m["tensors"]["params/b"].update(fields)

    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: edited(path, lambda m: m.update(format="2")), "has format '2', expected 'rlx.tr"),
        (lambda: (path / "manifest.json").write_text("[]"), "has format 'list'"),
        (lambda: (path / "manifest.json").write_text("{"), "is no manifest of a checkpoint: Exp"),
        (lambda: edited(path, lambda m: m.pop("mesh")), "no manifest of a checkpoint: KeyError"),
        (lambda: edited(path, lambda m: m.update(axis="rows")), "KeyError.'rows'"),
        (lambda: edited(path, lambda m: m["tensors"].pop("ema/b")), "has no 'ema/b'"),
        (lambda: edited(path, lambda m: m["tensors"].update(x=m["tensors"]["ema/b"])),
         "has 'x', which the run has not"),
        (lambda: edited(path, tensor(shape=[6])), "'params/b' is 6xf32, and the run has 5xf32"),
        (lambda: rewritten(**{"params/b": None}), "'params/b' is not there, and the manifest"),
        (lambda: rewritten(**{"params/b": np.zeros(4, np.float32)}), r"'params/b' is float32\[4\]"),
        (lambda: write_safetensors(file, tensors, {"generation": "7"}), "is of another checkpoint"),
        (file.unlink, "cannot read .*0-of-1.safetensors: No such file"),
        ((path / "manifest.json").unlink, "cannot read .*manifest.json: No such file"),
    ]  # fmt: skip
    before = {n: a.copy() for n, a in step.state.items()}
    for change, match in cases:
        change()
        with pytest.raises(CheckpointError, match=match):
            step.load(path)
        (path / "manifest.json").write_text(manifest)
        rewritten()
        assert all((before[n] == a).all() for n, a in step.state.items())
    with pytest.raises(CheckpointError, match=r"cannot write .*gone.run: No such file"):
        step.save(tmp_path / "gone" / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write .*file: File exists"):
        step.save(tmp_path / "file")
    (path / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="is no manifest"):
        step.save(path)


def test_a_manifest_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (path / "manifest.json" / "in the way").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"cannot write .*manifest\.json"):
        make(rlx.Mesh(data=1)).save(path)
