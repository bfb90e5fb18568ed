"""JAX's own cases on the platform ``rlx``, judged by its CPU backend.

python tools/jax_harnesses.py --every 40          # needs jax and absl-py; one case in 40
python tools/jax_harnesses.py --groups qr,cumsum  # all cases of groups

The cases are those that JAX has in its package to test exports with (``test_harnesses``): jitted
functions of all primitives. Each counts as equal, different or refused; prints the last two.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from typing import Any

os.environ["JAX_PLATFORMS"] = "rlx,cpu"

import jax
import numpy as np
from jax._src.internal_test_util import test_harnesses

TOLERANCES = {2: 2e-2, 4: 2e-4, 8: 1e-9}
"""By the bytes of a real number, against the largest number of the result."""


OPEN = ("svd", "eigh")
"""Groups whose vectors are not unique."""


def settled(values: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """What is unique of the results of a decomposition: of singular values ``s`` with ``u`` and
    ``v``, the vectors that belong to values but for their signs, the matrix that all make, and how
    far the vectors are from orthonormal, among them those of a full matrix that belong to none."""
    if len(values) != 3:
        return [np.abs(v) for v in values]
    s, u, v = values
    k = s.shape[-1]
    first, last = u[..., :k], v[..., :k, :]
    grams = [np.swapaxes(u.conj(), -1, -2) @ u, v @ np.swapaxes(v.conj(), -1, -2)]
    return [s, np.abs(first), np.abs(last), (first * s[..., None, :]) @ last, *grams]


def alike(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two results are the same but for rounding."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    part = a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)
    if part == 1:
        return bool((a.astype(np.float32) == b.astype(np.float32)).all())
    a, b = (v.astype(np.complex128) for v in (a, b))
    size = np.abs(a[np.isfinite(a)]).max(initial=1)
    return np.allclose(a, b, rtol=TOLERANCES[part], atol=TOLERANCES[part] * size, equal_nan=True)


def on(platform: str, f: Any, args: list[Any]) -> list[np.ndarray[Any, Any]]:
    """What a function gives on a platform."""
    with jax.default_device(jax.devices(platform)[0]):
        found = jax.jit(f)(*args)
        return [np.asarray(v) for v in jax.tree.leaves(found)]


def outcome(harness: Any) -> tuple[str, str]:
    """What became of a case, and why."""
    args = harness.dyn_args_maker(np.random.RandomState(0))
    try:
        expected = on("cpu", harness.dyn_fun, args)
    except Exception as e:
        return "not of JAX's CPU", str(e)
    try:
        found = on("rlx", harness.dyn_fun, args)
    except Exception as e:
        return "refused", re.sub(r"\s+", " ", str(e))[:300]
    if harness.group_name in OPEN:
        expected, found = settled(expected), settled(found)
    if len(found) == len(expected) and all(map(alike, expected, found)):
        return "equal", ""
    return "different", f"{expected} {found}"[:400]


def main() -> int:
    """Run the cases; 1 if one differs."""
    parser = argparse.ArgumentParser(description="JAX's own cases on RLX")
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--groups", default="")
    options = parser.parse_args()
    groups = set(filter(None, options.groups.split(",")))
    cases = [h for h in test_harnesses.all_harnesses if not groups or h.group_name in groups]
    counts: Counter[str] = Counter()
    for harness in cases if groups else cases[:: options.every]:
        what, why = outcome(harness)
        counts[what] += 1
        if what in ("different", "refused"):
            print(f"{what}: {harness.fullname}: {why}", flush=True)
    print(dict(counts))
    return int(counts["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
