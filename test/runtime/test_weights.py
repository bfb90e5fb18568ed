"""Weights shared by the executables of a graph's bindings."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.runtime.session import CompiledGraph, Session

Array = np.ndarray[Any, Any]


def product() -> rlx.Graph:
    """y[rows, 3] = x[rows, 4] @ w, w packed by the prologue."""
    g = rlx.Graph()
    x = g.input("x", ["rows", 4])
    w = g.param("w", [4, 3])
    g.set_outputs([x @ w])
    return g


def weights_of(compiled: CompiledGraph) -> list[Any]:
    return [e.weights for e in compiled._bound.values()]


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_bindings_share_their_weights(device: str) -> None:
    compiled = Session(device).compile(product())
    for scale in (1, 3):
        w = np.full((4, 3), scale, np.float32)
        compiled.set_param("w", w)
        for rows in (2, 5, 2):
            x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
            np.testing.assert_array_equal(compiled.run({"x": x})[0], x @ w)
    assert len(weights_of(compiled)) == 2
    assert len(set(weights_of(compiled))) == 1


def test_a_prologue_that_depends_on_a_dim_is_its_own() -> None:
    g = rlx.Graph()
    x = g.input("x", ["rows", 4])
    table = g.param("table", [8, 4])
    g.set_outputs([x + table.slice((0, 0), (x.shape[0], 4)) * 2.0])
    with knobs.sizes.scoped("bound"):  # else what depends on a dim is no part of the prologue
        compiled = Session().compile(g)
    a = np.arange(32, dtype=np.float32).reshape(8, 4)
    for value in (a, -a):
        compiled.set_param("table", value)
        for rows in (2, 8):
            x = np.ones((rows, 4), np.float32)
            np.testing.assert_array_equal(compiled.run({"x": x})[0], x + 2 * value[:rows])
    assert len(set(weights_of(compiled))) == 2


def test_equal_objects_and_constants_are_in_memory_once() -> None:
    g = rlx.Graph()
    x = g.input("x", ["rows", 4])
    g.set_outputs([x.max(axes=0) * np.array([1, 2, 3, 4], np.float32)])
    compiled = Session().compile(g)
    for rows in (2, 3):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_array_equal(compiled.run({"x": x})[0], [1, 2, 3, 4])
    first, second = (e._code for e in compiled._bound.values())
    assert len(first.constants) == 1
    assert first.constants[0] is second.constants[0]
    assert set(first.objects) == set(second.objects) != set()


def test_params_change_while_two_bindings_run() -> None:
    compiled = Session().compile(product())
    values = [np.full((4, 3), v, np.float32) for v in (1, 2, 3)]
    compiled.set_param("w", values[0])
    inputs = [np.ones((rows, 4), np.float32) for rows in (2, 5)]
    for x in inputs:
        compiled.run({"x": x})
    torn: list[Array] = []

    def caller(x: Array) -> None:
        for _ in range(300):
            (out,) = compiled.run({"x": x})
            if len(np.unique(out)) != 1 or out[0, 0] not in (4, 8, 12):
                torn.append(out)

    threads = [threading.Thread(target=caller, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for i in range(200):
        compiled.set_param("w", values[i % 3])
    for thread in threads:
        thread.join()
    assert torn == []


def compiled_product(w: Array) -> CompiledGraph:
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2, w.shape[0])) @ g.param("w", w.shape)])
    compiled = Session("cpu").compile(g)
    compiled.set_param("w", w)
    return compiled


def resident(path: Path) -> int:
    """Bytes of a mapped file in this process's memory."""
    maps = Path("/proc/self/smaps").read_text().split(f"{path}\n")[1:]
    return sum(int(m.split("Rss:", 1)[1].split(None, 1)[0]) for m in maps) * 1024


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads Linux's account")
def test_a_mapped_param_leaves_memory_when_it_is_packed(tmp_path: Path) -> None:
    x = np.ones((2, 1024), np.float32)
    w = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
    w.tofile(path := tmp_path / "w")
    mapped = np.memmap(path, np.float32, "r", shape=w.shape)
    assert mapped.sum() and resident(path) >= w.nbytes
    found = compiled_product(mapped).run({"x": x})[0]
    assert resident(path) < w.nbytes // 8
    np.testing.assert_array_equal(found, compiled_product(w).run({"x": x})[0])
    np.testing.assert_array_equal(mapped, w)


def test_a_private_mapping_keeps_what_was_written_to_it(tmp_path: Path) -> None:
    x = np.ones((2, 1024), np.float32)
    np.zeros((1024, 1024), np.float32).tofile(path := tmp_path / "w")
    private = np.memmap(path, np.float32, "c", shape=(1024, 1024))
    private[:] = 1
    private.flags.writeable = False
    np.testing.assert_array_equal(compiled_product(private).run({"x": x})[0], 1024)
    np.testing.assert_array_equal(private, 1)


def test_a_read_only_param_that_is_not_aligned_is_copied() -> None:
    w = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    odd = np.frombuffer(b"x" + w.tobytes(), np.uint8)[1:].view(np.float32).reshape(w.shape)
    assert not odd.flags.aligned and not odd.flags.writeable
    found = compiled_product(odd).run({"x": np.ones((2, 8), np.float32)})[0]
    np.testing.assert_array_equal(
        found, compiled_product(w).run({"x": np.ones((2, 8), np.float32)})[0]
    )
