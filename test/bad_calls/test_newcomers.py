"""What somebody who comes from another library tries first, and what RLX says to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import (
    DTypeError,
    FaultError,
    GraphError,
    IRError,
    KnobError,
    NameError,
    OutOfMemoryError,
    ShapeError,
    UnknownOpError,
)
from rlx.ir.spellings import ARGUMENTS, FUNCTIONS, METHODS, OBJECTS
from rlx.ops import BUILDERS
from rlx.ops.control.bodies import MAX_DEPTH
from rlx.types import DTYPES
from support.bad_calls import Bad, check, ids

X = np.ones((2, 3), np.float32)


def graph() -> rlx.Graph:
    g = rlx.Graph("two")
    g.set_outputs([g.input("x", [2, 3]) * 2.0 + g.input("y", [2, 3])])
    return g


def step() -> Any:
    g = rlx.Graph("loss")
    w = g.param("w", [3], value=np.ones(3, np.float32))
    g.set_outputs([((g.input("x", [2, 3]) * w) ** 2).sum()])
    return rlx.compile_training(g, rlx.optim.Adam(1e-3))


SPELLINGS = [
    Bad(UnknownOpError, r"'float'; write x.cast\(\"f32\"\)", lambda x: x.float()),
    Bad(UnknownOpError, "'data'; write x itself", lambda x: x.data),
    Bad(UnknownOpError, "'grad'; write rlx.grad", lambda x: x.grad),
    Bad(UnknownOpError, "'cat'; write g.concat", lambda x: x.cat([x])),
    Bad(UnknownOpError, "'clamp'; write x.clip", lambda x: x.clamp(0, 1)),
    Bad(UnknownOpError, "'view'; write x.reshape", lambda x: x.view(3, 2)),
    Bad(UnknownOpError, "'relu_'; a Value never changes: write y = x.relu", lambda x: x.relu_()),
    Bad(UnknownOpError, "no op or attribute 'frobnicate'$", lambda x: x.frobnicate()),
    Bad(UnknownOpError, r"'compile'; write rlx.Session\(\).compile", lambda x: x.graph.compile()),
    Bad(UnknownOpError, r"'placeholder'; write g.input", lambda x: x.graph.placeholder("z", [2])),
    Bad(GraphError, "'dim'; did you mean 'axi?es'|'dim'; did you mean 'axis'", lambda x: x.sum(dim=1)),
    Bad(GraphError, "'dim'; did you mean 'axis'", lambda x: x.softmax(dim=-1)),
    Bad(GraphError, "takes a Graph or a function, found a Value", lambda x: rlx.grad(x, "x")),  # pyright: ignore
    Bad(ShapeError, "the dim n has no size yet; bind it", lambda x: symbolic().shape[0] > 1),
    Bad(ShapeError, "the dim n has no size yet; bind it", lambda x: int(symbolic().shape[0])),
    Bad(ShapeError, "the dim n has no size yet; bind it", lambda x: np.zeros(symbolic().shape)),
    Bad(GraphError, "fit trains a step .* found", lambda x: rlx.fit(x.graph, [], epochs=1)),
    Bad(GraphError, "rlx.training.Batches", lambda x: rlx.fit(step(), {"x": X}, epochs=1)),
    Bad(GraphError, "a batch is arrays by the names", lambda x: rlx.fit(step(), [(X, X)], epochs=1)),
    Bad(GraphError, "a batch is arrays by the names", lambda x: step()(X)),
    Bad(GraphError, "expected a GraphModule, found an int", lambda x: rlx.Session().compile_hir(42)),
    Bad(
        GraphError,
        "expected a GraphModule, found a Graph; compile",
        lambda x: rlx.Session().compile_hir(x.graph),
    ),
    Bad(
        GraphError,
        "inspect_graph: 'graph' is a HirModule, expected Graph",
        lambda x: rlx.inspect_graph(rlx.GraphModule.of(graph())),
    ),
    Bad(GraphError, "missing .* 'inputs'", lambda x: rlx.GraphDevices(graph()).run("cpu")),
    Bad(GraphError, "missing a required argument: 'batch'", lambda x: step()(x=X)),
    Bad(GraphError, "rlx.DevicePolicy, found 's'", lambda x: rlx.GraphDevices(graph(), "s")),
    Bad(GraphError, "batches are counted from 0", lambda x: rlx.training.Batches({"x": X}, 1)[-1]),
    Bad(GraphError, "earlier is a Tick, found 3", lambda x: rlx.Tick.now().elapsed_ns(3)),
    Bad(GraphError, "takes a function without arguments", lambda x: rlx.time_ns(3)),
    Bad(ShapeError, "more than there is memory for",
        lambda x: x.graph.constant(np.broadcast_to(np.float32(0), (1, 2**45)))),
    Bad(DTypeError, "the window is of real numbers",
        lambda x: x.stft(3, 1, window=np.ones(3, np.complex64))),
    Bad(ShapeError, "along the last axis, found a scalar", lambda x: x.sum().stft(4)),
    Bad(ShapeError, "q, k and v are of one rank",
        lambda x: x.graph.attention(x.reshape([1, 2, 1, 3]), 1.0, 1.0, layout="bshd")),
]  # fmt: skip


def symbolic() -> rlx.Value:
    return rlx.Graph().input("s", ["n", 3])


@pytest.mark.parametrize("bad", SPELLINGS, ids=ids(SPELLINGS))
def test_what_is_spelt_as_elsewhere(bad: Bad) -> None:
    x = graph().inputs[0]
    try:
        check(bad, x)
    except AssertionError as e:  # what no op was part of has no place
        assert "no place is named" in str(e)


def test_every_name_that_is_suggested_is_there() -> None:
    x = graph().inputs[0]
    for text in METHODS.values():
        for owner, name in re.findall(r"\b(x|g|rlx)\.(\w+)", text):
            known = name in BUILDERS or hasattr({"x": x, "g": x.graph, "rlx": rlx}[owner], name)
            assert known, text
    for text in FUNCTIONS.values():
        if not text.startswith("g."):
            assert hasattr(rlx, re.match(r"\w+", text)[0]), text  # pyright: ignore
    for kind, rows in OBJECTS.items():
        assert not {n for n in rows if n in dir(getattr(rlx, kind))}
        for text in rows.values():
            for owner, name in re.findall(r"\b(g|graph|rlx)\.(\w+)", text):
                assert hasattr(rlx if owner == "rlx" else x.graph, name), text
    assert not {*METHODS} & ({*BUILDERS} | {n for n in dir(rlx.Value) if not n.startswith("_")})
    assert not {n for n in FUNCTIONS if n in rlx.NAMES}
    assert all(ARGUMENTS.values())


def test_every_call_that_is_suggested_can_be_made() -> None:
    g = rlx.Graph()
    x, y = g.input("x", [4, 4]), g.input("y", [4, 4])
    known = {
        "g": g, "graph": g, "x": x, "y": y, "low": 0.0, "high": 1.0, "value": 0.0, "axis": 1,
        "parts": 2, "shape": (2, 8), "mask": g.input("mask", [4, 4], "bool"),
        "indices": g.input("indices", [2], "i64"), "labels": g.input("labels", [4], "i64"),
    }  # fmt: skip
    tried = 0
    for text in METHODS.values():
        if re.fullmatch(r"[\w.]+\(.*\)|x\.\w+", text) and "Session" not in text:
            assert isinstance(eval(text, known), rlx.Value | list | int | tuple), text
            tried += 1
    assert tried > 40


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("compile", "write rlx.Session"), ("Grpah", "mean 'Graph'"),
        ("relu", "ops are methods .* x.relu"), ("zeros", r"methods of graphs .* g.zeros\(\.\.\.\)$"), ("float32", "rlx.f32"),
        ("view", "on a Value x, write x.reshape"), ("tensor", "write g.constant"),
        ("Embed", "write rlx.models.Embed"), ("Adam", "write rlx.optim.Adam"),
    ],
)  # fmt: skip
def test_a_name_of_another_library(name: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(rlx, name, raising=False)  # a module of the package that somebody imported
    with pytest.raises(AttributeError, match=says):
        getattr(rlx, name)
    with pytest.raises(AttributeError, match="no attribute 'wibble'$"):
        rlx.wibble


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        (rlx.nn, "Dense", "no attribute 'Dense'; there are .*Linear"),
        (rlx.optim, "Adamw", "did you mean 'AdamW'"),
        (rlx.training, "Batch", "did you mean 'Batches'"),
        (rlx.models, "Embedder", "did you mean 'Embed'"),
        (rlx.quant, "quantise", "did you mean 'quantize'"),
    ],
)
def test_a_name_that_a_module_has_not(module: Any, name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=says):
        getattr(module, name)


def test_an_attribute_of_another_library() -> None:
    session = rlx.Session("cpu")
    f = session.compile(graph())
    results = f.run({"x": X, "y": X})
    named = rlx.Graph("named")
    named.set_outputs({"logits": named.input("x", [2, 3]).exp()})
    names = session.compile(named).run({"x": X})
    for wrong, says in (
        (lambda: session.run(graph()), r"Session has no attribute 'run'; write compile"),
        (lambda: session.complie(graph()), "did you mean 'compile'"),
        (lambda: f.save("m.onnx"), "write rlx.compile_artifact"),
        (lambda: f.wibble, "'wibble'$"),
        (lambda: names.logits, r"write results\['logits'\]"),
        (lambda: names.wibble, "'wibble'$"),
    ):
        with pytest.raises(AttributeError, match=says):
            wrong()
    assert not hasattr(results, "logits") and not hasattr(f, "__wibble__")
    with pytest.raises(GraphError, match=r"'precision'; write rlx.Session\(precision"):
        session.compile(graph(), precision="bf16")  # pyright: ignore


def test_a_compiled_graph_is_called_like_a_function() -> None:
    f = rlx.Session("cpu").compile(graph())
    wanted = f.run({"x": X, "y": 3 * X})
    for given in (f(X, 3 * X), f(x=X, y=3 * X), f(X, y=3 * X)):
        assert [a.tobytes() for a in given] == [a.tobytes() for a in wanted]
    for wrong, error, says in (
        (lambda: f(X, X, X), GraphError, "found 3 inputs, expected 2: 'x', 'y'"),
        (lambda: f(X, x=X, y=X), NameError, "'x' is given twice"),
        (lambda: f(X), NameError, "nothing was given for the input 'y'"),
        (lambda: f(X, z=X), NameError, "'z'"),
        (lambda: f({"x": X, "y": X}), GraphError, r"found a mapping; write run\(inputs\)"),
    ):
        with pytest.raises(error, match=says):
            wrong()


TABLE = np.ones((5, 3), np.float32)


def labels_graph(whole: bool = False) -> rlx.Graph:
    """A loss that takes of each row's three scores that of its label: by an op, if ``whole``."""
    g = rlx.Graph("labels")
    x, y = g.input("x", [4, 5]), g.input("y", [4], "i64")
    scores = x @ g.param("w", value=TABLE)
    if whole:
        g.set_outputs(scores.softmax_cross_entropy(y).mean())
        return g
    scores = scores.log_softmax(1)
    g.set_outputs(-g.gather(scores, y.reshape([4, 1]), axis=1, batch_dims=1).mean())
    return g


