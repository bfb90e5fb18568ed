"""Random ONNX models of nested control flow and functions, whose names meet again in bodies.

Names come from a few letters, so bodies reuse those of other bodies, of values after them, and of
the results of their own nodes; inputs of bodies hide values around them. The generator evaluates a
model by its own lexical scopes. About one in eight defines a visible name again, which is invalid.
"""

from __future__ import annotations

import random
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    checker,
    helper,
    numpy_helper,
)

import rlx
from rlx.errors import ModelError, RlxError

__all__ = ["RandomModel", "random_model", "wrong"]

Array = np.ndarray[Any, Any]
NAMES = tuple("abcdefghjkm")
DEEPEST = 3
UNARY = {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Floor": np.floor}
BINARY = {"Add": np.add, "Sub": np.subtract, "Max": np.maximum, "Min": np.minimum}
FLAGS = {"p": True, "q": False}
"""Conditions, which are inputs of the model beside its data."""
ROWS, SIZE = 3, 2
LITERALS = {"trip": np.asarray(2), "first": np.asarray([0])}
OTHER = (*FLAGS, *LITERALS, "n", "rows", "i", "go")
"""Names that are no data of two floats."""


@dataclass
class Body:
    """A graph: leaves, nodes, results; and what it means as ``run`` says."""

    inputs: list[str]
    literals: dict[str, Array] = field(default_factory=dict[str, Array])
    nodes: list[Step] = field(default_factory=list["Step"])
    outputs: list[str] = field(default_factory=list[str])

    def run(self, given: Sequence[Array], around: Mapping[str, Array]) -> list[Array]:
        """Its results; a name is looked up here first, then in what is around."""
        env = ChainMap(
            {**self.literals, **dict(zip(self.inputs, given, strict=True))}, dict(around)
        )
        for step in self.nodes:
            env.update(zip(step.outputs, step.run(env), strict=True))
        return [env[n] for n in self.outputs]


@dataclass
class Step:
    """A node with its bodies."""

    op: str
    inputs: list[str]
    outputs: list[str]
    bodies: list[Body] = field(default_factory=list[Body])

    def run(self, env: Mapping[str, Array]) -> list[Array]:
        """Its results in an environment."""
        given = [env[n] if n else np.asarray(True) for n in self.inputs]
        if self.op in UNARY:
            return [UNARY[self.op](*given)]
        if self.op in BINARY:
            return [BINARY[self.op](*given)]
        if self.op == "own":
            return self.bodies[0].run(given, {})
        if self.op == "If":
            return self.bodies[0 if given[0] else 1].run([], env)
        return self._scan(given, env) if self.op == "Scan" else self._loop(given, env)

    def _loop(self, given: list[Array], env: Mapping[str, Array]) -> list[Array]:
        trip, go, *carried = given
        stack: list[Array] = []
        for i in range(int(trip)):
            if not go:
                break
            go, *results = self.bodies[0].run([np.asarray(i), go, *carried], env)
            carried = results[:1]
            stack += results[1:]
        return [*carried, *([np.stack(stack).max(0)] if stack else [])]

    def _scan(self, given: list[Array], env: Mapping[str, Array]) -> list[Array]:
        state, xs = given
        for x in xs:
            (state,) = self.bodies[0].run([state, x], env)
        return [state]


@dataclass(frozen=True)
class RandomModel:
    """A model, what it is given, and what it gives; ``again`` is the name that it defines twice,
    empty if it defines none."""

    model: ModelProto
    feeds: dict[str, Array]
    outputs: list[Array]
    again: str


class _Maker:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(f"names {seed}")
        self.breaks = self.r.random() < 0.125
        self.again = ""
        self.functions: list[Body] = []

    def fresh(self, visible: Sequence[str]) -> str:
        """A name that is not visible yet; in a model that shall be invalid now and then one is."""
        taken = [n for n in visible if n in NAMES]
        if self.breaks and taken and self.r.random() < 0.2:
            self.again = self.again or self.r.choice(taken)
            if self.again in taken:
                return self.again
        left = [n for n in NAMES if n not in visible]
        return self.r.choice(left) if left else f"v{len(visible)}"

    def steps(self, body: Body, around: list[str], depth: int, count: int) -> None:
        """Nodes of a body; ``around`` are the data of shape [2] that it sees outside."""
        own = [*body.inputs, *body.literals]
        data = [n for n in (*around, *own) if n not in OTHER]
        for _ in range(count):
            step = self.step(data, depth)
            step.outputs = []
            for _ in range(1 + (step.inputs[0] == "trip")):
                step.outputs.append(self.fresh([*data, *step.outputs]))
            body.nodes.append(step)
            data += step.outputs
        made = [n for s in body.nodes for n in s.outputs]
        body.outputs.append(self.r.choice(made))

    def step(self, data: list[str], depth: int) -> Step:
        """A node on visible data, without the names of its results."""
        kinds = ["one", "two", "two"]
        kinds += ["If", "If", "Loop", "While", "Scan", "own"] if depth < DEEPEST else []
        kind, pick = self.r.choice(kinds), lambda: self.r.choice(data)
        if kind == "one":
            return Step(self.r.choice(sorted(UNARY)), [pick()], [])
        if kind == "two":
            return Step(self.r.choice(sorted(BINARY)), [pick(), pick()], [])
        if kind == "own":
            return self.call(data)
        if kind == "If":
            bodies = [self.body([], data, depth) for _ in range(2)]
            return Step("If", [self.r.choice(sorted(FLAGS))], [], bodies)
        names = self.r.sample(NAMES, 2)  # of inputs: they hide what is around
        if kind == "Scan":
            return Step("Scan", [pick(), "rows"], [], [self.body(names, data, depth)])
        body = self.body(["i", "go", names[0]], data, depth)
        body.outputs = ["go", body.outputs[0]]
        if kind == "While":
            return Step("Loop", ["n", "p", pick()], [], [body])
        body.outputs.append(self.r.choice([s.outputs[0] for s in body.nodes]))
        return Step("Loop", ["trip", "", pick()], [], [body])

    def body(self, inputs: list[str], around: list[str], depth: int) -> Body:
        """A body that sees what is around it."""
        body = Body(inputs)
        if self.r.random() < 0.3:
            literal = np.float32([self.r.randrange(-9, 9), self.r.randrange(-9, 9)])
            free = [n for n in NAMES if n not in around and n not in inputs]
            body.literals = {self.r.choice(free): literal} if free else {}
        self.steps(body, around, depth + 1, self.r.randrange(1, 4))
        return body

    def call(self, data: list[str]) -> Step:
        """A call of a function, whose names are its own."""
        body = Body(self.r.sample(NAMES, 2))
        self.steps(body, [], DEEPEST, self.r.randrange(1, 4))
        self.functions.append(body)
        return Step("own", [self.r.choice(data), self.r.choice(data)], [], [body])


def random_model(seed: int) -> RandomModel:
    """The model of a seed."""
    maker = _Maker(seed)
    main = Body([*NAMES[:2], *FLAGS, "n", "rows"], dict(LITERALS))
    maker.steps(main, [], 0, 6)
    main.outputs = sorted({main.outputs[0], main.nodes[-1].outputs[0], main.nodes[0].outputs[0]})
    r = np.random.default_rng(seed)
    feeds: dict[str, Array] = {n: r.integers(-9, 9, SIZE).astype(np.float32) for n in NAMES[:2]}
    feeds |= {n: np.asarray(v) for n, v in FLAGS.items()}
    feeds["n"] = np.asarray(int(r.integers(1, 4)))
    feeds["rows"] = r.integers(-9, 9, (ROWS, SIZE)).astype(np.float32)
    outputs = main.run([feeds[n] for n in main.inputs], {})
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [_function(f, i, opsets[:1]) for i, f in enumerate(maker.functions)]
    graph = _graph(main, "g", maker.functions)
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    return RandomModel(model, feeds, outputs, maker.again)


# -- as protos ---------------------------------------------------------------------------------


def _info(name: str) -> Any:
    kind, shape = TensorProto.FLOAT, [SIZE]
    if name in ("p", "q", "go"):
        kind, shape = TensorProto.BOOL, []
    if name in ("n", "i"):
        kind, shape = TensorProto.INT64, []
    return helper.make_tensor_value_info(name, kind, [ROWS, SIZE] if name == "rows" else shape)


def _graph(body: Body, name: str, functions: list[Body]) -> GraphProto:
    literals = [numpy_helper.from_array(a, n) for n, a in body.literals.items()]
    nodes = [n for s in body.nodes for n in _nodes(s, functions)]
    infos = [[_info(n) for n in names] for names in (body.inputs, body.outputs)]
    return helper.make_graph(nodes, name, *infos, initializer=literals)


def _nodes(step: Step, functions: list[Body]) -> list[NodeProto]:
    if step.op == "own":
        at = next(i for i, f in enumerate(functions) if f is step.bodies[0])
        return [helper.make_node(f"F{at}", step.inputs, step.outputs, domain="own")]
    names = {"If": ["then_branch", "else_branch"], "Loop": ["body"], "Scan": ["body"]}
    bodies = {
        name: _graph(b, name, functions)
        for name, b in zip(names.get(step.op, []), step.bodies, strict=True)
    }
    more = {"num_scan_inputs": 1} if step.op == "Scan" else {}
    node = helper.make_node(step.op, step.inputs, step.outputs, **bodies, **more)
    if step.inputs[0] != "trip":
        return [node]
    stack = f"stack of {step.outputs[1]}"  # no other node has such a name
    node.output[1] = stack
    largest = helper.make_node("ReduceMax", [stack, "first"], [step.outputs[1]], keepdims=0)
    return [node, largest]


def _function(body: Body, number: int, opsets: list[Any]) -> FunctionProto:
    nodes = [n for s in body.nodes for n in _nodes(s, [])]
    return helper.make_function("own", f"F{number}", body.inputs, body.outputs, nodes, opsets)


# -- judged ------------------------------------------------------------------------------------


def wrong(seed: int) -> str:
    """What is wrong with what RLX makes of a random model; empty if nothing is. A model is valid
    where ``onnx.checker`` takes it. ONNX Runtime, if it is installed, judges the results too: it
    refuses more names than ONNX does."""
    case = random_model(seed)
    try:
        checker.check_model(case.model, full_check=True)
    except checker.ValidationError:
        assert case.again, f"the generator made an invalid model of seed {seed}"
    else:
        case = replace(case, again="")
    try:
        found = rlx.interpret(rlx.from_onnx(case.model), case.feeds)
    except RlxError as e:
        return "" if case.again and isinstance(e, ModelError) else f"refused: {e}"
    if case.again:
        return f"taken, although {case.again!r} is defined twice"
    for what, outputs in (("", case.outputs), (" by ONNX Runtime", _peer(case))):
        if outputs and not all(map(np.array_equal, found, outputs)):
            return f"found {found}, expected {outputs}{what}"
    return ""


def _peer(case: RandomModel) -> list[Array]:
    """The outputs by ONNX Runtime; none where it is not there, or refuses the model."""
    if find_spec("onnxruntime") is None:
        return []
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(case.model.SerializeToString())
    except Exception as e:
        assert "single static assignment" in str(e) or "Duplicate definition" in str(e), str(e)
        return []
    return list(session.run(None, case.feeds))
