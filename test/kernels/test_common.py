"""Every op through the common loops against its reference, and the loop builder's promises."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlx.codegen.builder import Kernel
from rlx.codegen.probe import Probe
from rlx.errors import GraphError, UnsupportedError
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op, op_class, placeholders, type_of
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.emit import CommonConfig, LoopBuilder
from rlx.ops.nn.state_rows import StateRows
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import f32, i32
from support.jit import host, load
from support.runkernel import run_launch
from support.samples import Case, cases
from support.sweeps import covering
from support.tolerances import assert_close

Array = np.ndarray[Any, Any]


def common_cases() -> dict[str, list[Case]]:
    """By op: its first sample with every element type, and the others with f32 or the first."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if not (hasattr(case.op, "loops") or hasattr(case.op, "scalar")):
            continue
        plain = f32 if f32 in case.op.dtypes else next(iter(case.op.dtypes), None)
        if case.number == 0 or case.dtype in (None, plain):
            found[case.op.name].append(case)
    return found


CASES = common_cases()


@pytest.mark.parametrize("name", CASES)
def test_op_matches_its_reference(name: str) -> None:
    """All cases of an op are one object, which is quicker than one each."""
    nodes = [(case, case.node()) for case in CASES[name]]
    target = kernel_target(host())
    kernels = [
        common.emit(f"k{n}", CommonConfig.of(node), target) for n, (_, node) in enumerate(nodes)
    ]
    # LLVM's optimiser takes as long again; `test_native` has this way, too, with it.
    obj = emit.compile_kernels(kernels, host(), opt=0)
    for n, (case, node) in enumerate(nodes):
        config = CommonConfig.of(node)
        launch = common.launch(config, site=7)
        arrays = case.arrays()
        outs = [np.zeros(v.type.static_shape, v.dtype.numpy) for v in node.results]
        error = np.zeros(2, np.int64)
        extra = [error] if common.faults(config) else []
        given = [a for a in arrays if a is not None]
        if isinstance(node, StateRows):  # whose kernel changes what lies there
            outs[-1][...] = given[-3]
        rooms = [np.empty(t.static_shape, t.dtype.numpy) for t in common.workspaces(config)]
        arguments = [*given, *outs, *rooms, *extra]
        load(obj, f"k{n}")(0, launch.range, arguments, launch.sizes, launch.scratch)
        assert not error.any(), str(case)
        for found, expected in zip(outs, evaluate(node, arrays), strict=True):
            try:
                assert_close(found, expected)
            except AssertionError as e:
                raise AssertionError(f"{case}: {e}") from None


def config_of(name: str, *types: str | None, **attrs: Any) -> CommonConfig:
    given = [None if t is None else type_of(t) for t in types]
    return CommonConfig.of(op_class(name)(*placeholders(given), **attrs))


def test_pieces_of_the_range_give_the_same_bits() -> None:
    config = config_of("mir.reduce_sum", "7x33x5xf32", axes=(1,))
    x = np.random.default_rng(0).standard_normal((7, 33, 5)).astype(np.float32)
    whole, cut = np.zeros((7, 5), np.float32), np.zeros((7, 5), np.float32)
    launch = common.launch(config)
    assert launch.range == 35
    run_launch(common, config, launch, [x, whole])
    run_launch(common, config, launch, [x, cut], pieces=6)
    assert whole.tobytes() == cut.tobytes()


def test_the_range_is_the_domain() -> None:
    assert common.launch(config_of("mir.exp", "3x4xf32")).range == 12
    assert common.launch(config_of("mir.exp", "f32")).range == 1
    assert common.launch(config_of("mir.exp", "3x0xf32")).range == 0


def test_equal_ops_share_a_config() -> None:
    assert config_of("mir.exp", "3xf32") == config_of("mir.exp", "3xf32")
    assert hash(config_of("mir.exp", "3xf32")) == hash(config_of("mir.exp", "3xf32"))
    assert config_of("mir.exp", "3xf32") != config_of("mir.exp", "4xf32")


