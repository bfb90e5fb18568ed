"""A warm process to its first embedding with MiniLM, against ONNX Runtime.

Every round starts a new interpreter for each row, in turn. Of RLX it imports rlx.models, loads the
model's directory, and encodes one sentence, with the encoder in the compile cache and the weights
read from safetensors. Of ONNX Runtime it imports onnxruntime and tokenizers, loads an ONNX file
that was exported before (and, in a further row, one that ONNX Runtime had optimised and saved
before), and encodes the same sentence. The clocks run from before the interpreter is started until
the embedding is there (of rlx-opt, until the process has ended): the wall clock, and the CPU time
of the process, which other work on the machine disturbs less. It is a failure if the vectors differ
or RLX's process imported a compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from bench.families import find_case
from bench.families.minilm import model_dir
from bench.measure import OURS, Bench, Failure, Options, Row, environment
from bench.runtimes import EXPORTED

SENTENCE = "A warm process reaches its first embedding."
TOKENS = 16

CLOCKS = "import time; print('clocks', time.time(), time.process_time())"

RLX = """
import sys
from rlx.models import Embed
model, threads = sys.argv[1], int(sys.argv[2])
vector = Embed.from_dir(model, threads=threads).encode([{sentence!r}])[0]
{clocks}
print(vector[:16].tolist(), [m for m in ("torch_mlir", "llvmlite") if m in sys.modules])
"""

ONNX = """
import sys
import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer
model, threads, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
tokenizer.no_padding()
row = tokenizer.encode({sentence!r}).ids
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
options.log_severity_level = 3
if len(sys.argv) > 4:
    options.optimized_model_filepath = sys.argv[4]
session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
ids = np.zeros((1, {tokens}), np.int64)
mask = np.zeros_like(ids)
ids[0, : len(row)], mask[0, : len(row)] = row, 1
vector = session.run(None, {{"ids": ids, "mask": mask}})[0][0]
{clocks}
print(vector[:16].tolist(), [])
"""

LIBRARIES = (OURS, "onnxruntime", "onnxruntime, optimised")


class Measure(NamedTuple):
    """Seconds by the wall clock and of the CPU, of a process until it says or until its end, and
    what it printed last."""

    wall: float
    cpu: float
    printed: str


def run(command: list[str], cache: str | None = None) -> Measure:
    """Run a new process to its end."""
    env = environment(RLX_CACHE="on", RLX_CACHE_DIR=cache) if cache else environment()
    start = time.time()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    end, cpu = time.time(), used.ru_utime + used.ru_stime
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} {command[2][:200]}\nfailed with {process.returncode}")
    for line in lines:
        if line.startswith("clocks "):
            end, cpu = map(float, line.split()[1:])
    return Measure(end - start, cpu, lines[-1] if lines else "")


def commands(options: Options, bench: Bench) -> dict[str, list[str]]:
    """What each row runs; the ONNX files are written first, where ONNX Runtime is installed."""
    folder, given = bench.folder, [model_dir(), str(bench.threads)]
    names = {"sentence": SENTENCE, "tokens": TOKENS, "clocks": CLOCKS}
    python = [sys.executable, "-c"]
    beyond = "import numpy, rlx; rlx.Graph, rlx.Session, rlx.interpret"
    opt = [sys.executable, "-m", "rlx.tools.opt"]
    trivial = folder / "trivial.mlir"
    trivial.write_text("func.func @main(%x: tensor<2xf32>) { return }\n")
    found = {
        "python": [*python, CLOCKS],
        "import numpy": [*python, f"import numpy; {CLOCKS}"],
        "import numpy, rlx": [*python, f"{beyond}; {CLOCKS}"],
        "rlx-opt --help": [*opt, "--help"],
        "rlx-opt trivial.mlir": [*opt, str(trivial)],
        OURS: [*python, RLX.format(**names), *given],
    }
    if "onnxruntime" in bench.workers and "error" not in exported(bench):
        peer = options.pythons.get("onnxruntime", sys.executable)
        onnx = [peer, "-c", ONNX.format(**names), *given]
        file, optimised = (str(folder / f) for f in (EXPORTED["onnxruntime"], "optimised.onnx"))
        run([*onnx, file, optimised])
        found |= {LIBRARIES[1]: [*onnx, file], LIBRARIES[2]: [*onnx, optimised]}
    return found


def exported(bench: Bench) -> dict[str, Any]:
    """Write the ONNX file; an error in the answer if that failed."""
    return bench.export("minilm", find_case("minilm", f"1x{TOKENS}"))


def check(vectors: dict[str, str]) -> str | None:
    """What is wrong with what was computed."""
    found = {name: text.rpartition("[") for name, text in vectors.items()}
    ours = np.array(json.loads(found[OURS][0]))
    for name, (text, _, _) in found.items():
        if np.abs(np.array(json.loads(text)) - ours).max() > 1e-5:
            return f"{name} gives another vector"
    if found[OURS][2] != "]":
        return "the warm process imported a compiler: it did not hit the cache"
    return None


def rows(options: Options) -> Iterator[Row | Failure]:
    """Wall clock and CPU time of every row; a failure if the vectors differ."""
    for threads in options.threads:
        with Bench(options, threads) as bench:
            yield from _rounds(bench)


def _rounds(bench: Bench) -> Iterator[Row | Failure]:
    options, cache = bench.options, str(bench.folder / "cache")
    listed = commands(options, bench)
    cold = run(listed[OURS], cache)
    found: dict[str, list[Measure]] = {}
    for _ in range(options.rounds):
        for name, command in listed.items():
            found.setdefault(name, []).append(run(command, cache))
    for what, clock in (("wall clock", attrgetter("wall")), ("CPU time", attrgetter("cpu"))):
        yield Row("warm", f"cold, {what}", bench.threads, OURS, [clock(cold)], clock(cold))
        for name, measures in found.items():
            values = [clock(m) for m in measures]
            case, runtime = (what, name) if name in LIBRARIES else (f"{name}, {what}", OURS)
            yield Row("warm", case, bench.threads, runtime, values, min(values))
    wrong = check({name: found[name][-1].printed for name in LIBRARIES if name in found})
    if wrong:
        yield Failure("warm", "vectors", bench.threads, OURS, wrong)