@pytest.mark.parametrize("device", ["cpu", "interpret"])
@pytest.mark.parametrize("wrong", [7, -4])
def test_a_label_out_of_range_is_named(wrong: int, device: str) -> None:
    feeds = {"x": np.ones((4, 5), np.float32), "y": np.array([0, wrong, 1, 2])}
    says = f"axis 1 of 3 elements: found {wrong}, from 'y'"
    out = np.empty((), np.float32)
    f = rlx.Session(device).compile(labels_graph())
    for call in (
        lambda: f.run(feeds),
        lambda: f.run_slots(*feeds.values()),
        lambda: f.run_into(feeds, [out]),
    ):
        with pytest.raises(FaultError, match=says):
            call()
    step = rlx.compile_training(labels_graph(), rlx.optim.SGD(0.1))
    with pytest.raises(FaultError, match=says):
        step(feeds)


def test_a_label_of_a_composite_op_is_named() -> None:
    step = rlx.compile_training(labels_graph(whole=True), rlx.optim.SGD(0.1))
    with pytest.raises(FaultError, match=r"out of range for 3 classes: found 7, from 'y'"):
        step({"x": np.ones((4, 5), np.float32), "y": np.array([0, 1, 7, 2])})


def index_of(kind: str, g: rlx.Graph, v: rlx.Value) -> rlx.Value:
    if kind == "counted":
        return (v * 2).cast("i64")
    if kind == "computed":  # from what is no integer: that would be to run the graph again
        return (v.cast("f32") * 2.0 + 1.0).cast("i64")
    return v + g.input("more", [1], "i64")


