"""Ops from outside: kernels in C, in MLIR and in Python, rules, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import (
    ArtifactError,
    FaultError,
    GraphError,
    IRError,
    RlxError,
    ShapeError,
    ToolchainError,
    UnsupportedError,
)
from rlx.ir.interpreter import interpret
from rlx.types import DTYPES, DType, TensorType
from support import ad

Array = np.ndarray[Any, Any]

C_SUM = """
static void kernel(int64_t begin, int64_t end, const float *x, const float *y, float *out,
                   int64_t n, const rlx_faults *faults) {
  for (int64_t i = begin; i < end; ++i) {
    if (x[i] > 1e30f) rlx_fault(faults, 1);
    if (i >= n) rlx_fault(faults, 2);
    out[i] = 2.0f * x[i] + y[i];
  }
}
"""

MLIR_SUM = """
func.func @kernel(%begin: index, %end: index, %x: memref<?xf32>, %y: memref<?xf32>,
                  %out: memref<?xf32>, %error: memref<?xi64>, %n: index, %site: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  %most = arith.constant 1.0e30 : f32
  %one = arith.constant 1 : i64
  scf.for %i = %begin to %end step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    %b = memref.load %y[%i] : memref<?xf32>
    %p = arith.mulf %two, %a : f32
    %s = arith.addf %p, %b : f32
    memref.store %s, %out[%i] : memref<?xf32>
    %large = arith.cmpf ogt, %a, %most : f32
    scf.if %large {
      %at = arith.index_cast %site : index to i64
      memref.store %at, %error[%c1] : memref<?xi64>
      memref.store %one, %error[%c0] : memref<?xi64>
    }
  }
  return
}
"""


def large(x: Array, y: Array) -> Array:
    if (x > 1e30).any():
        raise ValueError("too large")
    return 2 * x + y


def kernel_in(kind: Any, source: str) -> Callable[[Any], Any]:
    def kernel(n: Any) -> Any:
        size = n.x.type.size
        faults = ("x is too large", "beyond the end")
        return kind(source, range=size, grain=100, sizes=(size,), faults=faults)

    return kernel


def same(x: TensorType, *_: Any, **__: Any) -> TensorType:
    return x


SUMS = {
    "c": rlx.custom_op("sums.c", infer=same, kernel=kernel_in(rlx.CKernel, C_SUM))(large),
    "mlir": rlx.custom_op("sums.mlir", infer=same, kernel=kernel_in(rlx.MlirKernel, MLIR_SUM))(
        large
    ),
    "python": rlx.custom_op("sums.python", infer=same)(large),
}


def compiled(make: Callable[..., Any], *shapes: list[Any]) -> Any:
    g = rlx.Graph("custom")
    found = make(*(g.input(f"x{i}", s) for i, s in enumerate(shapes)))
    g.set_outputs(found if isinstance(found, tuple | list) else [found])
    return rlx.Session("cpu", threads=2).compile(g)


# -- kernels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("language", SUMS)
def test_a_kernel_computes_what_the_function_means(language: str) -> None:
    op = SUMS[language]
    f = compiled(lambda x, y: op(x.exp(), y.transpose([1, 0])).tanh(), [40, 30], [30, 40])
    rng = np.random.default_rng(1)
    feeds = {"x0": rng.standard_normal((40, 30), np.float32),
             "x1": rng.standard_normal((30, 40), np.float32)}  # fmt: skip
    want = np.tanh(2 * np.exp(feeds["x0"]) + feeds["x1"].T)
    np.testing.assert_allclose(f.run(feeds)[0], want, rtol=1e-5, atol=1e-6)
    assert f"custom: {language} x 1" in str(f.reports[0])


@pytest.mark.parametrize("language", SUMS)
def test_a_fault_is_told_at_the_users_line(language: str) -> None:
    f = compiled(SUMS[language], [8], [8])
    feeds = {"x0": np.full(8, 1e31, np.float32), "x1": np.zeros(8, np.float32)}
    with pytest.raises(FaultError, match="too large") as caught:
        f.run(feeds)
    assert caught.value.location is not None and caught.value.location[0] == __file__
    feeds["x0"][:] = 1
    np.testing.assert_array_equal(f.run(feeds)[0], np.full(8, 2, np.float32))


@pytest.mark.parametrize("language", SUMS)
def test_sizes_follow_from_the_dims(language: str) -> None:
    f = compiled(SUMS[language], ["n"], ["n"])
    for n in (0, 1, 7, 1000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f.run({"x0": x, "x1": x})[0], 3 * x)


@pytest.mark.parametrize("language", SUMS)
def test_what_depends_on_params_alone_runs_once(language: str) -> None:
    g = rlx.Graph("hoisted")
    w = g.param("w", [5])
    g.set_outputs([SUMS[language](w, w) + g.input("x", [5])])
    f = rlx.Session("cpu").compile(g)
    for k in (1.0, 2.0):
        f.set_param("w", np.full(5, k, np.float32))
        for _ in range(2):
            np.testing.assert_array_equal(f.run({"x": np.zeros(5, np.float32)})[0], 3 * k)


@pytest.mark.parametrize("language", SUMS)
def test_threads_call_it_at_once(language: str) -> None:
    f = compiled(SUMS[language], [500], [500])
    wrong: list[int] = []

    def work(k: int) -> None:
        x = np.full(500, k, np.float32)
        for _ in range(50):
            if (f.run({"x0": x, "x1": x})[0] != 3 * k).any():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_every_element_type_reaches_c(dt: DType) -> None:
    def kernel(n: Any) -> Any:
        kind = {"f32": "float", "f64": "double", "bool": "bool", "f16": "rlx_f16",
                "bf16": "rlx_bf16", "c64": "rlx_c64", "c128": "rlx_c128",
                "f8e4m3fn": "rlx_f8e4m3fn", "f8e5m2": "rlx_f8e5m2"}.get(dt.name)  # fmt: skip
        kind = kind or f"{'u' if dt.kind == 'uint' else ''}int{dt.bits}_t"
        text = (
            f"static void kernel(int64_t begin, int64_t end, const {kind} *x, {kind} *out) {{\n"
            "  for (int64_t i = begin; i < end; ++i) out[i] = x[end - 1 - i];\n}"
        )
        return rlx.CKernel(text)

    one = rlx.custom_op(f"reversed.{dt}", infer=same, kernel=kernel)(lambda x: x)
    g = rlx.Graph("kinds")
    # The kernel has one part, which is all of it: begin 0 and end 1 reverse a single element.
    g.set_outputs([one(g.input("x", [1], dt))])
    x = np.ones(1, dt.numpy)
    np.testing.assert_array_equal(rlx.Session("cpu").compile(g).run({"x": x})[0], x)


def test_an_operand_may_be_absent_and_results_several() -> None:
    @rlx.custom_op("mine.both", infer=lambda x, y: (x, x.with_dtype(rlx.i64)), results=2)
    def both(x: Array, y: Array | None = None) -> tuple[Array, Array]:
        return x * 2 + (0 if y is None else y), x.astype(np.int64)

    f = compiled(lambda x, y: [*both(x), *both(x, y)], [3], [3])
    x, y = np.array([1, 2, 3], np.float32), np.ones(3, np.float32)
    a, b, c, d = f.run({"x0": x, "x1": y})
    np.testing.assert_array_equal(a, x * 2)
    np.testing.assert_array_equal(c, x * 2 + 1)
    np.testing.assert_array_equal(b, [1, 2, 3])
    assert b.dtype == d.dtype == np.int64


def test_what_a_python_kernel_raises_is_the_cause() -> None:
    f = compiled(SUMS["python"], [2], [2])
    with pytest.raises(FaultError, match=r"its Python kernel failed: ValueError: too large") as e:
        f.run({"x0": np.full(2, 1e31, np.float32), "x1": np.zeros(2, np.float32)})
    assert isinstance(e.value.__cause__, ValueError)


def test_the_first_fault_is_told_and_not_what_followed_from_it() -> None:
    @rlx.custom_op("mine.second", infer=same)
    def second(x: Array) -> Array:
        raise ValueError("it was given what a fault left")

    f = compiled(lambda x, y: second(SUMS["python"](x, y)), [2], [2])
    with pytest.raises(FaultError, match=r"too large$") as e:
        f.run({"x0": np.full(2, 1e31, np.float32), "x1": np.zeros(2, np.float32)})
    assert "too large" in str(e.value.__cause__)


def test_an_interrupt_is_no_fault() -> None:
    @rlx.custom_op("mine.interrupted", infer=same)
    def interrupted(x: Array) -> Array:
        if x.any():
            raise KeyboardInterrupt
        return x

    f = compiled(interrupted, [2])
    with pytest.raises(KeyboardInterrupt):
        f.run({"x0": np.ones(2, np.float32)})


def test_a_python_kernel_cannot_write_its_operands() -> None:
    def kernel(n: Any) -> Any:
        return rlx.PythonKernel(lambda x, out: x.fill(0))

    writing = rlx.custom_op("mine.writing", infer=same, kernel=kernel)(lambda x: x)
    with pytest.raises(FaultError, match="read-only"):
        compiled(writing, [2]).run({"x0": np.ones(2, np.float32)})


# -- artifacts ---------------------------------------------------------------------------------

RUN = """
import sys, numpy as np, rlx
artifact = rlx.Artifact.load(sys.argv[1])
from rlx.runtime.executable import Executable
(y,) = Executable(artifact).run_slots(np.ones(4, np.float32), np.ones(4, np.float32))
assert (y == 3).all() and "sums.c" not in rlx.ir.op.registry, y
"""


@pytest.mark.parametrize("language", ["c", "mlir"])
def test_an_artifact_runs_without_the_op(language: str, tmp_path: Path) -> None:
    g = rlx.Graph("saved")
    g.set_outputs([SUMS[language](g.input("x", [4]), g.input("y", [4]))])
    rlx.compile_artifact(g).save(tmp_path / "saved.rlx")
    subprocess.run([sys.executable, "-c", RUN, str(tmp_path / "saved.rlx")], check=True)


def test_an_artifact_holds_no_python() -> None:
    g = rlx.Graph("python")
    g.set_outputs([SUMS["python"](g.input("x", [4]), g.input("y", [4]))])
    with pytest.raises(ArtifactError, match="cannot hold the Python kernels custom_0"):
        bytes(rlx.compile_artifact(g))


def test_a_graph_is_saved_as_text(tmp_path: Path) -> None:
    g = rlx.Graph("text")
    g.set_outputs([SUMS["c"](g.input("x", [4]), g.input("y", [4]))])
    rlx.save(g, tmp_path / "g.mlir")
    again = rlx.load(tmp_path / "g.mlir")
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(interpret(again, {"x": x, "y": x})[0], 3 * x)
    other = f"import rlx; rlx.load({str(tmp_path / 'g.mlir')!r})"
    command = [sys.executable, "-c", other]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "sums.c" in done.stderr and done.returncode == 1


# -- rules -------------------------------------------------------------------------------------


def cube_batch(n: Any, operands: Any, batched: Any) -> rlx.Value:
    return CUBE(*operands)


CUBE = rlx.custom_op(
    "mine.cube",
    infer=same,
    vjp=lambda n, g: (g * 3.0 * n.x * n.x,),
    jvp=lambda n, t: t * 3.0 * n.x * n.x,
    batch=cube_batch,
)(lambda x: x * x * x)


def test_rules_of_rules() -> None:
    g = rlx.Graph("rules")
    x = g.input("x", [3], "f64")
    (first,) = ad.grad(CUBE(x).sum(), [x])
    (second,) = ad.grad(first.sum(), [x])
    (tangent,) = ad.jvp([CUBE(x)], [x], [x])
    assert tangent is not None
    g.set_outputs([first, second, tangent])
    a = np.array([1.0, 2.0, -3.0])
    found = rlx.Session("cpu").compile(g).run({"x": a})
    for y, want in zip(found, (3 * a**2, 6 * a, 3 * a**3), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-14)


@pytest.mark.parametrize(("derive", "mode"), [(ad.vjp, "vjp"), (ad.jvp, "jvp")])
def test_a_derivative_without_its_rule_is_refused(derive: Any, mode: str) -> None:
    """It would be silently 0."""
    g = rlx.Graph("none")
    x = g.input("x", [3])
    with pytest.raises(UnsupportedError, match=f"test_custom.py.*sums.c has no {mode} rule"):
        derive([SUMS["c"](x, x)], [x], [x])


def test_a_rule_may_say_that_the_derivative_is_zero() -> None:
    @rlx.custom_op("mine.flat", infer=same, vjp=lambda n, g: (None,), jvp=lambda n, t: None)
    def flat(x: Any) -> Any:
        return np.round(x)

    g = rlx.Graph("flat")
    x = g.input("x", [3])
    assert ad.vjp([flat(x)], [x], [x]) == [None]
    assert ad.jvp([flat(x)], [x], [x]) == [None]


# -- what is refused ---------------------------------------------------------------------------


def declare(
    function: Callable[..., Any], name: str, infer: Any = same, **more: Any
) -> Callable[..., Any]:
    return rlx.custom_op(name, infer=infer, **more)(function)


def elsewhere(x: Array) -> None: ...
def of_operands(*x: Array) -> None: ...
def with_default(x: Array, y: float = 1.0) -> None: ...
def of_nothing(*, k: int) -> None: ...
def unknown_kind(x: Array, *, k: dict[str, int]) -> None: ...
def taken(x: Array, results: Array) -> None: ...


@pytest.mark.parametrize(
    ("function", "name", "match"),
    [
        (large, "no_dot", "an op cannot be called 'no_dot'"),
        (large, "Mine.op", "an op cannot be called 'Mine.op'"),
        (large, "mir.mine", "ops from outside need another prefix than 'mir'"),
        (large, "arith.mine", "ops from outside need another prefix than 'arith'"),
        (elsewhere, "sums.c", "op 'sums.c' is declared twice"),
        (of_operands, "bad.op", "an op takes operands by name, found \\*x"),
        (with_default, "bad.op", "the operand 'y' has the default 1.0, expected None"),
        (of_nothing, "bad.op", "an op takes at least one operand"),
        (unknown_kind, "bad.op", "the attribute 'k' is annotated 'dict\\[str, int\\]'"),
        (taken, "bad.op", "an argument cannot be called 'results'"),
    ],
)
def test_bad_declarations(function: Callable[..., Any], name: str, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        declare(function, name)


def used(name: str, kernel: Any, **more: Any) -> None:
    op = declare(lambda x, y: x, name, kernel=kernel, **more)
    compiled(op, [4], [4]).run({"x0": np.ones(4, np.float32), "x1": np.ones(4, np.float32)})


def c(text: str) -> Callable[[Any], Any]:
    return lambda n: rlx.CKernel(text)


def mlir(text: str) -> Callable[[Any], Any]:
    return lambda n: rlx.MlirKernel(text)


HEAD = "static void kernel(int64_t b, int64_t e, const float *x, const float *y, float *out)"

BAD_KERNELS: dict[str, tuple[Any, type[RlxError], str]] = {
    "none": (lambda n: None, GraphError, "its kernel\\(\\) gives a NoneType, expected a CKernel"),
    "no_text": (lambda n: rlx.CKernel(7), GraphError, "a kernel's source is text, found an int"),  # type: ignore[arg-type]
    "no_range": (lambda n: rlx.CKernel("", range=-1), GraphError, "found -1 and 1"),
    "no_call": (lambda n: rlx.PythonKernel(3), GraphError, "is a function, found 3"),  # type: ignore[arg-type]
    "no_c": (c("static void kernel("), ToolchainError, "kernel of bad.no_c:.*error: expected"),
    "few": (c("static void kernel(int64_t b, int64_t e) {}"), ToolchainError, "too many arg"),
    "calls": (
        c(f"float sinf(float);\n{HEAD} {{ out[0] = sinf(x[0]); }}"), ToolchainError,
        "uses sinf, and a kernel stands alone",
    ),
    "no_mlir": (mlir("func.func @kernel("), IRError, "cannot parse"),
    "two": (
        mlir("func.func @kernel() { return }\nfunc.func @b() { return }"), GraphError,
        "has the functions \\['kernel', 'b'\\], expected one",
    ),
    "signature": (
        mlir("func.func @kernel(%b: index) { return }"), GraphError,
        "takes \\(index\\), expected \\(index, index, memref<\\?xf32>",
    ),
    "dim": (
        mlir(
            "func.func @kernel(%b: index, %e: index, %x: memref<?xf32>, %y: memref<?xf32>,"
            " %o: memref<?xf32>) {\n %n = memref.dim %x, %b : memref<?xf32>\n return }"
        ),
        GraphError, "asks for a memref.dim",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_bad_kernels(name: str) -> None:
    kernel, error, match = BAD_KERNELS[name]
    with pytest.raises(error, match=match):
        used(f"bad.{name}", kernel)


def test_a_compiler_that_is_not_there() -> None:
    said = pytest.raises(ToolchainError, match=r"'no-such-compiler' does not start.*RLX_CC")
    with rlx.knobs.c_compiler.scoped("no-such-compiler"), said:
        used("bad.compiler", c(f"{HEAD} {{ }}"))


def test_c_is_for_this_machine_and_for_cpus() -> None:
    g = rlx.Graph("other")
    g.set_outputs([SUMS["c"](g.input("x", [4]), g.input("y", [4]))])
    with pytest.raises(ToolchainError, match="the C compiler here makes code for"):
        rlx.compile_artifact(g, ["cpu:aarch64", "cpu:x86-64-v3"])


def test_a_file_that_a_kernel_in_c_includes_may_change(tmp_path: Path) -> None:
    header = tmp_path / "scale.h"
    text = (
        f'#include "{header}"\n{HEAD} {{ for (int64_t i = 0; i < 4; ++i) out[i] = SCALE * x[i]; }}'
    )
    op = declare(lambda x, y: x, "scaled.by_a_header", kernel=c(text))
    ones = {name: np.ones(4, np.float32) for name in ("x0", "x1")}
    for scale in (2, 3):
        header.write_text(f"#define SCALE {scale}\n")
        assert compiled(op, [4], [4]).run(ones)[0].tolist() == [scale] * 4
    header.unlink()
    with pytest.raises(ToolchainError, match=r"refuses kernel .*\n.*scale.h"):
        compiled(op, [4], [4])


def test_a_kernel_that_changes() -> None:
    texts = iter([f"{HEAD} {{ }}", f"{HEAD} {{ out[0] = 1; }}"] * 9)
    with pytest.raises(GraphError, match="its kernel changed"):
        used("bad.changes", lambda n: rlx.CKernel(next(texts)))


@pytest.mark.parametrize(
    ("infer", "error", "match"),
    [
        (lambda x, y: None, GraphError, "its infer gives None, expected 1 TensorType"),
        (lambda x, y: (x, y), GraphError, "expected 1 TensorType"),
        (lambda x, y: x.with_shape((9,)), ShapeError, "its function gave float32\\[4\\], and its"),
    ],
)
def test_an_infer_that_is_wrong(infer: Any, error: type[RlxError], match: str) -> None:
    name = re.sub(r"\W", "_", match.lower())[:12]
    op = declare(lambda x, y: x, f"bad.infer_{name}", infer=infer)
    with pytest.raises(error, match=match):
        g = rlx.Graph("infer")
        g.set_outputs([op(g.input("x", [4]), g.input("y", [4]))])
        interpret(g, {"x": np.ones(4, np.float32), "y": np.ones(4, np.float32)})


def test_a_target_without_the_kernel() -> None:
    from rlx.lowering.compilation import Compilation
    from rlx.lowering.pipeline import PIPELINE, run_passes
    from rlx.targets import find_target

    g = rlx.Graph("gpu")
    g.set_outputs([SUMS["c"](g.input("x", [4]), g.input("y", [4]))])
    with pytest.raises(UnsupportedError, match="c has no kernel on cuda"):
        run_passes(g.to_mlir(), PIPELINE, Compilation(find_target("cuda")))


def test_what_no_emitter_is_asked_for() -> None:
    from rlx.codegen.builder import KernelText
    from rlx.ir.op import placeholders, type_of
    from rlx.kernels.fallback.foreign import CustomConfig
    from rlx.kernels.registry import emit_kernel
    from rlx.targets import find_target

    pair = placeholders([type_of("4xf32"), type_of("4xf32")])
    configs = {name: CustomConfig.of(SUMS[name].op(*pair)) for name in SUMS}
    cpu, gpu = find_target("cpu"), find_target("cuda")
    with pytest.raises(ToolchainError, match="is a Python function, which has no text"):
        emit_kernel("custom", "k", configs["python"], cpu.kernels)
    with pytest.raises(ToolchainError, match="its kernel is for CPUs"):
        emit_kernel("custom", "k", configs["c"], gpu.kernels)
    text = emit_kernel("custom", "k", configs["c"], cpu.kernels)
    assert isinstance(text, KernelText)
    with pytest.raises(ToolchainError, match="is in C, and has no stage 'llvm'"):
        cpu.emitter.emit([text], "llvm")
    assert b"k" in cpu.emitter.emit([text], "asm")
