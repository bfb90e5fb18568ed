"""Train a small decoder on the letters of a text, and let it write.

python examples/training/language_model.py [--steps 600] [--text LICENSE]
"""

import argparse
from pathlib import Path

import numpy as np

import rlx

VOCAB, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 128, 64, 4, 2, 64, 16


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The first values of the params."""
    rng = np.random.default_rng(seed)
    shapes = {"embed": (VOCAB, WIDTH), "place": (TOKENS, WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"{i}.{n}": (WIDTH, WIDTH) for n in ("query", "key", "value", "out")}
        shapes |= {f"{i}.up": (WIDTH, 4 * WIDTH), f"{i}.down": (4 * WIDTH, WIDTH)}
    found = {n: (0.05 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    norms = [f"{i}.{n}" for i in range(LAYERS) for n in ("norm1", "norm2")] + ["norm"]
    return found | {n: np.ones(WIDTH, np.float32) for n in norms}


def logits(g: rlx.Graph, ids: rlx.Value, given: dict[str, np.ndarray]) -> rlx.Value:
    """A decoder with norms before its blocks; the embedding is the last layer as well."""
    p = {name: g.param(name, value=value) for name, value in given.items()}
    x = p["embed"].gather(ids) + p["place"]
    for i in range(LAYERS):
        h = x.rms_norm(p[f"{i}.norm1"], eps=1e-5)
        q, k, v = (h @ p[f"{i}.{name}"] for name in ("query", "key", "value"))
        a = q.attention(k, v, num_heads=HEADS, head_dim=WIDTH // HEADS, mask_kind="causal")
        x = x + a @ p[f"{i}.out"]
        h = x.rms_norm(p[f"{i}.norm2"], eps=1e-5)
        x = x + (h @ p[f"{i}.up"]).gelu() @ p[f"{i}.down"]
    return x.rms_norm(p["norm"], eps=1e-5) @ p["embed"].T


def windows(text: bytes, n: int) -> dict[str, np.ndarray]:
    """Batch ``n``: windows of the text that begin at random, and what follows each letter."""
    letters = np.frombuffer(text, np.uint8).astype(np.int64) % VOCAB
    at = np.random.default_rng(n).integers(0, len(letters) - TOKENS, BATCH)
    rows = np.stack([letters[i : i + TOKENS + 1] for i in at])
    return {"ids": rows[:, :-1].copy(), "next": rows[:, 1:].copy()}


def training_graph() -> rlx.Graph:
    """The mean loss of the next letter."""
    g = rlx.Graph("language_model")
    ids, follows = (g.input(n, [BATCH, TOKENS], "i64") for n in ("ids", "next"))
    g.set_outputs(logits(g, ids, weights()).softmax_cross_entropy(follows).mean())
    return g


def write(params: dict[str, np.ndarray], start: str, letters: int) -> str:
    """The likeliest continuation of ``start``, letter by letter."""
    g = rlx.Graph("writer")
    g.set_outputs(logits(g, g.input("ids", [1, TOKENS], "i64"), params))
    f, text = rlx.Session("cpu").compile(g), [ord(c) for c in start]
    for _ in range(letters):
        seen = text[-TOKENS:]
        ids = np.array([seen + [0] * (TOKENS - len(seen))])
        text.append(int(f.run({"ids": ids})[0][0, len(seen) - 1].argmax()))
    return "".join(map(chr, text))


def main() -> None:
    """Train on the text, and print what the model makes of a beginning."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--text", default=str(Path(__file__).parents[2] / "LICENSE"))
    args = parser.parse_args()
    text = Path(args.text).read_bytes()
    rate = rlx.optim.WarmupCosine(3e-3, total=max(args.steps, 21), warmup=20)
    optimizer = rlx.optim.AdamW(lr=rate, weight_decay=0.01)
    step = rlx.compile_training(training_graph(), optimizer, clip=rlx.optim.ClipNorm(1.0))
    history = rlx.fit(step, lambda n: windows(text, n), steps=args.steps)
    print(f"loss {history.losses[0]:.3f} to {history.losses[-1]:.3f}")
    print(repr(write(step.params(), "the License", 60)))


if __name__ == "__main__":
    main()
