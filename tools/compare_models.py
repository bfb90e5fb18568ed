"""What language models in few bits lose: their logits on a text, beside those of a first model.

    python tools/compare_models.py MODEL.gguf OTHER.gguf ... --text FILE [--tokens 2048]
    python tools/compare_models.py MODEL.gguf --text FILE --precision f32 q8 --llama PYTHON

A row has the mean KL divergence of a token's distribution from the first row's (in nats), how
often the likeliest token is the same, and the perplexity. Rows of products stay in f32, unless
``--precision`` names others: then a model has a row for each, in their order. With ``--llama``, an
interpreter that has llama-cpp-python, llama.cpp computes the logits of GGUF files too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rlx

Array = np.ndarray[Any, Any]

CHUNK = 256
LLAMA = """
import sys, numpy as np
from llama_cpp import Llama
path, ids, out = sys.argv[1:]
chunks = np.load(ids).tolist()
m = Llama(path, n_ctx=len(chunks[0]), logits_all=True, n_threads=1, verbose=False)
found = []
for chunk in chunks:
    m.reset()
    m.eval(chunk)
    found.append(m.scores[: len(chunk)].copy())
np.save(out, np.stack(found))
"""


def logarithms(logits: Array) -> Array:
    """The logarithms of the probabilities of logits."""
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)


def of_rlx(path: str, precision: str, chunks: Array) -> list[Array]:
    """The logarithms of the probabilities behind each token of chunks."""
    llm = rlx.LLM(path, precision=precision, context=CHUNK, progress=False)
    return [logarithms(llm.logits(ids.tolist())) for ids in chunks]


def of_llama(path: str, python: str, chunks: Array) -> list[Array]:
    """The same of llama.cpp."""
    with tempfile.TemporaryDirectory() as folder:
        ids, out = f"{folder}/ids.npy", f"{folder}/logits.npy"
        np.save(ids, chunks)
        subprocess.run([python, "-c", LLAMA, path, ids, out], check=True)
        return [logarithms(x) for x in np.load(out)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--precision", nargs="+", default=["f32"])
    parser.add_argument("--llama", metavar="PYTHON")
    args = parser.parse_args()
    llm = rlx.LLM(args.models[0], context=CHUNK, progress=False)
    ids = llm.ids(Path(args.text).read_text(encoding="utf-8"))[: args.tokens]
    chunks = np.array(ids[: len(ids) // CHUNK * CHUNK]).reshape(-1, CHUNK)
    base: list[Array] = []
    print("| model | by | KL | same token | perplexity |\n|---|---|---|---|---|")
    for path in args.models:
        for way in [*args.precision, *(["llama.cpp"] if args.llama else [])]:
            if way == "llama.cpp":
                found = of_llama(path, args.llama, chunks)
            else:
                found = of_rlx(path, way, chunks)
            base = base or found
            pairs = list(zip(base, found, strict=True))
            kl = np.mean([(np.exp(p) * (p - q)).sum(1).mean() for p, q in pairs])
            same = np.mean([(p.argmax(1) == q.argmax(1)).mean() for p, q in pairs])
            said = [
                q[np.arange(CHUNK - 1), c[1:]].mean() for q, c in zip(found, chunks, strict=True)
            ]
            name, lost = Path(path).name, np.exp(-np.mean(said))
            print(f"| {name} | {way} | {kl:.2e} | {same:.3f} | {lost:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
