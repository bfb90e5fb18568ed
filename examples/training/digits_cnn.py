"""Train a convolutional network on scikit-learn's handwritten digits.

python examples/training/digits_cnn.py [--epochs 30]      # 98.5 % and more of the test digits
"""

import argparse
from itertools import pairwise

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import rlx

CHANNELS = (1, 16, 32)


def logits(g: rlx.Graph, x: rlx.Value, rng: np.random.Generator) -> rlx.Value:
    """Two convolutions, a maximum over squares of 2x2, and a dense layer; x is [batch, 1, 8, 8]."""
    for i, (n, m) in enumerate(pairwise(CHANNELS)):
        w = (rng.standard_normal((m, n, 3, 3)) * np.sqrt(2 / (9 * n))).astype(np.float32)
        b = g.param(f"bias{i}", value=np.zeros(m, np.float32))
        x = x.conv2d(g.param(f"conv{i}", value=w), b, padding=1).relu()
    x = x.max_pool2d(2).flatten(1)
    w = (rng.standard_normal((CHANNELS[-1] * 16, 10)) / np.sqrt(CHANNELS[-1] * 16)).astype(
        np.float32
    )
    return x @ g.param("dense", value=w) + g.param("bias", value=np.zeros(10, np.float32))


def main() -> None:
    """Train, and count what is right of the digits that were not trained on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the weights to start from")
    args = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.2, random_state=0
    )

    g = rlx.Graph("digits")
    x, y = g.input("x", [32, 1, 8, 8]), g.input("y", [32], "i64")
    g.set_outputs(logits(g, x, np.random.default_rng(args.seed)).softmax_cross_entropy(y).mean())
    data = rlx.training.Batches({"x": train_x, "y": train_y}, 32)
    rate = rlx.optim.WarmupCosine(3e-3, total=args.epochs * len(data), warmup=50)
    step = rlx.compile_training(g, rlx.optim.AdamW(lr=rate, weight_decay=0.05), ema=0.99)
    history = rlx.fit(step, data, epochs=args.epochs)

    model = rlx.Graph("digits")
    model.set_outputs(logits(model, model.input("x", ["n", 1, 8, 8]), np.random.default_rng(0)))
    f = rlx.Session("cpu").compile(model)
    for name, value in step.params(averaged=True).items():
        f.set_param(name, value)
    right = (f.run({"x": test_x})[0].argmax(axis=-1) == test_y).mean()
    print(f"loss {history.losses[0]:.3f} to {history.losses[-1]:.3f}; test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
