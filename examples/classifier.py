"""A small classifier: symbolic batch, several threads, and every level of its compilation.

python examples/classifier.py            # run it
python examples/classifier.py --inspect  # print HIR, MIR, LIR, fusions, dispatch, times
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import rlx

FEATURES, HIDDEN, CLASSES = 64, 128, 10


def build(rng: np.random.Generator) -> rlx.Graph:
    """Two dense layers and a softmax; the params carry their values."""
    g = rlx.Graph("classifier")
    x = g.input("x", ["batch", FEATURES])
    for i, (n, m) in enumerate([(FEATURES, HIDDEN), (HIDDEN, CLASSES)]):
        weight = rng.standard_normal((n, m), np.float32) / np.float32(np.sqrt(n))
        x = x @ g.param(f"w{i}", value=weight) + g.param(f"b{i}", value=np.zeros(m, np.float32))
        x = x.gelu() if m == HIDDEN else x.softmax(axis=-1)
    g.set_outputs(x)
    return g


def main() -> None:
    """Compile once, then classify batches of several sizes from several threads."""
    rng = np.random.default_rng(0)
    g = build(rng)
    if "--inspect" in sys.argv:
        print(rlx.inspect_pipeline(g, dims={"batch": 32}))
        return
    f = rlx.Session("cpu").compile(g)
    batches = [rng.standard_normal((n, FEATURES), np.float32) for n in (1, 7, 32, 7)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: f.run({"x": x})[0], batches))
    for x, found in zip(batches, results, strict=True):
        expected = rlx.interpret(g, {"x": x})[0]
        error = np.abs(found - expected).max()
        print(f"batch {len(x):3d}: largest difference from the reference {error:.1e}")


if __name__ == "__main__":
    main()
