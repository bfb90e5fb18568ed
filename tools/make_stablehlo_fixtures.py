"""Write the programs of test/frontends/fixtures/stablehlo, as JAX exports them.

python tools/make_stablehlo_fixtures.py      # needs jax
"""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

FOLDER = Path(__file__).resolve().parent.parent / "test" / "frontends" / "fixtures" / "stablehlo"


def layers(p, x):
    """Layers under a scan, each with a number besides."""

    def layer(h, w):
        return jnp.tanh(h @ w), h.sum()

    h, sums = jax.lax.scan(layer, x, p["w"])
    return {"y": jax.nn.softmax(h), "sums": sums}


def first(p, x):
    """One number of what the layers give."""
    return layers(p, x)["y"][:, 0].sum()


def without_places(text: str) -> str:
    """The text of a module without the lines of its program, but with names of arguments."""
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?!\")[^\"\n]*?\)(?=[ ,)\n])", "", text)


def main() -> None:
    """Export both, one as text and one as a portable artifact."""
    FOLDER.mkdir(exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    args = {"w": np.ones((3, 4, 4), np.float32)}, np.ones((2, 4), np.float32)
    text = export.export(jax.jit(layers))(*args).mlir_module()
    (FOLDER / "scan.mlir").write_text(without_places(text), encoding="utf-8")
    step = export.export(jax.jit(jax.value_and_grad(first)))(*args)
    (FOLDER / "scan_grad.mlirbc").write_bytes(step.mlir_module_serialized)


if __name__ == "__main__":
    main()
