"""Text encoders in 8 bits: their speed beside f32 and beside ONNX Runtime's dynamically quantised
model, and what they lose.

    python -m bench encoder_int8 [--models bert minilm] [--rounds 5] [--quick]

BERT-base has random weights, quantised by ``rlx.quant.quantize_graph(..., "int8")``; MiniLM has its
own, by ``Embed.from_dir(..., precision="int8")``. Times are the least CPU time of a call at one
thread, all in turn; the cosine is the least of a token's hidden state (of a text's vector) to that
in f32. ONNX Runtime takes part where it is installed, with the model that
``onnxruntime.quantization.quantize_dynamic`` makes of the same graph.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from bench.families import bert, minilm
from bench.runtimes.rlx import graph_of

Array = np.ndarray[Any, Any]
Calls = dict[str, Callable[[], Array]]

INNER = 0.2
"""Seconds of a round's calls."""


def compiled(graph: Any, params: dict[str, Array], feeds: dict[str, Array]) -> Callable[[], Array]:
    """A call of a graph at one thread."""
    f = rlx.Session("cpu", threads=1).compile(graph)
    for name, value in params.items():
        f.set_param(name, value)
    return lambda: np.asarray(f.run(feeds)[0])


def by_onnxruntime(graph: Any, params: dict[str, Array], feeds: dict[str, Array]) -> Calls:
    """That of ONNX Runtime, in f32 and in 8 bits; empty where it is not installed."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
        tools: Any = importlib.import_module("onnxruntime.quantization")
    except ImportError:
        return {}
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "f32.onnx", Path(folder) / "int8.onnx"
        rlx.to_onnx(graph, plain, params=params)
        tools.quantize_dynamic(plain, small, weight_type=tools.QuantType.QInt8)
        sessions = {
            name: runtime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"])
            for name, p in (("onnxruntime f32", plain), ("onnxruntime int8", small))
        }
    return {name: (lambda s=s: s.run(None, feeds)[0]) for name, s in sessions.items()}


def bert_calls(tokens: int) -> Calls:
    """BERT-base."""
    case = bert.encoder(tokens)
    graph, params, feeds = graph_of(case), case.values(), case.feeds()
    found = rlx.quant.quantize_graph(graph, params, "int8")
    calls = {
        "f32": compiled(graph, params, feeds), "int8": compiled(found.graph, found.params, feeds),
    }  # fmt: skip
    return {**calls, **by_onnxruntime(graph, params, feeds)}


def minilm_calls(batch: int, tokens: int) -> Calls:
    """MiniLM-L6-v2."""
    from rlx.models import Embed

    case = minilm.case(batch, tokens)
    feeds, calls = case.feeds(), Calls()
    for name in ("f32", "int8"):
        encoder = Embed.from_dir(minilm.model_dir(), precision=name, threads=1)
        calls[name] = lambda e=encoder: np.asarray(e.encode_ids(feeds["ids"], feeds["mask"]))
    plain = minilm.MiniLM(case.name, minilm.build, case.inputs)
    g, values = rlx.Graph("minilm"), case.values()
    leaves = {n: g.input(n, t.shape, "i64") for n, t in case.inputs.items()}
    leaves |= {n: g.param(n, v.shape) for n, v in values.items()}
    from bench.runtimes.rlx import RlxOps

    g.set_outputs([plain.build(RlxOps(), **leaves)])
    params = {n: np.ascontiguousarray(v, np.float32) for n, v in values.items()}
    return {**calls, **by_onnxruntime(g, params, feeds)}


def cosine(x: Array, y: Array) -> float:
    """The least of rows."""
    a, b = (v.reshape(-1, v.shape[-1]).astype(np.float64) for v in (x, y))
    return float(np.min((a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))))


def times(calls: Calls, rounds: int) -> dict[str, float]:
    """The least CPU time of a call."""
    least = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            count, start = 0, time.thread_time()
            while (spent := time.thread_time() - start) < INNER or not count:
                call()
                count += 1
            least[name] = min(least[name], spent / count)
    return least


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m bench encoder_int8")
    parser.add_argument("--models", nargs="+", default=["bert", "minilm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one size of each model")
    args = parser.parse_args(argv)
    made: dict[str, Callable[[], Calls]] = {}
    for tokens in (128,) if args.quick else (32, 128, 384):
        made[f"bert 1x{tokens}"] = lambda n=tokens: bert_calls(n)
    for shape in ((8, 128),) if args.quick else ((1, 16), (1, 128), (8, 128)):
        made["minilm {}x{}".format(*shape)] = lambda s=shape: minilm_calls(*s)
    print("| model | f32 | int8 | f32 / int8 | cosine | ONNX Runtime int8 / int8 | its cosine |")
    print("|---" * 7 + "|")
    for name, make in made.items():
        if name.split()[0] in args.models:
            calls = make()
            results = {n: call() for n, call in calls.items()}
            t, f32 = times(calls, args.rounds), results["f32"]
            peer = "onnxruntime int8"
            beside = f"{t[peer] / t['int8']:.2f}" if peer in t else ""
            own = f"{cosine(f32, results[peer]):.4f}" if peer in t else ""
            print(
                f"| {name} | {t['f32'] * 1e3:.2f} ms | {t['int8'] * 1e3:.2f} ms |"
                f" {t['f32'] / t['int8']:.2f} | {cosine(f32, results['int8']):.4f} | {beside} |"
                f" {own} |",
                flush=True,
            )
    return 0
