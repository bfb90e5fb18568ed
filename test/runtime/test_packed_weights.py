"""Packed weights that are kept: mapped by who loads the same file, and by nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.models.safetensors import SafeTensors, write_safetensors
from rlx.runtime.background import waited
from rlx.runtime.cache.packed import PackedFolder
from rlx.tools.cli import main

Array = np.ndarray[Any, Any]

X = np.random.default_rng(0).standard_normal((3, 256), np.float32)
W = np.random.default_rng(1).standard_normal((256, 128), np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackedFolder]:
    """The folder of a cache of its own, where files of any size and age are kept."""
    monkeypatch.setattr("rlx.runtime.weights.LARGE", 1)
    monkeypatch.setattr("rlx.runtime.cache.shared.SETTLED_NS", 0)
    with knobs.cache_dir.scoped(str(tmp_path / "cache")):
        yield PackedFolder(str(tmp_path / "cache"), knobs.packed_size.get())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"w": W})
    return path


def product(w: Array, rows: int | str = "rows") -> tuple[rlx.CompiledGraph, Array]:
    """``X @ w``, of weights that are new to the process, and what has run it."""
    g = rlx.Graph()
    g.set_outputs(g.input("x", [rows, 256]) @ g.param("w", W.shape))
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", w)
    (y,) = f.run({"x": X})
    waited()
    return f, y


def of(path: Path) -> Array:
    return SafeTensors(path)["w"]


def names(folder: PackedFolder) -> list[Path]:
    return [Path(path) for path, _, _ in folder.files()]


def test_the_next_process_maps_it(folder: PackedFolder, model: Path) -> None:
    _, first = product(of(model))
    (kept,) = names(folder)
    f, second = product(of(model))
    assert np.array_equal(first, second) and names(folder) == [kept]
    np.testing.assert_allclose(first, X @ W, rtol=1e-4, atol=1e-4)
    f.set_param("w", 2 * W)
    assert np.array_equal(f.run({"x": X})[0], 2 * first)
    kept.write_bytes(bytes(kept.stat().st_size))
    assert not product(of(model))[1].any(), "what is mapped is what is used"


def test_a_graph_of_one_size_maps_it_too(folder: PackedFolder, model: Path) -> None:
    _, first = product(of(model), 3)
    (kept,) = names(folder)
    kept.write_bytes(bytes(kept.stat().st_size))
    assert first.any() and not product(of(model), 3)[1].any()


def test_params_that_are_set_after_a_compile(folder: PackedFolder, model: Path) -> None:
    """One that no prologue reads is unset when what was packed would be kept: no thread fails."""
    g = rlx.Graph()
    w, b = g.param("w", W.shape), g.param("b", [128])
    g.set_outputs(g.input("x", ["rows", 256]) @ w + b)
    f = rlx.Session("cpu").compile(g)
    f.prepare(dims={"rows": 3})
    f.set_param("w", of(model))
    waited()
    assert not names(folder)
    f.set_param("b", np.zeros(128, np.float32))
    waited()
    assert len(names(folder)) == 1
    np.testing.assert_allclose(f.run({"x": X})[0], X @ W, rtol=1e-4, atol=1e-4)


def test_what_writers_that_died_have_left(
    folder: PackedFolder, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product(of(model))
    (kept,) = names(folder)
    old, new = kept.with_suffix(".old"), kept.with_suffix(".new")
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert main(["cache", "list"]) == 0 and "1 packed weights, " in capsys.readouterr().out
    write_safetensors(model, {"w": 2 * W})
    product(of(model))
    assert not old.exists() and new.exists() and len(names(folder)) == 2
    assert folder.clear() == 3


def test_the_folder_of_the_cache_is_the_users_alone(
    folder: PackedFolder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing else was kept in it before, and others could write to new folders."""
    monkeypatch.setattr("rlx.runtime.cache.store.Store.write", lambda *_: None)
    mask = os.umask(0)
    try:
        product(of(model))
    finally:
        os.umask(mask)
    root = Path(folder.path).parent
    assert names(folder) and not root.stat().st_mode & 0o077


@pytest.mark.parametrize("left", [0, 1000])
def test_one_that_was_cut_short_is_made_anew(left: int, folder: PackedFolder, model: Path) -> None:
    _, first = product(of(model))
    (kept,) = names(folder)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert np.array_equal(product(of(model))[1], first)
    assert names(folder) == [kept] and kept.read_bytes() == whole


def test_a_file_that_has_changed(folder: PackedFolder, model: Path) -> None:
    _, first = product(of(model))
    write_safetensors(model, {"w": 2 * W})
    assert np.array_equal(product(of(model))[1], 2 * first)
    assert len(names(folder)) == 2
    before = of(model)
    write_safetensors(model, {"w": 3 * W})
    assert np.array_equal(product(before)[1], 2 * first), "it has what was mapped"
    assert len(names(folder)) == 2, "whose file is gone"


def test_a_file_that_changes_while_it_is_packed(
    folder: PackedFolder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlx.runtime.cache.packed.checkpoint", model.touch)
    product(of(model))
    assert not names(folder)


def test_a_param_that_is_set_while_it_is_packed(
    folder: PackedFolder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["rows", 256]) @ g.param("w", W.shape))
    f = rlx.Session("cpu").compile(g)
    monkeypatch.setattr("rlx.runtime.cache.packed.checkpoint", lambda: f.set_param("w", W))
    f.set_param("w", of(model))
    f.run({"x": X})
    waited()
    assert not names(folder)


@pytest.mark.parametrize("why", ["new", "no limit", "small limit", "no room", "memory", "off"])
def test_what_is_not_kept(
    why: str, folder: PackedFolder, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"no limit": 0, "small limit": 1000}.get(why, folder.limit)
    if why == "new":
        monkeypatch.setattr("rlx.runtime.cache.shared.SETTLED_NS", 1 << 60)
    if why == "no room":
        monkeypatch.setattr("rlx.runtime.cache.packed._free", lambda path: 1000)
    with knobs.packed_size.scoped(limit), knobs.cache.scoped(why != "off"):
        _, y = product(W if why == "memory" else of(model))
    np.testing.assert_allclose(y, X @ W, rtol=1e-4, atol=1e-4)
    assert not names(folder)


def test_what_was_used_longest_ago_goes(folder: PackedFolder, model: Path) -> None:
    product(of(model))
    (first,) = names(folder)
    write_safetensors(model, {"w": 2 * W})
    with knobs.packed_size.scoped(3 * first.stat().st_size // 2):
        product(of(model))
    assert len(names(folder)) == 1 and not first.exists()


def test_the_command(folder: PackedFolder, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product(of(model))
    assert main(["cache", "list"]) == 0
    assert "1 packed weights, " in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert not names(folder)


def test_weights_of_the_process_alone_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    none = SimpleNamespace(checksum=looked.append, ABI_VERSION=0, ARTIFACT_FORMAT=0)
    monkeypatch.setattr("rlx.runtime.cache.packed._native", none)
    product(W)
    assert not looked