@pytest.mark.parametrize(
    ("kind", "says"),
    [("counted", ": found 12, from 'ids'$"), ("both", ": found 7, from 'ids' and 'more'$"),
     ("computed", "of 5 elements$")],
)  # fmt: skip
def test_where_an_index_comes_from(kind: str, says: str) -> None:
    g = rlx.Graph("rows")
    ids = g.input("ids", ["n"], "i64")
    g.set_outputs(g.gather(g.param("t", value=TABLE), index_of(kind, g, ids), axis=0))
    feeds = {"ids": np.array([1, 6])}
    feeds |= {"more": np.array([1])} if kind == "both" else {}
    with pytest.raises(FaultError, match=says):
        rlx.Session("cpu").compile(g).run(feeds)


FILES = [
    ("m.onnx", b"\x08\x07\x12\x00\xe1", "an ONNX model: rlx.from_onnx"),
    ("m.rlx", b"\x89RLX\r\n\x1a\n", "an RLX artifact"),
    ("m.safetensors", b"\2\0\0\0\0\0\0\0{}\xff\xff\xff", "safetensors"),
    ("m.gguf", b"GGUF\3\0\0\0\xff", "a GGUF file"),
    ("m.bin", b"\xff\xfe", "byte 0xff at offset 0 is not text"),
]


