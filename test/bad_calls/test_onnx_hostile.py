"""ONNX models of a few kilobytes that ask for more time or memory than there is: each is refused
within seconds, in a process that may take little memory."""

from __future__ import annotations

import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import ModelProto, NodeProto, numpy_helper

import rlx
from rlx.errors import RlxError
from rlx.frontends.onnx import edges, importer, missing
from support.onnx_text import model

MEMORY, SECONDS = 1 << 30, 60
"""What a process may take beside what it has, and the processor's time."""


def limited(call: Callable[[], Any]) -> str:
    """The error of a call in a process of its own, as ``Class: message``."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            spent = int(sum(os.times()[:2])) + SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
            try:
                call()
                said = "nothing was refused"
            except BaseException as e:
                said = f"{type(e).__name__}: {e}"
            os.write(write, said.encode(errors="replace")[:1000000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    return said or f"the process ended: {signal.Signals(status & 127).name}"


def numbers(m: ModelProto, **given: Any) -> ModelProto:
    """A model with initialisers of i64."""
    for name, value in given.items():
        m.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return m


def chain(first: str, op: str, count: int, last: str, **given: Any) -> ModelProto:
    """A model that applies an op to a value and itself again and again; ``last`` reads ``v``."""
    steps = " ".join(f"v{i + 1} = {op} (v{i}, v{i})" for i in range(count))
    text = (
        f"g (float[n, 4] x) => (float y) {{ v0 = {first} {steps} v = Identity (v{count}) {last} }}"
    )
    return numbers(model(text), **given)


def bodies(depth: int) -> ModelProto:
    """Ifs in branches of Ifs."""
    m = model("g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p) { p = Exp (x) },"
              " else_branch = e () => (float[2] q) { q = Neg (x) }> }")  # fmt: skip
    inner = m.graph.node[0]
    for _ in range(depth):
        outer = NodeProto()
        outer.CopyFrom(m.graph.node[0])
        outer.attribute[0].g.node[0].CopyFrom(inner)
        outer.attribute[0].g.output[0].name = "y"
        inner = outer
    m.graph.node[0].CopyFrom(inner)
    return m


def functions(depth: int, body: str) -> ModelProto:
    """Functions, each of which calls the next."""
    text = "g (float[2] x) => (float[2] y) { y = own.F0 (x) }"
    last = f'<domain: "own", opset_import: ["" : 21]> F{depth} (a) => (b) {{ b = Neg (a) }}'
    each = [
        f'<domain: "own", opset_import: ["" : 21, "own" : 1]> F{i} (a) => (b) {{ {body.format(f"own.F{i + 1}")} }}'
        for i in range(depth)
    ]
    return model(text, 21, "\n".join([*each, last]))


def loops(depth: int, trip: int) -> ModelProto:
    """Loops in bodies of loops, whose rounds decide a shape."""
    text = f"d = Add (a{depth}, a{depth})"
    for i in reversed(range(depth)):
        text = (
            f'd = Loop (trip, "", a{i}) <body = b (int64 i{i}, bool k{i}, int64[1] a{i + 1}) =>'
            f" (bool g{i}, int64[1] d) {{ g{i} = Identity (k{i}) {text} }}>"
        )
    graph = f"g (float[2] x) => (float y) {{ a0 = Identity (s) {text} y = Expand (x, d) }}"
    return numbers(model(graph), trip=trip, s=[1])


def long_name() -> ModelProto:
    m = model("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    m.graph.input[0].name, m.graph.node[0].input[0] = "a" * 200000, "b" + "a" * 200000
    return m


def many_axes() -> ModelProto:
    return numbers(model("g (float[2] x) => (float y) { y = Unsqueeze (x, axes) }"), axes=range(90))


SIZES = "g (float[2] x) => (float y) {{ y = {} }}"
IMAGE = "g (float[1,1,4,4] x) => (float y) {{ y = {} }}"
HUGE = [1, 1, 1 << 30, 1 << 30]


class Bomb(NamedTuple):
    says: str
    make: Callable[[], ModelProto]


BOMBS = [
    Bomb("UnsupportedError: .*not known while importing", lambda: chain("Shape (x)", "Mul", 70, "y = Reshape (x, v)")),
    Bomb("LimitError: .*polynomial of degree 128", lambda: chain("Shape <end = 1> (x)", "Mul", 70, "y = Reshape (x, v)")),
    Bomb("LimitError: .*numbers of", lambda: chain("Shape <end = 1> (x)", "Add", 700, "y = Reshape (x, v)")),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: chain("Neg (w)", "Concat <axis = 0>", 70, "y = Exp (v)", w=[1, 2])),
    Bomb("UnsupportedError: .*elements would be computed while importing", lambda: chain("Expand (w, s)", "Add", 200, "z = ReduceMax <keepdims = 0> (v)"
        " u = Unsqueeze (z, w) y = Expand (x, u)", w=[0], s=[1 << 22])),
    Bomb("ModelError: .*the function own.F2[0-9] comes to more than", lambda: functions(30, "c = {} (a) d = {0} (c) b = Add (c, d)".replace("{}", "{0}"))),
    Bomb("ModelError: .*nested more than 32 deep", lambda: functions(1000, "b = {} (a)")),
    Bomb("ModelError: .*a body of If is nested more than 32 deep", lambda: bodies(90)),
    Bomb("ModelError: .*its loops come to more than 300 nodes", lambda: loops(12, 2)),
    Bomb("UnsupportedError: .*elements would be computed while importing", lambda: loops(4, 1 << 20)),
    Bomb("UnsupportedError: .*elements would be computed", lambda: numbers(model(IMAGE.format('Resize <mode = "linear"> (x, "", "", s)')), s=HUGE)),
    Bomb("UnsupportedError: .*elements would be computed", lambda: numbers(model(IMAGE.format('Resize (x, "", "", s)')), s=HUGE)),
    Bomb("UnsupportedError: .*elements would be computed", lambda: numbers(model(SIZES.format('Pad <mode = "reflect"> (x, s)')), s=[0, 1 << 40])),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: numbers(model(SIZES.format("Pad (x, s)")), s=[0, 1 << 60])),
    *(
        Bomb("UnsupportedError: .*100000000000 more elements would be computed", lambda op=op: numbers(model(SIZES.format(f"{op}Window (s)")), s=10**11))
        for op in ("Hann", "Hamming", "Blackman")
    ),
    Bomb("ModelError: .*its size is -5, expected a number", lambda: numbers(model(SIZES.format("HannWindow (s)")), s=-5)),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: numbers(model(SIZES.format("ConstantOfShape (s)")), s=[1 << 60])),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: numbers(model(SIZES.format("Tile (x, s)")), s=[1 << 60])),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: numbers(model(SIZES.format("Expand (x, s)")), s=[1 << 60, 2])),
    Bomb("ShapeError: .*2\\*\\*56 bytes", lambda: numbers(model("g () => (int64[n] y) { y = Range (a, b, c) }"), a=0, b=1 << 62, c=1)),
    Bomb("UnsupportedError: .*elements would be computed", lambda: model(IMAGE.format("LRN <size = 999999999> (x)"))),
    Bomb("ModelError: .*split into 999999999, and has 1 outputs", lambda: model(SIZES.format("Split <num_outputs = 999999999> (x)"))),
    Bomb("UnsupportedError: .*elements would be computed", lambda: model(IMAGE.format(
        "LpPool <kernel_shape = [1048576, 1048576], pads = [1048576, 1048576, 1048576, 1048576]> (x)"))),
    Bomb("UnsupportedError: .*elements would be computed", lambda: numbers(model("g (float[1,1,4] x) => (float y) { y = Col2Im (x, s, b) }"),
        s=[1 << 20, 1 << 20], b=[1, 1])),
    Bomb("UnsupportedError: .*elements would be computed", lambda: model(
        f"g (float[{','.join('1' * 42)}] x, float[{','.join('1' * 41)},40] z) => (float y) {{ y = GridSample <mode = \"cubic\"> (x, z) }}")),
    Bomb("ShapeError: .*at most 64 dims", many_axes),
    Bomb("ModelError: .*which no node, input or initialiser gives", long_name),
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_a_small_model_does_not_take_all_there_is(bomb: Bomb) -> None:
    m = bomb.make()
    assert m.ByteSize() < 1 << 20
    with (
        mock.patch.object(missing, "EXPANDED", 300),
        mock.patch.object(importer, "EXPANDED", 300),
        mock.patch.object(edges, "WORK", 1 << 24),
    ):
        said = limited(lambda: rlx.from_onnx(m))
        assert re.search(bomb.says, said[:1000] + said[-1000:]), said[:1000]
        with pytest.raises(RlxError):  # harmless here as well
            rlx.from_onnx(m)


LARGE = [
    (400000000000, SIZES.format("ConstantOfShape (s)"), {"s": [10**11]}),
    (800000000000, "g (float[2] x) => (int64[n] y) { y = Range (a, b, c) }", {"a": 0, "b": 10**11, "c": 1}),
    (160000000000, SIZES.format("EyeLike (z)").replace("y =", "z = ConstantOfShape (s)  y ="), {"s": [200000, 200000]}),
]  # fmt: skip


@pytest.mark.parametrize(("size", "text", "given"), LARGE, ids=[str(n) for n, _, _ in LARGE])
def test_an_output_that_memory_does_not_hold(size: int, text: str, given: dict[str, Any]) -> None:
    f = rlx.Session("cpu").compile(rlx.from_onnx(numbers(model(text), **given)))
    x = np.ones(2, np.float32)
    said = limited(lambda: f.run({"x": x}))
    assert re.search(f"OutOfMemoryError: .*the outputs take {size} bytes", said), said
