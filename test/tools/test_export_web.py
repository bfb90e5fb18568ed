"""Bundles for browsers: what is written, what is refused, and what a browser makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ArtifactError
from rlx.ir.interpreter import interpret
from rlx.runtime import web
from rlx.runtime.web import write_bundle
from rlx.tools.cli import main
from support.browser import result_of

rng = np.random.default_rng(0)

STATIC = Path(web.__file__).parent


def graph() -> rlx.Graph:
    """Params that are packed, small elements, a branch, a loop by its test, a scan, a fault."""
    g = rlx.Graph("page")
    x, w, b = g.input("x", [3, 5]), g.param("w", [5, 5]), g.input("b", [7], "i8")
    flag, at = g.input("flag", [], "bool"), g.input("at", [2], "i32")
    y = (x @ (w * 2.0)).softmax(axis=-1)
    either = rlx.cond(flag, lambda v: v.sin(), lambda v: v + 1.0, y)
    (grown,) = rlx.while_loop(lambda v: v.max() < 50.0, lambda v: (v * 2.0,), (x.abs() + 1.0,))
    last, stack = rlx.scan(lambda c, r: (c + r, c * r), x[0], x)
    g.set_outputs([either, grown, last, stack, b + 1, g.gather(x, at, axis=0, mode="fault")])
    return g


def feeds() -> dict[str, Any]:
    return {
        "x": rng.standard_normal((3, 5)).astype(np.float32),
        "b": np.arange(-3, 4, dtype=np.int8),
        "flag": np.bool_(True),
        "at": np.array([2, 0], np.int32),
    }


def weights() -> dict[str, Any]:
    return {"w": rng.standard_normal((5, 5)).astype(np.float32)}


def test_the_command_writes_a_folder_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = rlx.Graph("small")
    g.set_outputs([g.input("x", [4]) * g.param("w", [4])])
    rlx.save(g, tmp_path / "small.rlx.mlir")
    np.save(tmp_path / "w.npy", np.arange(4, dtype=np.float32))
    folder = tmp_path / "site"
    arguments = [str(tmp_path / "small.rlx.mlir"), "-o", str(folder)]
    assert main(["export-web", *arguments]) == 1
    assert "'w' have none; give them" in capsys.readouterr().err
    assert main(["export-web", *arguments, "--param", f"w={tmp_path / 'w.npy'}"]) == 0
    found = {p.name for p in folder.iterdir()}
    assert found == {
        "program.json",
        "kernels.wgsl",
        "weights.bin",
        "rlx.js",
        "wasm.js",
        "threads.js",
        "sizes.js",
        "steps.js",
        "index.html",
    }
    written = json.loads((folder / "program.json").read_text("utf-8"))
    assert written["format"] == web.FORMAT
    program = written["programs"]["webgpu"]
    at = next(m["at"] for m in program["memories"] if m["role"] == "param")
    carried = (folder / "weights.bin").read_bytes()[at : at + 16]
    assert np.frombuffer(carried, np.float32).tolist() == [0, 1, 2, 3]
    for name in ("rlx.js", "steps.js", "index.html"):
        assert not re.search(r"https?://", (folder / name).read_text("utf-8"))


def test_outputs_have_the_names_that_a_page_reads(tmp_path: Path) -> None:
    g = rlx.Graph("page")
    x = g.input("x", [4])
    found: list[list[str]] = []
    for outputs in ({"y": x * 2.0, "sum": x.sum()}, [x * 2.0, x.sum()]):
        g.set_outputs(outputs)
        write_bundle(rlx.compile_artifact(g, "webgpu"), tmp_path)
        written = json.loads((tmp_path / "program.json").read_text("utf-8"))
        program = written["programs"]["webgpu"]
        found.append([output["name"] for output in program["outputs"]])
    assert found == [["y", "sum"], ["0", "1"]]
    script = (STATIC / "rlx.js").read_text("utf-8")
    assert "this.outputs = program.outputs;" in script and "[n, { name, dtype }]" in script


def test_the_script_reads_the_format_that_is_written() -> None:
    text = (STATIC / "rlx.js").read_text("utf-8")
    assert f"const FORMAT = {web.FORMAT};" in text


def test_an_artifact_of_another_target_is_refused(tmp_path: Path) -> None:
    made = rlx.compile_artifact(graph(), "vulkan", params=weights())
    with pytest.raises(
        ArtifactError, match="for the target 'webgpu' or 'wasm', found one for 'vulkan'"
    ):
        write_bundle(made, tmp_path)


RUN = """
const { load } = await import(`${here}/rlx.js`);
const model = await load();
const feeds = {
  x: new Float32Array(%(x)s), b: new Int8Array(%(b)s), at: new Int32Array(%(at)s),
};
const runs = [];
for (const flag of [1, 0]) {
  const found = await model.run({ ...feeds, flag: new Uint8Array([flag]) });
  runs.push(Object.values(found).map((a) => Array.from(a)));
}
const said = [];
for (const more of [{ at: new Int32Array([0, 3]) }, { x: new Float32Array(2) }, { no: 1 }])
  await model.run({ ...feeds, flag: new Uint8Array([1]), ...more })
    .catch((e) => said.push(e.message));
