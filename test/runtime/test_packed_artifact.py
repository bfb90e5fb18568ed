"""Artifacts that hold params packed: they are mapped and used as they lie, until a param is set."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.container import parts_of

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((96, 512)).astype(np.float32)
BLOCKS = rlx.quant.quantize(WEIGHT, "q4_0")
Q, K = (RNG.standard_normal((96, 48)).astype(np.float32) for _ in range(2))
TIED = RNG.standard_normal((96, 96)).astype(np.float32)
VALUES = {"w": BLOCKS, "q": Q, "k": K, "tied": TIED}


def model(rows: int | str = 3) -> rlx.Graph:
    """Products by blocks, by a sum of params, and by a weight that is gathered as well."""
    g = rlx.Graph("model")
    x, i = g.input("x", [rows, 512]), g.input("i", [2], "i64")
    h = x @ g.param("w", BLOCKS.shape, "u8").dequantize_blocks("q4_0").transpose()
    h = h @ g.param("tied", [96, 96])
    total = g.param("q", [96, 48]) + g.param("k", [96, 48])
    g.set_outputs([h @ total, g.params[1].gather(i, axis=0)])
    return g


INPUTS: dict[str, Array] = {
    "x": RNG.standard_normal((3, 512)).astype(np.float32),
    "i": np.array([1, 5]),
}


def expected(values: dict[str, Array], rows: int | str = 3) -> list[Array]:
    f = rlx.Session("cpu").compile(model(rows))
    for name, value in values.items():
        f.set_param(name, value)
    return f.run(INPUTS)


def same(found: list[Array], wanted: list[Array]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module", params=[3, "rows"])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    dims = {"rows": (1, 8)} if request.param == "rows" else None
    return rlx.compile_artifact(model(request.param), "cpu", params=VALUES, dims=dims)


def test_params_that_only_the_prologue_reads_are_packed(artifact: Artifact, tmp_path: Path) -> None:
    assert artifact.packed_params == {"w", "q", "k"} and set(artifact.values) == {"tied"}
    assert artifact.without_value == []
    artifact.save(tmp_path / "a.rlx")
    loaded = Artifact.load(tmp_path / "a.rlx")
    assert bytes(loaded) == bytes(artifact) and loaded.packed_params == artifact.packed_params
    parts = parts_of(bytes(artifact))
    assert not {"params/0", "params/2", "params/3"} & parts.keys()
    assert sum(name.startswith("packed/") for name in parts) == 1
    f = rlx.Session("cpu").load(loaded)
    same(f.run(INPUTS), expected(VALUES))


def test_nothing_is_packed_again(artifact: Artifact) -> None:
    nothing = [replace(v, packed=np.zeros_like(v.packed)) for v in artifact.variants]  # pyright: ignore
    f = rlx.Session("cpu").load(replace(artifact, variants=tuple(nothing)))
    product, rows = f.run(INPUTS)
    assert not product.any()
    np.testing.assert_array_equal(rows, TIED[INPUTS["i"]])


def test_params_are_set_anew(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "a.rlx")
    f = rlx.Session("cpu").load(tmp_path / "a.rlx")
    other = rlx.quant.quantize(WEIGHT[::-1], "q4_0")
    f.set_param("w", other)  # before a run, and where sizes are bound later
    same(f.run(INPUTS), expected({**VALUES, "w": other}))
    f.set_param("tied", TIED + 1)
    same(f.run(INPUTS), expected({**VALUES, "w": other, "tied": TIED + 1}))
    f.set_param("q", Q + 1)
    with pytest.raises(GraphError, match=r"param 'k'.*was packed into.*set this one anew too"):
        f.run(INPUTS)
    f.set_param("k", K)
    same(f.run(INPUTS), expected({**VALUES, "w": other, "tied": TIED + 1, "q": Q + 1}))


def test_bytes_that_lie_anywhere_are_used(artifact: Artifact) -> None:
    data = bytes(artifact)
    for shift in (0, 8, 24):
        moved = np.zeros(len(data) + 128, np.uint8)
        start = -moved.ctypes.data % 64 + shift
        moved[start : start + len(data)] = np.frombuffer(data, np.uint8)
        f = rlx.Session("cpu").load(Artifact.from_bytes(moved[start : start + len(data)]))
        gc.collect()
        same(f.run(INPUTS), expected(VALUES))


def test_params_stay_as_they_are_for_other_machines() -> None:
    for target in ("cpu:aarch64", ["cpu:x86-64-v3", "cpu:aarch64"]):
        made = rlx.compile_artifact(model(), target, params=VALUES)
        assert set(made.values) == set(VALUES) and not made.packed_params


def test_what_has_no_value_keeps_all_as_they_are() -> None:
    made = rlx.compile_artifact(model(), "cpu", params={"w": BLOCKS, "q": Q})
    assert set(made.values) == {"w", "q"} and made.without_value == ["tied", "k"]


def test_what_grows_when_it_is_packed_stays_as_it_is() -> None:
    g = rlx.Graph("decoded")
    blocks = rlx.quant.quantize(WEIGHT, "q2_k")
    x = g.input("x", [3, 512])
    g.set_outputs([x @ g.param("w", blocks.shape, "u8").dequantize_blocks("q2_k").transpose()])
    made = rlx.compile_artifact(g, "cpu", params={"w": blocks})
    assert set(made.values) == {"w"}
    assert all(isinstance(v, Variant) and v.packed is None for v in made.variants)