class Loops:
    """Stands for an op of one f32 operand, with the given loops."""

    def __init__(self, shape: str, loops: Callable[[LoopBuilder], None]) -> None:
        node = op_class("mir.exp")(*placeholders([type_of(f"{shape}xf32")]))
        self.name, self.operands, self.results = "test.loops", node.operands, node.results
        self.loops = loops

    def run(self, x: Array, out: Array, *rest: Array, sizes: Sequence[int] = ()) -> LoopBuilder:
        b = LoopBuilder(Kernel("loops", kernel_target(host())), self)  # type: ignore[arg-type]
        self.loops(b)
        obj = emit.compile_kernels([b.k.text()], host())
        load(obj, "loops")(0, math.prod(b.domain or ()), [x, out, *rest], sizes)
        return b


def test_indices_may_be_ints_and_integer_registers() -> None:
    def loops(b: LoopBuilder) -> None:
        def point(i: Any) -> None:
            b.store(0, [0, i], b.load(0, [1, b.convert(i, i32)]))
            b.store(0, [1, i], b.const(0.5, f32))

        b.parallel((3,), point)

    x, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    Loops("2x3", loops).run(x, out)
    np.testing.assert_array_equal(out, [[3, 4, 5], [0.5, 0.5, 0.5]])


def copy_with_faults(b: LoopBuilder) -> None:
    def point(i: Any) -> None:
        x = b.load(0, [i])
        b.fault(x < 0.0, "x is negative")
        b.fault(x > 100.0, "x is large")
        b.store(0, [i], x)

    b.parallel(b.op.results[0].type.static_shape, point)


def run_faulty(x: Array, error: Array) -> LoopBuilder:
    return Loops(str(len(x)), copy_with_faults).run(x, np.zeros_like(x), error, sizes=[42])


@pytest.mark.parametrize(
    ("values", "record"),
    [([1, 2], [0, 0]), ([1, -2, 300], [1, 42]), ([1, 300, -2], [2, 42])],
)
def test_the_first_fault_is_recorded(values: list[float], record: list[int]) -> None:
    error = np.zeros(2, np.int64)
    b = run_faulty(np.array(values, np.float32), error)
    assert error.tolist() == record
    assert b.messages == ["x is negative", "x is large"]


def test_an_earlier_fault_stays() -> None:
    error = np.array([9, 1], np.int64)
    run_faulty(np.array([-1], np.float32), error)
    assert error.tolist() == [9, 1]


def test_ops_with_faults_say_so() -> None:
    with_faults = [
        n for n, found in CASES.items() if common.faults(CommonConfig.of(found[0].node()))
    ]
    for name in with_faults:
        config = CommonConfig.of(CASES[name][0].node())
        text = common.emit("k", config, kernel_target(host()))
        assert text.sizes == ("site",)
        assert common.launch(config, site=3).sizes == (3,)
    assert "mir.exp" not in with_faults


def test_refusals() -> None:
    composite = next(c.op for c in cases() if c.op.composite())
    case = next(c for c in cases() if c.op is composite)
    with pytest.raises(UnsupportedError, match="expanded"):
        common.launch(CommonConfig.of(case.node()))
    with pytest.raises(UnsupportedError, match="array"):
        CommonConfig.of(op_class("mir.constant")(np.zeros(3)))


def builder() -> LoopBuilder:
    node: Op = op_class("mir.exp")(*placeholders([type_of("2x3xf32")]))
    return LoopBuilder(Kernel("k", Probe()), node)


def test_wrong_loops_are_told() -> None:
    b = builder()
    b.parallel((2, 3), lambda i, j: b.store(0, [i, j], b.load(0, [i, j])))
    with pytest.raises(GraphError, match="parallel twice"):
        b.parallel((2, 3), lambda i, j: None)
    with pytest.raises(GraphError, match="with 1 indices"):
        builder().load(0, [0])


def gpu_target() -> Any:
    target = kernel_target(host())
    return type(target)("gpu", 0, 0, target.math, frame="gpu")


def test_the_same_loops_make_a_gpu_kernel() -> None:
    text = common.emit("k", config_of("mir.reduce_sum", "7x33xf32", axes=(1,)), gpu_target())
    assert text.frame == "gpu" and "gpu.func @k" in text.text
    assert text.sizes == ("range",)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_compiles_for(cpu: str) -> None:
    """For other CPUs than this one an op of each file of ops."""
    features = preset(cpu)
    chosen = covering((found[0] for found in CASES.values()), lambda c: [c.op.__module__])
    kernels = [
        common.emit(f"k{n}", CommonConfig.of(case.node()), kernel_target(features))
        for n, case in enumerate(chosen)
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")
