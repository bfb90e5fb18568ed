"""Train a multilayer perceptron on scikit-learn's handwritten digits.

python examples/training/digits_mlp.py [--epochs 40]      # 97 % and more of the test digits
"""

import argparse
from itertools import pairwise

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import rlx

SIZES = (64, 128, 64, 10)


def logits(g: rlx.Graph, x: rlx.Value, rng: np.random.Generator) -> rlx.Value:
    """Dense layers with ReLUs between them; the params carry their first values."""
    for i, (n, m) in enumerate(pairwise(SIZES)):
        w = (rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32)
        x = x.relu() if i else x
        x = x @ g.param(f"w{i}", value=w) + g.param(f"b{i}", value=np.zeros(m, np.float32))
    return x


def main() -> None:
    """Train, and count what is right of the digits that were not trained on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(
        (images / 16).astype(np.float32), labels, test_size=0.2, random_state=0
    )
    train_x, test_x, train_y, test_y = split

    g = rlx.Graph("digits")
    x, y = g.input("x", ["batch", 64]), g.input("y", ["batch"], "i64")
    out = logits(g, x, np.random.default_rng(0))
    right = out.argmax(-1).eq(y).cast("f32")
    g.set_outputs([out.softmax_cross_entropy(y).mean(), right.mean()])
    data = rlx.training.Batches({"x": train_x, "y": train_y}, 32)
    rate = rlx.optim.WarmupCosine(3e-3, total=args.epochs * len(data), warmup=50)
    step = rlx.compile_training(g, rlx.optim.AdamW(lr=rate), metrics=["accuracy"])
    history = rlx.fit(step, data, epochs=args.epochs)

    model = rlx.Graph("digits")
    model.set_outputs(logits(model, model.input("x", ["batch", 64]), np.random.default_rng(0)))
    f = rlx.Session("cpu").compile(model)
    for name, value in step.params().items():
        f.set_param(name, value)
    right = (f.run({"x": test_x})[0].argmax(axis=-1) == test_y).mean()
    print(f"loss {history.losses[0]:.3f} to {history.losses[-1]:.3f}; test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
