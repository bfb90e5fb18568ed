"""The array API standard (2024.12) over Values and arrays.

    from rlx import xp

    xp.sum(xp.exp(x), axis=0)

On Values, in a function that is traced or a graph that is built, its functions make ops. On arrays
they run at once, each as a graph of its own that is compiled for these types and shapes and kept.
Arrays are NumPy's, element types NumPy's or RLX's. What the standard leaves open is as in NumPy;
functions whose result has a shape that depends on the elements are refused. NumPy's own functions
come here too where they are given Values: ufuncs as ``np.exp(value)``, and those of
``rlx.xp.numpy_functions`` as ``np.where(mask, x, y)``.
``xp.linalg`` and ``xp.fft`` are the standard's extensions; decompositions take real matrices.
"""

from __future__ import annotations

import math

import numpy as np

from rlx.xp import creation, elementwise, fft, linalg, manipulation, statistics
from rlx.xp.creation import *  # noqa: F403
from rlx.xp.elementwise import *  # noqa: F403
from rlx.xp.info import __array_namespace_info__
from rlx.xp.manipulation import *  # noqa: F403
from rlx.xp.statistics import *  # noqa: F403

__array_api_version__ = "2024.12"

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
bool, float32, float64 = (np.dtype(t) for t in ("bool", "float32", "float64"))
complex64, complex128 = (np.dtype(t) for t in ("complex64", "complex128"))

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "bool", "complex64", "complex128", "e",
    "fft", "float32", "float64", "inf", "int8", "int16", "int32", "int64", "linalg", "nan",
    "newaxis", "pi", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
__all__ += creation.__all__
__all__ += elementwise.__all__
__all__ += manipulation.__all__
__all__ += statistics.__all__
