"""Bad calls that build a graph: names, shapes, element types, values, indices."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, NameError, ShapeError, UnknownOpError
from support.bad_calls import Bad, check, ids


class Halfway:
    """An object whose repr needs what its constructor has not set."""

    def __repr__(self) -> str:
        return f"Halfway({self.size})"  # pyright: ignore


LEAVES = [
    Bad(
        GraphError,
        "input: missing .* 'shape'; it takes .name, shape, dtype",
        lambda g, x: g.input("y"),
    ),
    Bad(
        GraphError,
        "input: got an unexpected keyword argument 'dytpe'",
        lambda g, x: g.input("y", [2], dytpe="f32"),
    ),
    Bad(
        GraphError,
        "param: too many positional arguments; it takes",
        lambda g, x: g.param(1, 2, 3, 4, 5),
    ),
    Bad(GraphError, "set_outputs: too many positional arguments", lambda g, x: g.set_outputs(x, x)),
    Bad(NameError, "'x' is already used at .*:", lambda g, x: g.input("x", [2])),
    Bad(NameError, "'x' is already used at .*:", lambda g, x: g.param("x", [2])),
    Bad(NameError, "a name must be a string .* found ''", lambda g, x: g.input("", [2])),
    Bad(NameError, "a name has no zero byte, found 'a.x00b'", lambda g, x: g.input("a\0b", [2])),
    Bad(NameError, "that UTF-8 can hold, found 'a.udc80'", lambda g, x: g.input("a\udc80", [2])),
    Bad(NameError, "that UTF-8 can hold", lambda g, x: g.set_outputs({"\ud800": x})),
    Bad(
        GraphError,
        "vmap: got an unexpected .* 'size'; did you mean 'axis_size'",
        lambda g, x: rlx.vmap(g, {"x": 0}, size=2),
    ),
    Bad(NameError, "a name must be a string .* found 3", lambda g, x: g.input(3, [2])),
    Bad(NameError, "a name must be a string .* found None", lambda g, x: g.param(None, [2])),
    Bad(
        ShapeError,
        "a dim is an int >= 0 or a name such as 'batch', found -1",
        lambda g, x: g.input("y", [-1]),
    ),
    Bad(ShapeError, "a dim is an int .* found 1.5", lambda g, x: g.input("y", [2, 1.5])),
    Bad(ShapeError, "a dim is an int .* found a Halfway", lambda g, x: g.input("y", [Halfway()])),
    Bad(ShapeError, "a dim is an int .* found None", lambda g, x: g.input("y", [None])),
    Bad(ShapeError, "a dim is an int .* found True", lambda g, x: g.input("y", [True])),
    Bad(ShapeError, "a shape is a list of dims, found 3", lambda g, x: g.input("y", 3)),
    Bad(ShapeError, "a shape is a list of dims, found None", lambda g, x: g.input("y", None)),
    Bad(ShapeError, "a shape is a list of dims, found 'batch'", lambda g, x: g.input("y", "batch")),
    Bad(ShapeError, "has more than 2..56 bytes", lambda g, x: g.input("y", [2**40, 2**40])),
    Bad(ShapeError, "has more than 2..56 bytes", lambda g, x: g.param("y", [2**63])),
    Bad(ShapeError, "has more than 2..56 bytes", lambda g, x: g.input("y", [0, 2**60])),
    Bad(ShapeError, "at most 64 dims, found 65", lambda g, x: g.input("y", [1] * 65)),
    Bad(
        ShapeError,
        "has more than 2..56 bytes",
        lambda g, x: x.reshape([6, 1, 1]).expand([6, 2**40, 2**40]),
    ),
    Bad(NameError, "'two words' is no name for a dim", lambda g, x: g.input("y", ["two words"])),
    Bad(NameError, "'3' is no name for a dim", lambda g, x: g.input("y", ["3"])),
    Bad(NameError, "'' is no name for a dim", lambda g, x: g.input("y", [""])),
    Bad(
        DTypeError, "unknown dtype 'f33'; did you mean 'f32'", lambda g, x: g.input("y", [1], "f33")
    ),
    Bad(DTypeError, "unknown dtype 'datetime64'", lambda g, x: g.input("y", [1], np.datetime64)),
    Bad(DTypeError, "unknown dtype .*; RLX has f16", lambda g, x: g.input("y", [1], object())),
    Bad(DTypeError, "unknown dtype '7'; RLX has f16", lambda g, x: g.input("y", [1], 7)),
    Bad(DTypeError, "unknown dtype .*; RLX has f16", lambda g, x: g.input("y", [1], None)),
    Bad(GraphError, "param 'w' needs a shape or a value", lambda g, x: g.param("w")),
    Bad(
        DTypeError,
        "'w' is f32, found float64; convert",
        lambda g, x: g.param("w", [2], "f32", np.ones(2)),
    ),
    Bad(
        ShapeError,
        r"'w' has shape \[2, 3\], found \[3, 2\]$",
        lambda g, x: g.param("w", [2, 3], value=np.ones((3, 2), np.float32)),
    ),
    Bad(GraphError, "full takes one number, found 'a'", lambda g, x: g.full([2], "a")),
    Bad(GraphError, r"full takes one number, found \[1, 2\]", lambda g, x: g.full([2], [1, 2])),
    Bad(GraphError, "full takes one number, found None", lambda g, x: g.full([2], None)),
    Bad(
        ShapeError,
        "6 elements expected, 5 found",
        lambda g, x: g.param("w", [2, 3], value=np.ones(5, np.float32)),
    ),
    Bad(
        DTypeError,
        "param 'w' holds <object .*, which no element type does",
        lambda g, x: g.param("w", value=[object()]),
    ),
    Bad(DTypeError, "unknown dtype .*str", lambda g, x: g.param("w", value="abc")),
    Bad(DTypeError, "param 'w'.*no array", lambda g, x: g.param("w", value=[[1], [2, 3]])),
    Bad(ShapeError, "a dim is an int .* found -2", lambda g, x: g.param("w", [-2])),
    Bad(DTypeError, "unknown dtype .*str", lambda g, x: g.constant("text")),
    Bad(DTypeError, "holds None, which no element type", lambda g, x: g.constant(None)),
    Bad(DTypeError, "no array", lambda g, x: g.constant([[1], [2, 3]])),
    Bad(DTypeError, "unknown dtype 'f23'", lambda g, x: g.constant(1.0, "f23")),
    Bad(
        DTypeError,
        "the constant is i32, found float64 numbers",
        lambda g, x: g.constant(1.5, "i32"),
    ),
    Bad(
        DTypeError,
        "the constant is u8, found an int .*300 out of bounds",
        lambda g, x: g.constant(300, "u8"),
    ),
    Bad(
        DTypeError,
        r"the constant is f32, found 1e\+39, which is out of range",
        lambda g, x: g.constant([1.0, float("inf"), 1e39], "f32"),
    ),
    Bad(
        DTypeError,
        "the constant is f16, found 70000, which is out of range",
        lambda g, x: g.constant(70000, "f16"),
    ),
    Bad(DTypeError, "f32, found -1e\\+39, which is out of range", lambda g, x: g.constant(-1e39)),
    Bad(DTypeError, "the number 1e\\+39 does not fit f32", lambda g, x: x * 1e39),
    Bad(DTypeError, "the number -70000 does not fit f16", lambda g, x: x.cast("f16") - -70000),
    Bad(DTypeError, "the number 10+ does not fit f32", lambda g, x: x + 10**400),
    Bad(
        DTypeError,
        "holds 1000000000000000000000000000000, which no element type",
        lambda g, x: g.constant(10**30),
    ),
    Bad(
        DTypeError, "the constant is f32, found <U3 numbers", lambda g, x: g.constant("abc", "f32")
    ),
    Bad(ShapeError, "axis 3 is out of range for rank 1", lambda g, x: g.iota([4], 3)),
    Bad(ShapeError, "a dim is an int .* found -4", lambda g, x: g.iota(-4)),
    Bad(ShapeError, "a dim is an int .* found 1.5", lambda g, x: g.iota(1.5)),
    Bad(
        DTypeError, "counts in integers or floats, found bool", lambda g, x: g.iota(4, dtype="bool")
    ),
    Bad(GraphError, "attribute 'axis' must be int, found 'x'", lambda g, x: g.iota(4, "x")),
    Bad(DTypeError, "unknown dtype 'i65'", lambda g, x: g.iota(4, 0, "i65")),
]

OUTPUTS = [
    Bad(GraphError, "at least one output", lambda g, x: g.set_outputs([])),
    Bad(GraphError, "output 0 is an int, expected a Value", lambda g, x: g.set_outputs([3])),
    Bad(GraphError, "output 0 is a uint8, expected", lambda g, x: g.set_outputs([np.uint8(3)])),
    Bad(
        GraphError,
        "output 1 is an ndarray, expected a Value",
        lambda g, x: g.set_outputs([x, np.ones(2)]),
    ),
    Bad(DTypeError, "operand is a masked array", lambda g, x: x + np.ma.masked_array([1.0])),
    Bad(DTypeError, "constant is a masked array", lambda g, x: g.constant(np.ma.array([1.0]))),
    Bad(DTypeError, "'p' is a masked array", lambda g, x: g.param("p", value=np.ma.array([1.0]))),
    Bad(GraphError, "outputs are Values in a list, found None", lambda g, x: g.set_outputs(None)),
    Bad(GraphError, "outputs are Values in a list, found 3", lambda g, x: g.set_outputs(3)),
    Bad(
        GraphError,
        "belongs to another graph",
        lambda g, x: g.set_outputs([rlx.Graph().input("y", [2])]),
    ),
    Bad(
        GraphError,
        "add: Value 'x'.* is of graph .* and Value 'y'.* of another",
        lambda g, x: x + rlx.Graph().input("y", [2, 3]),
    ),
    Bad(GraphError, "has no outputs; call set_outputs first", lambda g, x: g.nodes()),
    Bad(GraphError, "has no outputs; call set_outputs first", lambda g, x: g.to_mlir()),
    Bad(GraphError, "has no outputs; call set_outputs first", lambda g, x: len(g)),
    Bad(GraphError, "has no outputs; call set_outputs first", lambda g, x: g.bind({})),
    Bad(NameError, "no dim is called 'batsh'.*known: none", lambda g, x: g.bind({"batsh": 2})),
    Bad(NameError, "no input or param is called 'y'.*'x'", lambda g, x: g.leaf_location("y")),
]

VALUES = [
    Bad(UnknownOpError, "no op or attribute 'gelo'; did you mean 'gelu'", lambda g, x: x.gelo()),
    Bad(
        UnknownOpError,
        "no op or attribute 'matmull'; did you mean 'matmul'",
        lambda g, x: g.matmull(x, x),
    ),
    Bad(
        UnknownOpError,
        "no op or attribute 'softmaxx'; did you mean 'softmax'",
        lambda g, x: x.softmaxx(-1),
    ),
    Bad(
        UnknownOpError,
        r"no op or attribute 'set_output'; write g.set_outputs\(\[y\]\)",
        lambda g, x: g.set_output(x),
    ),
    Bad(UnknownOpError, "no op or attribute 'dtyp'; did you mean 'dtype'", lambda g, x: x.dtyp),
    Bad(GraphError, "no truth value .* where", lambda g, x: bool(x)),
    Bad(GraphError, "no truth value .* where", lambda g, x: 0 < x.mean() < 1),
    Bad(GraphError, "no truth value .* `is`", lambda g, x: x in [x.exp()]),
    Bad(GraphError, "no truth value .* `is`", lambda g, x: [x.exp()].index(x)),
    Bad(GraphError, r"no truth value .*\(a < b\) & \(b < c\)", lambda g, x: max(x, x.exp())),
    Bad(GraphError, "no truth value", lambda g, x: sorted([x, x.exp()])),
    Bad(
        GraphError,
        "== compares element by element, and None has .* `x is None`",
        lambda g, x: x == None,  # noqa: E711
    ),
    Bad(GraphError, "!= compares element by element, and 'a' has none", lambda g, x: x != "a"),
    Bad(GraphError, "number or an array, found an object", lambda g, x: x == object()),
    Bad(GraphError, r"write \(x == item\).any\(\)", lambda g, x: 3 in x),
    Bad(GraphError, "a Value never changes", lambda g, x: x.__delitem__(0)),
    Bad(GraphError, r"no elements to format by '\.2f'", lambda g, x: f"{x:.2f}"),
    Bad(GraphError, r"round to 2 digits by \(x \* 100\)", lambda g, x: round(x, 2)),
    Bad(GraphError, "write x \\*\\* y % modulus", lambda g, x: pow(x, 2, 3)),
    Bad(GraphError, "a Value has no elements yet", lambda g, x: math.trunc(x)),
    Bad(
        GraphError,
        r"np.exp computes on arrays, .* write xp.exp\(x\)",
        lambda g, x: np.exp(x, dtype="f4"),
    ),
    Bad(GraphError, r"write xp.atan2\(x, y\)", lambda g, x: np.arctan2(x, x, casting="no")),
    Bad(GraphError, "np.spacing .* write ops on it", lambda g, x: np.spacing(x)),
    Bad(GraphError, "np.add.reduce .* write ops on it", lambda g, x: np.add.reduce(x)),
    Bad(GraphError, "write y = x . array", lambda g, x: np.ones(3, np.float32).__iadd__(x)),
    Bad(GraphError, "is not pickled alone; pickle the graph", lambda g, x: pickle.dumps(x)),
    Bad(GraphError, "is not pickled alone", lambda g, x: pickle.dumps(x.exp().op)),
    Bad(
        DTypeError, r"float64 and would make f64 .*astype\('float32'\)", lambda g, x: np.ones(3) * x
    ),
    Bad(DTypeError, "int64 and would make f64", lambda g, x: x + np.arange(3)),
    Bad(DTypeError, "float64 and would make f64", lambda g, x: x * [1, np.float32(2), 3]),
    Bad(DTypeError, "float64 and would make c128", lambda g, x: x.cast("c64") * np.ones(3)),
    Bad(DTypeError, "i32, found float64 numbers", lambda g, x: x.cast("i32") * [1.5, 2, 3]),
    Bad(GraphError, "a Value has no elements yet", lambda g, x: float(x)),
    Bad(GraphError, "a Value has no elements yet", lambda g, x: int(x)),
    Bad(GraphError, "a Value has no elements yet", lambda g, x: np.asarray(x)),
    Bad(GraphError, "a Value never changes", lambda g, x: x.__setitem__(0, 1)),
    Bad(GraphError, "expected a Value, a number or an array, found a str", lambda g, x: x + "a"),
    Bad(
        GraphError,
        "expected a Value, a number or an array, found a NoneType",
        lambda g, x: x * None,
    ),
    Bad(
        GraphError,
        "expected a Value, a number or an array, found an object",
        lambda g, x: object() / x,
    ),
    Bad(GraphError, "expected a Value, a number or an array, found a dict", lambda g, x: x @ {}),
    Bad(DTypeError, "1.5 does not fit i32", lambda g, x: x.astype("i32") + 1.5),
    Bad(DTypeError, "does not fit u8", lambda g, x: x.astype("u8") + 256),
    Bad(DTypeError, "does not fit u8", lambda g, x: x.astype("u8") - (-1)),
    Bad(DTypeError, "no common integer type", lambda g, x: x.astype("u64") + x.astype("i8")),
    Bad(DTypeError, "unknown dtype 'f23'", lambda g, x: x.astype("f23")),
    Bad(DTypeError, "unknown dtype", lambda g, x: x + np.array(["a"])),
    Bad(DTypeError, "unknown dtype", lambda g, x: x + np.array(["one"])),
    Bad(DTypeError, "no array", lambda g, x: x * [[1], [2, 3]]),
    Bad(ShapeError, "do not broadcast: 3 against 4", lambda g, x: x + np.ones(4, np.float32)),
    Bad(ShapeError, r"inner dims 3 and 2", lambda g, x: x @ x),
    Bad(ShapeError, "matmul takes no scalars.*; multiply by", lambda g, x: x @ 3.0),
    Bad(
        ShapeError,
        "2 indices for a tensor of rank 1|3 indices for a tensor of rank 2",
        lambda g, x: x[0, 0, 0],
    ),
    Bad(ShapeError, "index 2 .* size 2|2 is out of range", lambda g, x: x[2]),
    Bad(ShapeError, "index -3 .* size 2|-3 is out of range", lambda g, x: x[-3]),
    Bad(ShapeError, "axis 0: the step of a slice must not be 0", lambda g, x: x[::0]),
    Bad(GraphError, "one Ellipsis", lambda g, x: x[..., ...]),
    Bad(GraphError, "a bool is no index", lambda g, x: x[True]),
    Bad(GraphError, "an index is an integer.*found 1.5", lambda g, x: x[1.5]),
    Bad(GraphError, "an index is an integer.*found 'a'", lambda g, x: x["a"]),
    Bad(
        GraphError,
        "the bounds of a slice are integers .*; for .* use gather",
        lambda g, x: x[0:"a"],
    ),
    Bad(GraphError, "where|mask", lambda g, x: x[x.gt(0)]),
    Bad(DTypeError, "gather takes integer indices, found f32; cast", lambda g, x: x[x]),
    Bad(DTypeError, "unknown dtype|integer", lambda g, x: x[["a"]]),
    Bad(ShapeError, "broadcast", lambda g, x: x[[0, 1], [0, 1, 2]]),
    Bad(ShapeError, "arange: a literal of 1000000000000 elements", lambda g, x: g.arange(10**12)),
    Bad(ShapeError, "arange: a literal of nan elements", lambda g, x: g.arange(float("nan"))),
    Bad(ShapeError, "linspace: a literal of", lambda g, x: g.linspace(0, 1, 10**12)),
    Bad(ShapeError, "frequencies: a literal of", lambda g, x: g.rfftfreq(10**18)),
    Bad(ShapeError, "bytes", lambda g, x: g.position(g.input("at", [4], "i64"), [1 << 63])),
    Bad(
        ShapeError,
        "a stride is 1 or more, found 0",
        lambda g, x: g.avg_pool1d(x.reshape([1, 1, -1]), 2, stride=0),
    ),
]


ROWS = LEAVES + OUTPUTS + VALUES


@pytest.fixture
def leaf() -> tuple[rlx.Graph, rlx.Value]:
    g = rlx.Graph("bad")
    return g, g.input("x", [2, 3])


@pytest.mark.parametrize("bad", ROWS, ids=ids(ROWS))
def test_a_bad_call_that_builds(bad: Bad, leaf: Any) -> None:
    check(bad, *leaf)
