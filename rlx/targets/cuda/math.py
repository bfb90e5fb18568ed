"""Math functions on NVIDIA GPUs.

Elementary functions are the polynomials that every target has. What is left for MLIR's conversion
are operations that the hardware has, but it writes them as calls of libdevice (``__nv_sqrtf``),
whose signatures are those of LLVM's intrinsics. So the intrinsic takes the call's place, and
nothing is linked. All of them round as IEEE 754 says; none is an approximation.
"""

from __future__ import annotations

import re

__all__ = ["INTRINSICS", "with_intrinsics"]

INTRINSICS: dict[str, str] = {
    "ceil": "ceil",
    "copysign": "copysign",
    "fabs": "fabs",
    "floor": "floor",
    "fma": "fma",
    "rint": "roundeven",
    "sqrt": "sqrt",
    "trunc": "trunc",
}
"""By libdevice's names without the prefix: the intrinsic that NVPTX selects instructions for."""

_CALL = re.compile(r"@__nv_(\w+?)(f?)\(")


def with_intrinsics(text: str) -> str:
    """LLVM IR with the calls of listed libdevice functions as intrinsics. Others stay as they are,
    to be refused by name."""

    def intrinsic(found: re.Match[str]) -> str:
        name, single = found[1], found[2]
        if name not in INTRINSICS:
            return found[0]
        return f"@llvm.{INTRINSICS[name]}.{'f32' if single else 'f64'}("

    return _CALL.sub(intrinsic, text)
