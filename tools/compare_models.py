"""What language models in few bits lose: their logits on a text, beside those of a first model.

    python tools/compare_models.py MODEL.gguf OTHER.gguf ... --text FILE [--tokens 2048]

A row has the mean KL divergence of a token's distribution from the first model's (in nats), how
often the likeliest token is the same, and the perplexity. Rows of products stay in f32.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import rlx

Array = np.ndarray[Any, Any]

CHUNK = 256


def distributions(llm: rlx.LLM, chunks: list[list[int]]) -> list[Array]:
    """The logarithms of the probabilities behind each token of chunks."""
    out: list[Array] = []
    for ids in chunks:
        x = llm.logits(ids).astype(np.float64)
        x -= x.max(1, keepdims=True)
        out.append((x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32))
    return out


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    args = parser.parse_args()
    base: list[Array] = []
    chunks: list[list[int]] = []
    print("| model | KL | same token | perplexity |\n|---|---|---|---|")
    for path in args.models:
        llm = rlx.LLM(path, precision="f32", context=CHUNK, progress=False)
        if not chunks:
            ids = llm.ids(Path(args.text).read_text(encoding="utf-8"))[: args.tokens]
            chunks = [ids[n : n + CHUNK] for n in range(0, len(ids) - CHUNK + 1, CHUNK)]
        found = distributions(llm, chunks)
        base = base or found
        pairs = list(zip(base, found, strict=True))
        kl = np.mean([(np.exp(p) * (p - q)).sum(1).mean() for p, q in pairs])
        same = np.mean([(p.argmax(1) == q.argmax(1)).mean() for p, q in pairs])
        said = [q[np.arange(CHUNK - 1), c[1:]].mean() for q, c in zip(found, chunks, strict=True)]
        name = Path(path).name
        print(f"| {name} | {kl:.4f} | {same:.3f} | {np.exp(-np.mean(said)):.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
