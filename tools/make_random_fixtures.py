"""Write test/ops/fixtures/random.npz: what jax.random draws under one key.

Run with a Python that has jax (0.10 made the file that is there):

    python tools/make_random_fixtures.py

Every name is a call of ``test/ops/test_random.py`` there; bf16 is kept as f32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

OUT = Path(__file__).resolve().parent.parent / "test" / "ops" / "fixtures" / "random.npz"

SEED = 1234567
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
RANGES = [
    (0, 10, "int32"), (-100, 100, "int8"), (-5, 2**31 - 1, "int32"), (0, 1000003, "uint32"),
    (0, 7, "int64"), (-(2**62), 2**62, "int64"), (0, 256, "uint8"), (3, 70, "uint16"),
    (0, 2**32, "uint32"),
]  # fmt: skip


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    random, key = jax.random, jax.random.key(SEED)
    found: dict[str, Any] = {
        "key": random.key_data(key),
        "wide_key": random.key_data(random.key(-SEED)),
        "split": random.key_data(random.split(key, 5)),
        "fold_in": random.key_data(random.fold_in(key, 77)),
        "bernoulli": random.bernoulli(key, np.float32(0.3), (40,)),
        "permutation": random.permutation(key, 50),
        "rows": random.permutation(key, np.arange(12).reshape(6, 2)),
    }
    for width in (8, 16, 32, 64):
        found[f"bits{width}"] = random.bits(key, (3, 5), np.dtype(f"uint{width}"))
    for name, dt in FLOATS.items():
        draws = {
            "uniform": random.uniform(key, (4, 9), dt),
            "between": random.uniform(key, (4, 9), dt, -2.5, 0.7),
            "normal": random.normal(key, (4, 9), dt),
            "exponential": random.exponential(key, (4, 9), dt),
            "gumbel": random.gumbel(key, (4, 9), dt),
            "truncated_normal": random.truncated_normal(key, -1.0, 2.0, (4, 9), dt),
        }
        for kind, draw in draws.items():
            array = np.asarray(draw)
            found[f"{kind}_{name}"] = array.astype(np.float32) if name == "bf16" else array
    for n, (low, high, dt) in enumerate(RANGES):
        found[f"randint{n}"] = random.randint(key, (6, 7), low, high, np.dtype(dt))
    logits = np.random.default_rng(0).standard_normal((4, 11)).astype(np.float32)
    found["logits"] = logits
    found["categorical"] = random.categorical(key, logits)
    found["first_axis"] = random.categorical(key, logits, axis=0)
    found["thrice"] = random.categorical(key, logits, shape=(3, 4))
    np.savez_compressed(OUT, **{name: np.asarray(v) for name, v in found.items()})


if __name__ == "__main__":
    main()
