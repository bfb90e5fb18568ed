"""Math functions on GPUs by way of LLVM.

Elementary functions are the polynomials that every target has. What is left for MLIR's
conversions are operations that the hardware has, but they write them as calls of the makers'
libraries, NVIDIA's libdevice (``__nv_sqrtf``) and AMD's ocml (``__ocml_sqrt_f32``), whose
signatures are those of LLVM's intrinsics. So the intrinsic takes the call's place, and nothing is
linked. All of them round as IEEE 754 says; none is an approximation.
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
"""By the libraries' names without prefix and suffix: the intrinsic that has instructions."""

_CALL = re.compile(r"@__(?:nv_(\w+?)(f?)|ocml_(\w+)_f(32|64))\(")


def with_intrinsics(text: str) -> str:
    """LLVM IR with the calls of listed library functions as intrinsics. Others stay as they are, to
    be refused by name."""

    def intrinsic(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name not in INTRINSICS:
            return found[0]
        single = found[2] == "f" if found[1] else found[4] == "32"
        return f"@llvm.{INTRINSICS[name]}.{'f32' if single else 'f64'}("

    return _CALL.sub(intrinsic, text)
