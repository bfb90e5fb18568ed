"""What the digits MLP takes on FPGAs: trained, quantised, simulated, synthesised and placed.

    python tools/fpga_report.py [--images 1000] [--places ecp5-25k,ice40-up5k] [--folder build/fpga]

It needs scikit-learn and the extra fpga, and prints the rows of docs/fpga.md.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np

import rlx

HIDDEN = 32

datasets: Any = importlib.import_module("sklearn.datasets")
model_selection: Any = importlib.import_module("sklearn.model_selection")


def graph_of(values: dict[str, np.ndarray], *, training: bool) -> rlx.Graph:
    """64 pixels, 32 hidden units and 10 classes; the loss, or the class."""
    g = rlx.Graph("digits")
    x = g.input("x", [32 if training else "n", 64])
    w0, b0, w1, b1 = (g.param(name, value=v) for name, v in values.items())
    y = (x @ w0 + b0).relu() @ w1 + b1
    if training:
        g.set_outputs(y.softmax_cross_entropy(g.input("y", [32], "i64")).mean())
    else:
        g.set_outputs(y.argmax(axis=-1))
    return g


def trained(epochs: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Weights, the images trained on, and those and the labels of the test."""
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    train_x, test_x, train_y, test_y = model_selection.train_test_split(
        images, labels, test_size=0.56, random_state=0
    )
    rng = np.random.default_rng(0)
    values = {
        "w0": (rng.standard_normal((64, HIDDEN)) / 8).astype(np.float32),
        "b0": np.zeros(HIDDEN, np.float32),
        "w1": (rng.standard_normal((HIDDEN, 10)) / np.sqrt(HIDDEN)).astype(np.float32),
        "b1": np.zeros(10, np.float32),
    }
    step = rlx.compile_training(graph_of(values, training=True), rlx.optim.AdamW(lr=3e-3))
    rlx.fit(step, rlx.training.Batches({"x": train_x, "y": train_y}, 32), epochs=epochs)
    return {k: np.asarray(v) for k, v in step.params().items()}, train_x, test_x, test_y


def main() -> None:
    """Print a row for each part and number of bits."""
    parser = argparse.ArgumentParser(description="Report on FPGAs.", epilog=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--places", default="ecp5-25k,ice40-up5k", help="parts to place it on")
    parser.add_argument("--folder", type=Path, default=Path("build/fpga"))
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    values, train_x, test_x, test_y = trained(args.epochs)
    graph = graph_of(values, training=False)
    found = rlx.quant.quantize_graph(graph, None, "int8", [{"x": train_x}])
    (floats,) = rlx.Session("cpu").compile(graph).run({"x": test_x})
    print(f"float: {(floats == test_y).mean():.4f} of {len(test_y)} test digits")
    for place in args.places.split(","):
        for bits in (8, 4):
            design = rlx.fpga.export_fpga(
                found.graph, args.folder / f"{place}-{bits}", found.params,
                target=f"fpga:{place}", weight_bits=bits,
            )  # fmt: skip
            codes = design.network.codes(test_x)
            right = (design.network.run(codes)[:, 0] == test_y).mean()
            print(f"{place}, {bits} bits: lanes {design.lanes}, accuracy {right:.4f}", flush=True)
            run = design.simulate(codes[: args.images])
            wrong = (run.results != design.network.run(codes[: args.images])).sum()
            cycles = sorted(set(run.cycles.tolist()))
            print(
                f"  simulated {len(run.results)} images: {wrong} differ, cycles {cycles}",
                flush=True,
            )
            print(f"  estimate {design.estimate}", flush=True)
            placed = design.place()
            rate = placed.fmax * 1e6 / cycles[0]
            print(f"  placed {placed}; {rate:.0f} images a second at that clock", flush=True)


if __name__ == "__main__":
    main()