return { runs, said };
"""


def test_a_browser_runs_it(tmp_path: Path) -> None:
    g, given, params = graph(), feeds(), weights()
    folder = tmp_path / "site"
    write_bundle(rlx.compile_artifact(g, "webgpu", params=params), folder)
    numbers = {name: given[name].reshape(-1).tolist() for name in ("x", "b", "at")}
    result = result_of(folder, RUN % numbers)
    for flag, found in zip((True, False), result["runs"], strict=True):
        expected = interpret(g, {**given, **params, "flag": np.bool_(flag)})
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.array(a).reshape(b.shape), b, rtol=2e-5, atol=2e-6)
    fault, shape, unknown = result["said"]
    assert re.search(r"test_export_web\.py:\d+: .*out of range for axis 0", fault)
    assert shape == "rlx: input x is a Float32Array of 15 (f32, [3,5]), found Float32Array of 2"
    assert unknown == "rlx: no input is called no"


SIZES = """
const { load } = await import(`${here}/rlx.js`);
const model = await load();
const rows = [];
for (const [n, m] of %s) {
  const x = Float32Array.from({ length: n * m }, (_, i) => i %% 7);
  const bound = model.bind({ n, m });
  const found = await bound.run({ x });
  rows.push(bound.outputs.map(({ name, shape }) => [shape, Array.from(found[name])]));
}
const said = [];
for (const dims of [{ n: 2 }, { n: 2, m: 0 }, { n: 2, m: 3, k: 1 }, { n: 2, m: 4 }])
  await model.run({ x: new Float32Array(6) }, dims).catch((e) => said.push(e.message));
return { symbols: model.symbols, shapes: model.outputs.map((o) => o.shape), rows, said };
"""


def test_a_browser_runs_one_program_at_many_sizes(tmp_path: Path) -> None:
    """Sizes that come again, others in between, and variants of both kinds."""
    g = rlx.Graph("many")
    x = g.input("x", [rlx.Dim("n", 1, 40), rlx.Dim("m", 2, 90)])
    scaled = x[:, 0:2] @ (g.param("w", [2, 3]) * 2.0)
    g.set_outputs({"y": g.concat([x.sin(), x * 2.0], axis=1), "z": scaled.tanh()})
    w = rng.standard_normal((2, 3)).astype(np.float32)
    made = rlx.compile_artifact(g, "webgpu", params={"w": w})
    assert len(made.variants) > 1
    write_bundle(made, tmp_path / "site")
    sizes = [(3, 5), (1, 2), (40, 89), (9, 64), (3, 5), (2, 90)]
    result = result_of(tmp_path / "site", SIZES % json.dumps(sizes))
    assert result["symbols"] == [
        {"name": "m", "least": 2, "most": 90}, {"name": "n", "least": 1, "most": 40}
    ]  # fmt: skip
    assert result["shapes"] == [["n", "2*m"], ["n", 3]]
    for (n, m), row in zip(sizes, result["rows"], strict=True):
        given = (np.arange(n * m, dtype=np.float32) % 7).reshape(n, m)
        expected = interpret(g, {"x": given, "w": w})
        for (shape, numbers), b in zip(row, expected, strict=True):
            assert shape == list(b.shape)
            np.testing.assert_allclose(np.reshape(numbers, shape), b, rtol=2e-5, atol=2e-6)
    missing, outside, unknown, wrong = result["said"]
    assert missing == "rlx: the dim m is a size from 2 to 90, found nothing; give { m: ... }"
    assert outside == "rlx: the dim m is a size from 2 to 90, found 0; give { m: ... }"
    assert unknown == "rlx: no dim is called k"
    assert wrong == "rlx: input x is a Float32Array of 8 (f32, [2,4]), found Float32Array of 6"
