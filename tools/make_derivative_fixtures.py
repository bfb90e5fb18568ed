"""Write test/ops/fixtures/derivatives.npz: what JAX gives at ``test/support/derivative_points.py``.

Run with a Python that has jax (0.10 made the file that is there), NumPy and ml_dtypes:

    python tools/make_derivative_fixtures.py

All is in f64 and c128, a vector a row: the value, the tangents by each operand alone, the
cotangents, and the tangents of these along all operands together. A difference of
``rlx/tools/derivative_page.py`` is the derivative by the first operand of the sum of the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax, nn
from jax import numpy as jnp
from jax.scipy import special

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "test" / "ops" / "fixtures" / "derivatives.npz"
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from rlx.tools.derivative_page import DIFFERENCES, Difference  # noqa: E402
from support.derivative_points import ROWS, Row, direction  # noqa: E402

NAMES = {"jnp": jnp, "lax": lax, "nn": nn, "special": special}


def evaluated(text: str, *xs: Any) -> Any:
    """An expression of x, y and z."""
    return eval(text, {**NAMES, **dict(zip("xyz", xs, strict=False))})


def derivatives(row: Row) -> list[Any]:
    """What is kept of a row."""
    operands = [jnp.asarray(a) for a in row.operands]
    value = evaluated(row.jax, *operands)
    along = jnp.asarray(direction(np.asarray(value)))
    tangents = [jnp.asarray(direction(a)) for a in row.operands]

    def forward(i: int) -> Any:
        def alone(x: Any) -> Any:
            return evaluated(row.jax, *operands[:i], x, *operands[i + 1 :])

        return jax.jvp(alone, (operands[i],), (tangents[i],))[1]

    def back(*xs: Any) -> Any:
        return jax.vjp(lambda *vs: evaluated(row.jax, *vs), *xs)[1](along)

    firsts = [forward(i) for i in range(len(operands))]
    return [value, *firsts, *back(*operands), *jax.jvp(back, operands, tangents)[1]]


def difference(d: Difference) -> Any:
    """The derivative that the page states."""

    def total(*xs: Any) -> Any:
        return evaluated(d.jax, *xs).sum()

    def slopes(*xs: Any) -> Any:
        return jax.grad(total)(*xs).real.sum()

    return jax.grad(total if d.order == 1 else slopes)(*(jnp.asarray(a) for a in d.operands))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    found = {
        row.name: np.concatenate([np.ravel(a) for a in derivatives(row)]) for row in ROWS.values()
    }
    found |= {d.title: np.asarray(difference(d)) for d in DIFFERENCES}
    np.savez_compressed(OUT, **found)
    print(f"wrote {len(found)} rows to {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
