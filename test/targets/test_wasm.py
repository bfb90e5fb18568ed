"""WebAssembly: every op in node, control flow and faults, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError, DeviceError, FaultError, ToolchainError
from rlx.ir.interpreter import interpret
from rlx.models.embed import encoder_graph
from rlx.runtime.artifact import Variant
from rlx.runtime.web import write_bundle
from rlx.targets.llvm import machine
from rlx.targets.wasm.features import PRESETS, best, preset
from rlx.targets.wasm.module import data_bytes, exporting
from rlx.tools.cli import main
from support import node
from support.browser import result_of
from support.conformance import SETS, WASM, conforms, need
from support.minilm import minilm_dir

rng = np.random.default_rng(0)


def _pages_graph() -> tuple[rlx.Graph, dict[str, Any], dict[str, Any]]:
    """Packed params, a branch, a loop by its test, a scan, and a fault."""
    g = rlx.Graph("page")
    x, w = g.input("x", [3, 5]), g.param("w", [5, 5])
    flag, at = g.input("flag", [], "bool"), g.input("at", [2], "i64")
    y = (x @ (w * 2.0)).softmax(axis=-1)
    either = rlx.cond(flag, lambda v: v.sin(), lambda v: v + 1.0, y)
    (grown,) = rlx.while_loop(lambda v: v.max() < 50.0, lambda v: (v * 2.0,), (x.abs() + 1.0,))
    last, stack = rlx.scan(lambda c, r: (c + r, c * r), x[0], x)
    g.set_outputs([either, grown, last, stack, g.gather(x, at, axis=0, mode="fault")])
    feeds = {
        "x": rng.standard_normal((3, 5)).astype(np.float32),
        "flag": np.bool_(True),
        "at": np.array([2, 0], np.int64),
    }
    return g, feeds, {"w": rng.standard_normal((5, 5)).astype(np.float32)}


def _need_node() -> None:
    if why := node.why_not():
        pytest.skip(why)


def test_every_op_agrees_with_the_interpreter() -> None:
    need(WASM)
    found = list(conforms(WASM, SETS["turning"](WASM), wholly=False))
    wrong = [str(f) for f in found if f.verdict != "agrees"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("queries", [1, 2, 3, 5, 6])
def test_attention_of_f64_on_few_queries(queries: int) -> None:
    """A vector has fewer lanes than a tile has rows."""
    _need_node()
    g = rlx.Graph("attention")
    q, k = g.input("q", [1, queries, 4], "f64"), g.input("k", [1, 7, 4], "f64")
    g.set_outputs(g.attention(q, k, k * 2.0, num_heads=1, kv_heads=1))
    feeds = {n: rng.standard_normal((1, c, 4)) for n, c in (("q", queries), ("k", 7))}
    (found,) = node.WasmProgram(g).run(feeds)
    np.testing.assert_allclose(found, interpret(g, feeds)[0], rtol=1e-11, atol=1e-12)


def test_control_flow_and_faults() -> None:
    _need_node()
    g, feeds, params = _pages_graph()
    program = node.WasmProgram(g, params)
    for flag in (True, False):
        given = {**feeds, "flag": np.bool_(flag)}
        for a, b in zip(program.run(given), interpret(g, {**given, **params}), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    with pytest.raises(FaultError, match=r"test_wasm\.py:\d+: .*out of range for axis 0"):
        program.run({**feeds, "at": np.array([0, 3], np.int64)})
    program.run(feeds)  # and it runs on


def test_where_there_is_no_webgpu_the_fallback_runs(tmp_path: Path) -> None:
    """Node has none; and the params are in the folder once."""
    _need_node()
    _, feeds, params = _pages_graph()
    h = rlx.Graph("two")
    x = h.input("x", [3, 5])
    h.set_outputs([(x @ h.param("w", [5, 5])).softmax(axis=-1)])
    made = [rlx.compile_artifact(h, t, params=params) for t in ("webgpu", "wasm")]
    names = write_bundle(made[0], tmp_path, made[1])
    assert {"kernels.wgsl", "kernels.wasm", "wasm.js"} < set(names)
    assert len((tmp_path / "weights.bin").read_bytes()) == 112  # 25 f32, in whole words of 16
    (found,) = node.run_folder(tmp_path, made[1], {"x": feeds["x"]})
    expected = interpret(h, {"x": feeds["x"], **params})[0]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("word", "value", "says"), [(9, 10**6, "the place of places"), (3, 9, "kernel 9")]
)
def test_damaged_steps_are_refused(tmp_path: Path, word: int, value: int, says: str) -> None:
    _need_node()
    g = rlx.Graph("small")
    g.set_outputs([g.input("x", [3]).exp()])
    made = rlx.compile_artifact(g, "wasm")
    write_bundle(made, tmp_path)
    file = tmp_path / "program.json"
    written = json.loads(file.read_text("utf-8"))
    written["programs"]["wasm"]["variants"][0]["main"][word] = value
    file.write_text(json.dumps(written), "utf-8")
    with pytest.raises(FaultError, match=f"the program is damaged: Launch: {says}"):
        node.run_folder(tmp_path, made, {"x": np.ones(3, np.float32)})


def test_threads_give_the_same_bits() -> None:
    """Of one module after another; a fault ends a call, and the next one runs."""
    _need_node()
    g = rlx.Graph("threads")
    n = rlx.Dim("n", 2, 512)
    x, at = g.input("x", [n, 64]), g.input("at", [n], "i64")
    h = (x @ g.param("w", [64, 96])).gelu()
    last, _ = rlx.scan(lambda c, r: (c + r, c), h[0], h)
    g.set_outputs([h.softmax(), h.sum(axes=0), h.gather(at, axis=0, mode="fault"), last])
    params = {"w": rng.standard_normal((64, 96)).astype(np.float32)}
    program = node.WasmProgram(g, params)
    assert len(program.artifact.variants) > 1
    for size in (512, 3, 200, 512):
        feeds = {
            "x": rng.standard_normal((size, 64)).astype(np.float32),
            "at": rng.integers(0, size, size),
        }
        one, many = (program.run(feeds, {"n": size}, threads) for threads in (1, 3))
        for a, b in zip(one, many, strict=True):
            assert a.tobytes() == b.tobytes()
        for a, b in zip(many, interpret(g, {**feeds, **params}), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        feeds["at"][1] = size
        with pytest.raises(FaultError, match="index out of range"):
            program.run(feeds, {"n": size}, 3)


def test_a_browser_runs_it(tmp_path: Path) -> None:
    """On as many threads as there are, in a page that is isolated."""
    g = rlx.Graph("page")
    x = g.input("x", [256, 3])
    g.set_outputs({"y": x.exp() @ g.param("w", [3, 4])})
    w, given = rng.standard_normal((3, 4)).astype(np.float32), np.ones((256, 3), np.float32)
    write_bundle(rlx.compile_artifact(g, "wasm", params={"w": w}), tmp_path / "site")
    found = result_of(
        tmp_path / "site",
        """
        const { load } = await import(`${here}/rlx.js`);
        const model = await load();
        const { y } = await model.run({ x: new Float32Array(768).fill(1) });
        const own = model.threads?.count ?? 1;
        model.close();
        return [model.target, own, navigator.hardwareConcurrency, ...y];
        """,
    )
    target, own, there, *y = found
    assert (target, own) == ("wasm", there)
    np.testing.assert_allclose(np.reshape(y, (256, 4)), np.exp(given) @ w, rtol=1e-5)


def test_a_sentence_encoder_agrees_with_the_cpu(tmp_path: Path) -> None:
    _need_node()
    model = minilm_dir()
    if model is None:
        pytest.skip("MiniLM is not installed: make .venv/model.stamp")
    graph = encoder_graph(model)
    graph = graph.bind({name: 1 + 11 * (name != "batch") for name in graph.symbols})
    feeds = {
        str(v.name): rng.integers(0, 2, v.type.static_shape).astype(v.dtype.numpy)
        for v in graph.inputs
    }
    program = node.WasmProgram(graph, graph.param_values)
    expected = rlx.Session("cpu").compile(graph).run(feeds)
    for a, b in zip(program.run(feeds), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_command_puts_it_beside_webgpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = rlx.Graph("small")
    g.set_outputs([g.input("x", [4]) * 3.0])
    rlx.save(g, tmp_path / "small.rlx.mlir")
    given = ["export-web", str(tmp_path / "small.rlx.mlir"), "-o"]
    assert main([*given, str(tmp_path / "both"), "--fallback", "wasm"]) == 0
    assert main([*given, str(tmp_path / "one"), "--device", "wasm"]) == 0
    programs = [
        list(json.loads((tmp_path / f / "program.json").read_text("utf-8"))["programs"])
        for f in ("both", "one")
    ]
    assert programs == [["webgpu", "wasm"], ["wasm"]]
    assert main([*given, str(tmp_path / "no"), "--device", "vulkan"]) == 1
    assert "pages run on webgpu or wasm, found 'vulkan'" in capsys.readouterr().err


def test_the_command_keeps_dims_of_ranges(tmp_path: Path) -> None:
    g = rlx.Graph("open")
    g.set_outputs([g.input("x", ["n", "m"]) * 3.0])
    rlx.save(g, tmp_path / "open.rlx.mlir")
    wanted = ["--dim", "n=2..9", "--dim", "m=4", "--fallback", "wasm"]
    assert main(["export-web", str(tmp_path / "open.rlx.mlir"), "-o", str(tmp_path), *wanted]) == 0
    written = json.loads((tmp_path / "program.json").read_text("utf-8"))["programs"]
    for program in written.values():
        assert program["symbols"] == [{"name": "n", "least": 2, "most": 9}]
        assert program["inputs"][0]["shape"] == ["n", 4]


def test_a_fallback_is_of_the_same_graph(tmp_path: Path) -> None:
    g, h = rlx.Graph("one"), rlx.Graph("other")
    g.set_outputs([g.input("x", [4]) * 3.0])
    h.set_outputs([h.input("x", [5]) * 3.0])
    made = [rlx.compile_artifact(a, t) for a, t in ((g, "webgpu"), (h, "wasm"), (g, "wasm"))]
    with pytest.raises(ArtifactError, match="a fallback is an artifact for 'wasm' of the graph"):
        write_bundle(made[0], tmp_path, made[1])
    with pytest.raises(ArtifactError, match="a fallback is an artifact for 'wasm' of the graph"):
        write_bundle(made[2], tmp_path, made[2])


def test_artifacts_are_kept_in_files(tmp_path: Path) -> None:
    g, _, params = _pages_graph()
    made = rlx.compile_artifact(g, "wasm", params=params)
    made.save(tmp_path / "m.rlx")
    again = rlx.Artifact.load(tmp_path / "m.rlx")
    for folder, artifact in (("a", made), ("b", again)):
        write_bundle(artifact, tmp_path / folder)
    for name in ("program.json", "kernels.wasm", "weights.bin"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_the_kernels_are() -> None:
    g = rlx.Graph("product")
    g.set_outputs([(g.input("x", [4, 8]) @ g.param("w", [8, 16])).gelu()])
    (variant,) = rlx.compile_artifact(g, "wasm").variants
    assert not isinstance(variant, Variant)
    code = variant.program.kernels[0].code
    assert code[:8] == b"\0asm\1\0\0\0" and data_bytes(code) >= 0
    assert all(k.code is code for k in variant.program.kernels)


def test_a_call_of_a_library_is_refused() -> None:
    """With a table, data and a function from outside, whose types the reader steps over."""
    text = """