@pytest.mark.parametrize(("name", "data", "says"), FILES, ids=[f[0] for f in FILES])
def test_a_file_of_another_kind(name: str, data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(IRError, match=says):
        rlx.load(tmp_path / name)


def test_bodies_nested_deep() -> None:
    def nested(v: Any, k: int) -> Any:
        return rlx.cond(v.sum().gt(0), lambda u: nested(u, k - 1), lambda u: u, v) if k else v + 1.0

    for depth, fits in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False), (200, False)):
        g = rlx.Graph("nested")
        x = g.input("x", [4])
        if fits:
            g.set_outputs(nested(x, depth))
            (found,) = rlx.Session("cpu").compile(g).run({"x": np.ones(4, np.float32)})
            assert found.tolist() == [2.0] * 4
            continue
        with pytest.raises(GraphError, match=f"lies in {MAX_DEPTH} bodies"):
            nested(x, depth)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_outputs_that_memory_does_not_hold(dtype: str) -> None:
    g = rlx.Graph("large")
    x = g.input("x", [1], dtype)
    g.set_outputs([x.expand([2**44]), x + 1.0])
    f = rlx.Session("cpu").compile(g)
    given = np.ones(1, DTYPES[dtype].numpy)
    says = f"the outputs take {(2**44 + 1) * given.itemsize} bytes"
    for call in (
        lambda: f.run({"x": given}),
        lambda: f.run_slots(given),
        lambda: f.profile({"x": given}),
    ):
        with pytest.raises(OutOfMemoryError, match=says):
            call()
    over = rlx.Session("cpu").compile(g, donate=((0, 1),))
    with pytest.raises(OutOfMemoryError, match=says):
        over.run_in_place({}, {"x": given})
    with pytest.raises(OutOfMemoryError, match=rf"mir\.expand: .*\({2**44 * given.itemsize} bytes"):
        rlx.interpret(g, {"x": given})


def test_a_call_whose_inner_values_memory_does_not_hold() -> None:
    g = rlx.Graph("large")
    wide = g.input("x", [1, 1]).expand([2**22, 2**22]).cumsum(0)
    g.set_outputs(wide.sort(0)[0:1, 0:1])
    f = rlx.Session("cpu").compile(g)
    x = np.ones((1, 1), np.float32)
    for call in (
        lambda: f.run({"x": x}),
        lambda: f.run_slots(x),
        lambda: f.run_into({"x": x}, [np.empty_like(x)]),
    ):
        with pytest.raises(OutOfMemoryError, match=r"no memory, expected \d{15} bytes for a call"):
            call()


@pytest.mark.parametrize("threads", ["0", "-1", "100000", "many"])
def test_a_number_of_threads_that_there_cannot_be(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_NUM_THREADS", threads)
    with pytest.raises(KnobError, match=r"RLX_NUM_THREADS is .*expected a number of threads in 1"):
        rlx.Session("cpu").compile(graph())


def test_a_number_of_runs_that_there_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_BENCHMARK_PICK", "-1")
    with pytest.raises(KnobError, match=r"RLX_BENCHMARK_PICK is .*expected a number of runs"):
        rlx.DevicePolicy.from_env()


def test_a_toolchain_that_cannot_be_mapped() -> None:
    code = (
        "import sys\nclass Refuse:\n def find_spec(self, name, *_):\n"
        "  if name == 'torch_mlir': raise ImportError('failed to map segment')\n"
        "sys.meta_path.insert(0, Refuse())\nimport rlx\ng = rlx.Graph()\n"
        "g.set_outputs(g.input('x', [2]) * 2.0)\n"
        "try: g.to_mlir()\nexcept rlx.RlxError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=True
    )
    assert "torch-mlir cannot be loaded: failed to map segment" in done.stdout
