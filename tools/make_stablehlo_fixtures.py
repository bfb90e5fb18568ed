"""Write the programs of test/frontends/fixtures/stablehlo, as JAX exports them.

python tools/make_stablehlo_fixtures.py      # needs jax
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

FOLDER = Path(__file__).resolve().parent.parent / "test" / "frontends" / "fixtures" / "stablehlo"


def layers(p: Any, x: Any) -> Any:
    """Layers under a scan, each with a number besides."""

    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(h @ w), h.sum()

    h, sums = jax.lax.scan(layer, x, p["w"])
    return {"y": jax.nn.softmax(h), "sums": sums}


def first(p: Any, x: Any) -> Any:
    """One number of what the layers give."""
    return layers(p, x)["y"][:, 0].sum()


def of_any_sizes(w: Any, x: Any) -> Any:
    """What is done along dims that no number says."""
    h = jnp.tanh(x @ w)
    return {
        "mean": h.mean(1), "flat": h.reshape(-1, 8), "last": x[:, -1], "every": x[:, ::2],
        "half": x[:, : x.shape[1] // 2],
        "cut": jax.lax.pad(x, 0.0, ((0, 0, 0), (-1, 0, 0), (0, 0, 0))),
        "padded": jnp.pad(x, ((0, 0), (1, 2), (0, 0))),
        "places": jnp.arange(x.shape[1]) * 2,
        "sums": jnp.cumsum(x, 1), "twice": jnp.concatenate([x, x], 1),
        "seen": jnp.tril(jnp.ones((x.shape[1], x.shape[1]))), "size": x.sum() / x.shape[0],
    }  # fmt: skip


def without_places(text: str) -> str:
    """The text of a module without the lines of its program, but with names of arguments."""
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?!\")[^\"\n]*?\)(?=[ ,)\n])", "", text)


def main() -> None:
    """Export them, as text or as portable artifacts."""
    FOLDER.mkdir(exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    args = {"w": np.ones((3, 4, 4), np.float32)}, np.ones((2, 4), np.float32)
    text = export.export(jax.jit(layers))(*args).mlir_module()
    (FOLDER / "scan.mlir").write_text(without_places(text), encoding="utf-8")
    step = export.export(jax.jit(jax.value_and_grad(first)))(*args)
    (FOLDER / "scan_grad.mlirbc").write_bytes(step.mlir_module_serialized)
    x = export.symbolic_args_specs(np.ones((2, 3, 4), np.float32), "batch, time, 4")
    sized = export.export(jax.jit(of_any_sizes))(np.ones((4, 8), np.float32), x)
    (FOLDER / "sizes.mlirbc").write_bytes(sized.mlir_module_serialized)


if __name__ == "__main__":
    main()
