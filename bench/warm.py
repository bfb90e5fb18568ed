"""A warm process to its first embedding with MiniLM, against ONNX Runtime.

    python -m bench warm --rounds 15

Every round starts a new interpreter for each row, in turn. Of RLX it imports rlx.models, loads the
model's directory, and encodes one sentence, with the encoder in the compile cache and the weights
read from safetensors. Of ONNX Runtime it imports onnxruntime and tokenizers, loads an ONNX file
that was exported before (and, in a further row, one that ONNX Runtime had optimised and saved
before), and encodes the same sentence. The clocks run from before the interpreter is started until
the embedding is there (of rlx-opt, until the process has ended). The table gives ms: the wall
clock, and the CPU time of the process, which other work on the machine disturbs less. The ratios
are RLX's time over that of the better row of ONNX Runtime. The exit code is 1 if the vectors differ
or RLX's process imported a compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
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

EXPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from bench.minilm_workers import inputs, onnx_file
print(onnx_file(sys.argv[2], *inputs(1, {tokens})))
"""

Measure = tuple[float, float, str]


def run(command: list[str]) -> Measure:
    """Wall clock and CPU time of a process in ms, until it says or until its end, and what it
    printed last."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    start = time.time()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
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
    return (end - start) * 1e3, cpu * 1e3, lines[-1] if lines else ""


def commands(model: Path, threads: int, peer: str, folder: Path) -> dict[str, list[str]]:
    """What each row of the table runs; the ONNX files are made where they are not there."""
    given = [str(model), str(threads)]
    names = {"sentence": SENTENCE, "tokens": TOKENS, "clocks": CLOCKS}
    python, onnx = [sys.executable, "-c"], [peer, "-c", ONNX.format(**names), *given]
    _, _, file = run([peer, "-c", EXPORT.format(**names), str(ROOT), str(model)])
    optimised = str(folder / "optimised.onnx")
    run([*onnx, file, optimised])
    beyond = "import numpy, rlx; rlx.Graph, rlx.Session, rlx.interpret"
    opt = [sys.executable, "-m", "rlx.tools.opt"]
    trivial = folder / "trivial.mlir"
    trivial.write_text("func.func @main(%x: tensor<2xf32>) { return }\n")
    return {
        "python": [*python, CLOCKS],
        "import numpy": [*python, f"import numpy; {CLOCKS}"],
        "import numpy, rlx": [*python, f"{beyond}; {CLOCKS}"],
        "rlx-opt --help": [*opt, "--help"],
        "rlx-opt trivial.mlir": [*opt, str(trivial)],
        "rlx warm": [*python, RLX.format(**names), *given],
        "onnxruntime": [*onnx, file],
        "onnxruntime, optimised": [*onnx, optimised],
    }


def check(vectors: dict[str, str]) -> str | None:
    """What is wrong with what was computed."""
    found = {name: text.rpartition("[") for name, text in vectors.items()}
    ours = np.array(json.loads(found["rlx warm"][0]))
    for name, (text, _, _) in found.items():
        if np.abs(np.array(json.loads(text)) - ours).max() > 1e-5:
            return f"{name} gives another vector"
    if found["rlx warm"][2] != "]":
        return "the warm process imported a compiler: it did not hit the cache"
    return None


def main(argv: list[str]) -> int:
    sys.path.insert(0, str(ROOT / "tools"))
    from find_model import minilm_dir

    form = argparse.RawDescriptionHelpFormatter
    args = argparse.ArgumentParser("bench warm", description=__doc__, formatter_class=form)
    args.add_argument("--model", type=Path, help="a model directory; by default MiniLM's")
    args.add_argument("--peer", default=sys.executable, help="a Python that has onnxruntime")
    args.add_argument("--rounds", type=int, default=9)
    args.add_argument("--threads", type=int, default=2)
    chosen = args.parse_args(argv)
    model = chosen.model or minilm_dir()
    if model is None:
        sys.exit("no model found; name its directory by --model")
    rows: dict[str, list[Measure]] = {}
    with tempfile.TemporaryDirectory(prefix="rlx-bench-warm-") as folder:
        os.environ["RLX_CACHE_DIR"] = f"{folder}/cache"
        listed = commands(model, chosen.threads, chosen.peer, Path(folder))
        cold = run(listed["rlx warm"])
        for _ in range(chosen.rounds):
            for name, command in listed.items():
                rows.setdefault(name, []).append(run(command))
    print(f"{'ms':24s}{'wall median':>12s}{'least':>9s}{'CPU median':>12s}{'least':>9s}")
    for name, found in {"rlx cold": [cold], **rows}.items():
        wall, cpu = ([m[i] for m in found] for i in (0, 1))
        numbers = statistics.median(wall), min(wall), statistics.median(cpu), min(cpu)
        print("{:24s}{:12.1f}{:9.1f}{:12.1f}{:9.1f}".format(name, *numbers))
    peers = [name for name in rows if name.startswith("onnxruntime")]
    for what, pick, i in (("median wall", statistics.median, 0), ("least CPU", min, 1)):
        ours = pick([m[i] for m in rows["rlx warm"]])
        best = min(pick([m[i] for m in rows[n]]) for n in peers)
        print(f"ratio of {what} time: {ours / best:.3f}")
    wrong = check({name: rows[name][-1][2] for name in ("rlx warm", *peers)})
    if wrong:
        print(wrong, file=sys.stderr)
    return int(wrong is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
