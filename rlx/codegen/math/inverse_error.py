"""erfinv, the inverse of the error function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.math.core import exact_fma, horner
from rlx.codegen.math.logarithm import log
from rlx.codegen.reg import Reg
from rlx.types import DType, f32, f64

__all__ = ["erfinv"]


@frozen
class _Piece:
    """A polynomial in (t - middle) / reach, for |t - middle| ≤ reach."""

    middle: float
    reach: float
    coefficients: Sequence[float]

    def at(self, t: Reg) -> Reg:
        scaled = [c / self.reach**n for n, c in enumerate(self.coefficients)]
        return horner(t - self.middle, scaled)


# erfinv x = x · P(w), w = -log(1 - x²): the variable of M. Giles, "Approximating the erfinv
# function", GPU Computing Gems (Jade Edition), 2011. Interpolation on Chebyshev points, with a
# relative error below 8e-9 in f32 and 8e-18 in f64; the rest is rounding. The first piece is in w,
# the others are in √w.
# fmt: off
_PIECES: dict[DType, tuple[_Piece, ...]] = {
    f32: (
        _Piece(2.5, 2.5, (
            1.5014094114303589, 0.6166006922721863, -0.02610870636999607, -0.01957385055720806,
            0.008529272861778736, -0.00048558786511421204, -0.0008456995128653944,
            0.00028572470182552934, 3.560785989975557e-05, -3.4072592825395986e-05,
        )),
        _Piece(3.1, 0.9, (
            2.9332315921783447, 0.9030205011367798, 0.00604375870898366, -0.0041524567641317844,
            0.00269506243057549, -0.0016049508703872561, 0.0007266874890774488,
            -0.0001397866872139275, -8.830280421534553e-05, 5.166214396012947e-05,
        )),
    ),
    f64: (
        _Piece(3.125, 3.125, (
            1.6536545626831027, 0.7504943200799635, -0.05892256710377784, -0.022604447453449802,
            0.017808361818295655, -0.00413731437741443, -0.0012716922684373015,
            0.0012324855686812834, -0.0002643936684366174, -0.0001168888399309713,
            9.33673917780479e-05, -1.5027710420277575e-05, -1.1257319182677936e-05,
            7.1300572630824496e-06, -6.83718721812117e-07, -1.059321402540731e-06,
            5.394320648707009e-07, -1.0185147576818285e-08, -9.867713140174249e-08,
            3.915473114023045e-08, 4.792369996100387e-09, -8.562787796742932e-09,
            1.5401738716654886e-09, 7.689312733742569e-10, -2.7032254091069344e-10,
        )),
        _Piece(3.25, 0.75, (
            3.0838856104922208, 0.753944225770624, 0.0030211394363747063, -0.0015825410894073097,
            0.0007883078513066945, -0.00040063569835358583, 0.00016966502197543766,
            -4.7391827316182325e-05, 2.405864805789804e-06, 5.127316786334848e-06,
            -2.664793846715906e-06, 5.264621626938461e-07, 9.289338749101434e-08,
            -9.468946844911027e-08, 2.63990323529153e-08, -3.6906087078089294e-10,
            -2.4605291139227303e-09, 9.891297510532429e-10, -1.179100761769929e-10,
            -6.471554767207546e-11, 2.4355543452655723e-11,
        )),
        _Piece(5.125, 1.125, (
            4.9761913900163, 1.1365383104872455, -0.0002690712468733987, -0.0002562023123297087,
            0.00010362208551087356, -2.9895529840385214e-05, 7.597412391993086e-06,
            -1.8159806514457431e-06, 4.3453901405742745e-07, -1.199477912382608e-07,
            4.6980420541098354e-08, -2.5483027386582713e-08, 1.5071256841719727e-08,
            -8.165535285621972e-09, 3.712815292961382e-09, -1.4570715136993783e-09,
            5.142136065173056e-10, -5.710969225291611e-11, -8.473767764178849e-11,
            3.4869555396260756e-11,
        )),
    ),
}
# fmt: on


def erfinv(x: Reg) -> Reg:
    """The y with erf y = x: ±inf at ±1, nan beyond."""
    k = x.k
    near, *far = _PIECES[x.dtype]
    # Rounded once, so that the digits of 1 - x² near 1 are those of x.
    w = -log(exact_fma(-x, x, 1.0))
    root = k.sqrt(w)
    p = near.at(w)
    for piece in far:
        p = k.select(root > piece.middle - piece.reach, piece.at(root), p)
    y = x * p
    y = k.select(k.compare("eq", x, 1.0), math.inf, y)
    return k.select(k.compare("eq", x, -1.0), -math.inf, y)
