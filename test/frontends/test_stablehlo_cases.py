"""Random programs of the ops of StableHLO, of which ``tools/stablehlo_ops.py`` runs more, and the
total order of floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rlx.errors import RlxError
from support import stablehlo_regions  # noqa: F401 -- which adds generators
from support.stablehlo import agree, check, ours, program
from support.stablehlo_cases import GENERATORS, case
from support.stablehlo_composed import ORACLES

REFUSED = "by a region other than|another region is not read|found c|no type of"


@pytest.mark.parametrize("name", GENERATORS)
def test_random_programs(name: str) -> None:
    for seed in (1, 2):  # for which the interpreter does not abort
        try:
            if name in ORACLES:
                text, arrays = case(name, seed)
                agree(ours(text, arrays), ORACLES[name](text, arrays))
            else:
                check(*case(name, seed))
        except RlxError as e:
            assert any(word in str(e) for word in REFUSED.split("|"))


ENDS = [np.nan, -np.inf, 2.0, 0.0, -0.0, -1.5, np.inf, np.copysign(np.nan, -1), 0.0, -0.0]


def rank(a: np.ndarray) -> list[int]:
    """Places in the order of IEEE 754, 5.10."""
    bits = a.view(f"i{a.dtype.itemsize}").astype(object)
    least = 1 << (8 * a.dtype.itemsize - 1)
    return [int(b) if b >= 0 else -int(b) - least - 1 for b in bits]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)],
)
def test_the_total_order(kind: str, dtype: type) -> None:
    a = np.array(ENDS, dtype)
    one = f"tensor<{kind}>"
    b = a[::-1].copy()
    t = f"tensor<10x{kind}>"
    text = f"%r = stablehlo.compare LT, %a, %b, TOTALORDER : ({t}, {t}) -> tensor<10xi1>"
    found = ours(program(text, f"{t} {t}", "tensor<10xi1>"), [a, b])[0]
    assert found.tolist() == [x < y for x, y in zip(rank(a), rank(b), strict=True)]
    text = (
        '%r = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({\n'
        f"^bb0(%x: {one}, %y: {one}):\n"
        f"  %g = stablehlo.compare GT, %x, %y, TOTALORDER : ({one}, {one}) -> tensor<i1>\n"
        f"  stablehlo.return %g : tensor<i1>\n}}) : ({t}) -> {t}"
    )
    found = ours(program(text, t, t), [a])[0]
    assert rank(found) == sorted(rank(a), reverse=True)
