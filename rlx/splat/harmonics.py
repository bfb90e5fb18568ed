"""Colors that depend on the direction, as real spherical harmonics."""

from __future__ import annotations

from math import pi, sqrt

from rlx.errors import DTypeError, ShapeError
from rlx.ir.builders import located
from rlx.ir.value import Value
from rlx.ops.movement.movement import zeros
from rlx.ops.sugar import concat

__all__ = ["DEGREES", "from_harmonics"]

DEGREES = {1: 0, 4: 1, 9: 2, 16: 3}
"""The degree, by the number of coefficients."""


@located
def from_harmonics(coefficients: Value, directions: Value) -> Value:
    """The colors [N, 3] of coefficients [N, K, 3] seen along ``directions`` [N, 3] of length 1,
    for K of 1, 4, 9 or 16.

    In INRIA's order and signs (the Condon-Shortley phase kept: for degree 1 it is -y, z, -x), with
    0.5 added, and nothing below 0.
    """
    count = coefficients.shape[1] if coefficients.rank == 3 else 0
    if not isinstance(count, int) or count not in DEGREES or coefficients.shape[2] != 3:
        raise ShapeError(
            f"splat.from_harmonics: coefficients are {coefficients.type}, expected [N, K, 3] for K"
            f" of {', '.join(map(str, DEGREES))}"
        )
    if directions.shape != (coefficients.shape[0], 3):
        raise ShapeError(
            f"splat.from_harmonics: directions are {directions.type}, expected"
            f" [{coefficients.shape[0]}, 3]"
        )
    if coefficients.dtype is not directions.dtype:
        raise DTypeError(
            f"splat.from_harmonics: coefficients are {coefficients.type} and directions"
            f" {directions.type}; cast one of them"
        )
    return ((basis(directions, count) * coefficients).sum(axes=1) + 0.5).relu()


def basis(directions: Value, count: int) -> Value:
    """The first so many harmonics [N, count, 1] of unit vectors."""
    x, y, z = (directions[:, i : i + 1] for i in range(3))
    columns = [zeros(x.shape, x.dtype) + sqrt(1 / (4 * pi))]
    if count > 1:
        c = sqrt(3 / (4 * pi))
        columns += [y * -c, z * c, x * -c]
    if count > 4:
        xx, yy, zz = x * x, y * y, z * z
        c = sqrt(15 / (4 * pi))
        columns += [
            x * y * c,
            y * z * -c,
            (zz * 2 - xx - yy) * sqrt(5 / (16 * pi)),
            x * z * -c,
            (xx - yy) * (c / 2),
        ]
        if count > 9:
            outer, inner = sqrt(35 / (32 * pi)), sqrt(21 / (32 * pi))
            columns += [
                y * (xx * 3 - yy) * -outer,
                x * y * z * sqrt(105 / (4 * pi)),
                y * (zz * 4 - xx - yy) * -inner,
                z * (zz * 2 - xx * 3 - yy * 3) * sqrt(7 / (16 * pi)),
                x * (zz * 4 - xx - yy) * -inner,
                z * (xx - yy) * sqrt(105 / (16 * pi)),
                x * (xx - yy * 3) * -outer,
            ]
    return concat(columns, axis=1).unsqueeze(-1)
