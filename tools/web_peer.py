"""MiniLM-L6 in headless Chromium: RLX's WebAssembly beside onnxruntime-web, in one page.

    npm install --prefix build/peer onnxruntime-web
    . .drivers/env && python tools/web_peer.py --peer build/peer/node_modules/onnxruntime-web/dist
        [--tokens 32] [--threads 1,2] [--rounds 5]

Both run the same graph (the peer as ONNX) on the same tokens, in turns; printed are the least and
the median of the rounds, the largest difference of the results, and the bytes that a page loads.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import rlx
from rlx.models.embed import encoder_graph
from rlx.runtime.web import write_bundle

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from support.browser import Page, find
from support.minilm import minilm_dir

SCRIPT = """
const { tokens, threads, rounds } = JSON.parse(new TextDecoder().decode(data));
const { load } = await import("/rlx/rlx.js");
const ort = await import("/peer/ort.wasm.min.mjs");
ort.env.wasm.wasmPaths = "/peer/";
ort.env.wasm.numThreads = threads;
const began = performance.now();
const model = await load("/rlx/", "wasm", undefined, threads);
const middle = performance.now();
const session = await ort.InferenceSession.create("/model.onnx", { executionProviders: ["wasm"] });
const loads = [middle - began, performance.now() - middle];
const feeds = {}, theirs = {};
for (const { name, dtype, shape } of model.inputs) {
  const count = shape.reduce((a, b) => a * b, 1);
  const word = (n) => (name.includes("type") ? 0 : 700 * (1 + (n % 2)));
  const value = (n) => (name.includes("mask") ? 1 : word(n));
  const wide = dtype === "i64";
  const kind = wide ? BigInt64Array : Int32Array;
  feeds[name] = kind.from({ length: count }, (_, n) => (wide ? BigInt(value(n)) : value(n)));
  theirs[name] = new ort.Tensor(wide ? "int64" : "int32", feeds[name], shape);
}
const own = () => model.run(feeds);
const peer = () => session.run(theirs);
const times = [[], []];
let found;
for (let round = -2; round < rounds; round++) {
  found = [];
  for (const [n, run] of [own, peer].entries()) {
    await new Promise((slept) => setTimeout(slept, 50)); // threads of the other may still spin
    const start = performance.now();
    found.push(await run());
    if (round >= 0) times[n].push(performance.now() - start);
  }
}
const [a, b] = found.map((outputs) => Object.values(outputs)[0]);
const values = b.data;
let error = 0;
a.forEach((v, n) => (error = Math.max(error, Math.abs(v - values[n]))));
const shared = [model.threads?.count ?? 1, globalThis.crossOriginIsolated];
model.close();
await session.release();
return { times, loads, error, shared };
"""


def bytes_of(folder: Path, names: list[str]) -> int:
    """Of files."""
    return sum((folder / name).stat().st_size for name in names)


def main() -> None:
    """Print a line for each number of threads."""
    parser = argparse.ArgumentParser(description="Compare in a browser.", epilog=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="onnxruntime-web's folder dist")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    browser, model = find(), minilm_dir()
    if browser is None or model is None:
        raise SystemExit("it takes Chromium (make drivers) and MiniLM (make .venv/model.stamp)")
    graph: rlx.Graph = encoder_graph(model)
    graph = graph.bind({name: 1 if name == "batch" else args.tokens for name in graph.symbols})
    artifact = rlx.compile_artifact(graph, "wasm", params=graph.param_values)
    for threads in map(int, args.threads.split(",")):
        page = Page(browser)  # another one for each: the peer's threads are those of the first call
        try:
            own, theirs = fill(page.folder, artifact, graph, args.peer)
            asked = {"tokens": args.tokens, "threads": threads, "rounds": args.rounds}
            print(f"code: {own} bytes, and {theirs} of the peer")
            report(threads, page.ask(SCRIPT, json.dumps(asked).encode()))
        finally:
            page.close()


def fill(folder: Path, artifact: rlx.Artifact, graph: rlx.Graph, peer: Path) -> tuple[int, int]:
    """Put the model in a page's folder for both; the bytes of their code."""
    write_bundle(artifact, folder / "rlx")
    rlx.to_onnx(graph, folder / "model.onnx")
    names = ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"]
    (folder / "peer").mkdir()
    for name in names:
        shutil.copy(peer / name, folder / "peer" / name)
    own = ["rlx.js", "wasm.js", "threads.js", "kernels.wasm"]
    return bytes_of(folder / "rlx", own), bytes_of(peer, names)


def report(threads: int, found: dict[str, Any]) -> None:
    """Print what a page says."""
    words: list[str] = []
    for name, times, load in zip(
        ("rlx", "onnxruntime-web"), found["times"], found["loads"], strict=True
    ):
        middle = sorted(times)[len(times) // 2]
        words.append(f"{name} {min(times):.1f} ms (median {middle:.1f}, loaded in {load:.0f})")
    own, isolated = found["shared"]
    print(
        f"{threads} threads ({own} of rlx, isolated {isolated}): {', '.join(words)};"
        f" difference {found['error']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
