"""What a target refuses is one thing, whoever is asked: legalisation for a target, for the device
of that name, and the compiler; on samples of ops, on every element type."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.op import op_class, type_of
from rlx.ops import OP_MODULES
from rlx.ops.control.control import Control
from rlx.targets import TARGETS
from rlx.types import DTYPES
from support.sweeps import WHOLE, turn

COUNT = 4 if WHOLE else 1
"""Ops on each element type and target; other ones on each, so that all come by."""

PAIRS = [
    pair
    for n, target in enumerate(TARGETS)
    for pair in turn([(target, dtype) for dtype in DTYPES], n, 2)
]
"""Each target with every second element type, and each type with every second target."""


def samples(target: str, dtype: str) -> Iterator[Graph]:
    """Graphs of one op each."""
    dt = DTYPES[dtype]
    classes = [op_class(n) for n in OP_MODULES if not n.startswith("control.")]
    able = [c for c in classes if dt in c.dtypes and c.runnable() and not issubclass(c, Control)]
    rng = np.random.default_rng([*target.encode(), *dtype.encode()])
    for n in rng.permutation(len(able)):
        cls = able[int(n)]
        for s in list(cls.samples)[:1]:
            g = Graph(cls.name)
            types = [None if t is None else type_of(t, dt) for t in s.types]
            leaves = [
                None if t is None else g.input(f"x{i}", t.shape, t.dtype)
                for i, t in enumerate(types)
            ]
            g.set_outputs(list(cls(*leaves, **s.attrs).results))
            yield g


def refused(ask: object, *given: object) -> bool:
    """Whether a question has the answer that it is not supported."""
    try:
        ask(*given)  # type: ignore[operator]
    except UnsupportedError:
        return True
    return False


WRITERS = {"mlx": "mlx", "ane": "coremltools"}
"""The packages that write programs of targets, which are asked what they take."""


@pytest.mark.parametrize(("target", "dtype"), PAIRS)
def test_all_ways_of_asking_agree(target: str, dtype: str) -> None:
    if (package := WRITERS.get(target)) and find_spec(package) is None:
        pytest.skip(f"{target} needs {package}")
    # The features are named, so that those of a device that is here do not count.
    features = rlx.CompilePipeline(target).target.features.name
    named = f"{target}:{features}"
    for g in islice(samples(target, dtype), COUNT):
        found = refused(rlx.legalize_for_backend, g, named)
        assert found == refused(rlx.legalize_graph_for_device, g, named), g.name
        assert found == refused(rlx.legalize_for_backend, g, target), g.name
        assert found == refused(rlx.compile_artifact, g, named), g.name


def test_a_device_without_f64_is_said_to_have_none() -> None:
    g = Graph("wide")
    g.set_outputs(g.input("x", [4], "f64") + 1.0)
    for target in ("opengl", "webgpu"):
        with pytest.raises(UnsupportedError, match=r"does not run .* of .*f64"):
            rlx.legalize_for_backend(g, target)
    assert rlx.legalize_for_backend(g, "cpu").stage == "mir"
    with pytest.raises(GraphError, match="a Graph is expected, found an int"):
        rlx.legalize_for_backend(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", WRITERS)
def test_types_that_a_target_lacks_are_refused_without_its_package(target: str) -> None:
    g = Graph("wide")
    x = g.input("x", [4], "f64")
    g.set_outputs((x + 1.0) * x)
    with pytest.raises(UnsupportedError, match=r"does not run: .*mir.add x .*mir.mul x .*: f64"):
        rlx.compile_artifact(g, target)