@numbers = private constant [3 x i32] [i32 1, i32 2, i32 3]
declare float @cosf(float)
define void @good(i32 %n, ptr %f) {
  %at = getelementptr [3 x i32], ptr @numbers, i32 0, i32 %n
  %x = load i32, ptr %at
  call void %f(i32 %x)
  ret void
}
"""
    wanted = PRESETS["simd128"].machine
    made = exporting(machine.emit_object(text.replace("declare", ";"), wanted), ["good"])
    assert data_bytes(made) == 12
    bad = "declare float @outside(float)\ndefine float @f(float %x) {\n  %y = call float" \
          " @outside(float %x)\n  ret float %y\n}\n"  # fmt: skip
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(wanted.triple).create_target_machine(reloc="static")
    with pytest.raises(ToolchainError, match="calls of outside for WebAssembly"):
        exporting(target.emit_object(llvm.parse_assembly(bad)), ["f"])


def test_one_program_for_all_sizes() -> None:
    """Variants with modules and constants of their own, at sizes that come again, and a loop."""
    _need_node()
    g = rlx.Graph("many")
    x, w = g.input("x", [rlx.Dim("n", 2, 64), rlx.Dim("m", 5, 200), 4]), g.param("w", [4, 9])
    y = (x @ (w * 2.0)).softmax(axis=-1)
    last, _ = rlx.scan(lambda c, r: (c + r, c), x[0] * 0.0, x)
    g.set_outputs([y, g.concat([x, x.exp()], axis=1), last])
    params = {"w": rng.standard_normal((4, 9)).astype(np.float32)}
    program = node.WasmProgram(g, params)
    assert len(program.artifact.variants) > 2
    for n, m in [(3, 5), (64, 200), (2, 5), (2, 130), (7, 6), (3, 5)]:
        feeds = {"x": rng.standard_normal((n, m, 4)).astype(np.float32)}
        found = program.run(feeds, {"n": n, "m": m})
        for a, b in zip(found, interpret(g, {**feeds, **params}), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    for dims, said in (
        ({"n": 65, "m": 5}, "the dim n is a size from 2 to 64, found 65"),
        ({"n": 2, "m": 5, "k": 1}, "no dim is called k"),
        (
            {"n": 2, "m": 6},
            r"input x is a Float32Array of 48 \(f32, \[2,6,4\]\), found Float32Array",
        ),
    ):
        with pytest.raises(FaultError, match=said):
            program.run({"x": np.zeros((2, 5, 4), np.float32)}, dims)


def test_sizes_that_no_variant_takes(tmp_path: Path) -> None:
    """A variant of the sizes at hand alone; and numbers beyond those of kernels."""
    _need_node()
    g = rlx.Graph("wide")
    g.set_outputs([g.input("x", ["n", 4]) * 2.0])
    made = rlx.compile_artifact(g, "wasm")
    one = replace(made, variants=made.variants[:1])
    feeds = {"x": np.zeros((1, 4), np.float32)}
    for artifact, n, said in (
        (one, 1, "no variant is for n=1, but for n >= 2"),
        (made, 1 << 40, "the sizes are too large"),
        (made, 1 << 52, "the sizes are too large"),
    ):
        folder = tmp_path / str(n)
        write_bundle(artifact, folder)
        with pytest.raises(FaultError, match=said):
            node.run_folder(folder, made, feeds, {"n": n})


def test_names() -> None:
    assert preset("simd128") == PRESETS["simd128"] == best(PRESETS["simd128"].has | {"gc"})
    with pytest.raises(DeviceError, match="unknown WebAssembly profile 'simd'"):
        preset("simd")
    with pytest.raises(DeviceError, match="unknown extra 'x' of simd128"):
        preset("simd128+x")
    with pytest.raises(DeviceError, match="this WebAssembly engine lacks simd128"):
        best(PRESETS["simd128"].has - {"simd128"})
