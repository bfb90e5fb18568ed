"""Every class of error can be met, and an error of the user's says where in the user's code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import rlx
from rlx import errors


def _graph() -> tuple[rlx.Graph, rlx.Value]:
    g = rlx.Graph()
    return g, g.input("x", [2, 3])


def _graph_error(_: Path) -> None:
    g, _x = _graph()
    g.set_outputs([])


def _shape_error(_: Path) -> None:
    _g, x = _graph()
    x @ x


def _dtype_error(_: Path) -> None:
    g, _x = _graph()
    g.input("y", [1], "f33")


def _name_error(_: Path) -> None:
    g, _x = _graph()
    g.input("x", [1])


def _unknown_op_error(_: Path) -> None:
    _g, x = _graph()
    x.gelo()


def _ir_error(_: Path) -> None:
    from rlx.dialects.context import parse

    parse("func.func @main(")


def _pass_error(_: Path) -> None:
    from rlx.lowering.pipeline import named

    named("fuze")


def _unsupported_error(_: Path) -> None:
    from rlx.dialects.context import parse
    from rlx.tools.stages import passes_to

    g, x = _graph()
    g.set_outputs(x.exp())
    passes_to(parse(rlx.inspect_pipeline(g).lir), "mir")


def _device_error(_: Path) -> None:
    rlx.Session("cpus")


def _device_lost_error(_: Path) -> None:
    from support.drivers import available

    driver = available("cuda")
    driver.lost = "pulled out"
    driver.sync()


def _out_of_memory_error(_: Path) -> None:
    from support.drivers import available

    available("cuda").allocate(1 << 60)


def _toolchain_error(_: Path) -> None:
    from rlx.codegen.builder import KernelText
    from rlx.targets.cpu import make_target

    kernel = KernelText("twice", "", (), (), False, "cpu")
    make_target("x86-64-v3").emitter.emit([kernel, kernel], "llvm")


def _fault_error(_: Path) -> None:
    g, x = _graph()
    g.set_outputs(g.gather(x, g.input("i", [1], "i64"), axis=0))
    rlx.Session().compile(g).run({"x": [[0] * 3] * 2, "i": [7]})


def _model_error(empty: Path) -> None:
    from rlx.models import Embed

    Embed.from_dir(empty)


def _non_finite_error(_: Path) -> None:
    g = rlx.Graph()
    g.set_outputs(g.param("w", value=np.float32(-1)).log())
    rlx.compile_training(g, rlx.optim.SGD())({})


def _checkpoint_error(empty: Path) -> None:
    g = rlx.Graph()
    g.set_outputs(g.param("w", value=np.float32(1)).log())
    rlx.compile_training(g, rlx.optim.SGD()).load(empty / "none")


def _knob_error(_: Path) -> None:
    from rlx import knobs

    with mock.patch.dict(os.environ, RLX_NUM_THREADS="many"):
        knobs.num_threads.get()


def _artifact_error(_: Path) -> None:
    from rlx.runtime.artifact import Artifact

    Artifact.from_bytes(b"no artifact")


def _trace_error(_: Path) -> None:
    rlx.trace.flush()


PROVOKED: dict[str, Callable[[Path], None]] = {
    "GraphError": _graph_error,
    "ShapeError": _shape_error,
    "DTypeError": _dtype_error,
    "NameError": _name_error,
    "UnknownOpError": _unknown_op_error,
    "KnobError": _knob_error,
    "IRError": _ir_error,
    "PassError": _pass_error,
    "UnsupportedError": _unsupported_error,
    "DeviceError": _device_error,
    "DeviceLostError": _device_lost_error,
    "OutOfMemoryError": _out_of_memory_error,
    "ToolchainError": _toolchain_error,
    "FaultError": _fault_error,
    "NonFiniteError": _non_finite_error,
    "CheckpointError": _checkpoint_error,
    "ModelError": _model_error,
    "ArtifactError": _artifact_error,
    "TraceError": _trace_error,
}
"""For every error class something that raises it."""


def test_every_error_class_can_be_provoked() -> None:
    named = {n: getattr(errors, n) for n in errors.__all__}
    classes = {
        n
        for n, c in named.items()
        if isinstance(c, type) and not issubclass(c, Warning)  # a warning refuses nothing
    }
    assert set(PROVOKED) == classes - {"RlxError"}


@pytest.mark.parametrize("name", PROVOKED)
def test_an_error_class_says_what_to_do(name: str) -> None:
    """``rlx-opt --explain`` shows it."""
    assert "\n\n    What to do: " in (getattr(errors, name).__doc__ or "")


def test_a_protocol_of_python_keeps_its_error() -> None:
    """What the README leaves out of its statement, and what it says of a ShapeError."""
    for module in (rlx, rlx.ops, rlx.prelude):
        with pytest.raises(AttributeError) as caught:
            module.nothing
        assert not isinstance(caught.value, errors.RlxError)
    assert issubclass(errors.ShapeError, ValueError)


@pytest.mark.parametrize("name", PROVOKED)
def test_an_error_is_of_its_class_and_says_where(name: str, tmp_path: Path) -> None:
    with pytest.raises(errors.RlxError) as caught:
        PROVOKED[name](tmp_path)
    assert type(caught.value) is getattr(errors, name)
    if isinstance(caught.value, errors.GraphError | errors.FaultError):
        code = inspect.getsourcelines(PROVOKED[name])
        place = caught.value.location
        assert place is not None, "it says no place"
        assert place[0] == __file__
        assert code[1] <= place[1] < code[1] + len(code[0]), f"line {place[1]} did not do it"
