"""Conversions of f16 for machines that have none: what LLVM calls by the names of compiler-rt,
defined in the object itself.

Rounding is to nearest, ties to even, and a nan stays one. The value of a subnormal number is found
by a product with a power of two, and stored by a sum whose last place is f16's least number (after
F. Giesen, "Half to float done quic", 2012).
"""

from __future__ import annotations

__all__ = ["with_conversions"]

_WIDEN = """\
  %size = and i32 %h, 32767
  %shifted = shl i32 %size, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %endless = icmp uge i32 %size, 31744
  %all = or i32 %shifted, 2139095040
  %is.nan = icmp ugt i32 %size, 31744
  %quiet = or i32 %all, 4194304
  %special = select i1 %is.nan, i32 %quiet, i32 %all
  %value = select i1 %endless, i32 %special, i32 %finite
  %sign = and i32 %h, 32768
  %high = shl i32 %sign, 16
  %bits = or i32 %value, %high
  %wide = bitcast i32 %bits to float
"""

_NARROW = """\
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %top = lshr i32 %bits, 16
  %sign = and i32 %top, 32768
  %payload = lshr i32 %size, 13
  %kept = and i32 %payload, 511
  %nan = or i32 %kept, 32256
  %odd = and i32 %payload, 1
  %moved = sub i32 %size, 939520001
  %up = add i32 %moved, %odd
  %normal = lshr i32 %up, 13
  %absolute = bitcast i32 %size to float
  %sum = fadd float %absolute, 5.000000e-01
  %sum.bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum.bits, 1056964608
  %is.subnormal = icmp ult i32 %size, 947912704
  %finite = select i1 %is.subnormal, i32 %subnormal, i32 %normal
  %is.large = icmp uge i32 %size, 1199570944
  %number = select i1 %is.large, i32 31744, i32 %finite
  %is.nan = icmp ugt i32 %size, 2139095040
  %some = select i1 %is.nan, i32 %nan, i32 %number
  %h = or i32 %some, %sign
"""

# Narrowed to f32 first, toward the value that keeps its last bit odd where bits are lost: rounded
# again, that gives what one rounding does (S. Boldo, G. Melquiond, "Emulation of FMA", 2008).
_FROM_F64 = """\
  %near = fptrunc double %d to float
  %back = fpext float %near to double
  %exact = fcmp ueq double %back, %d
  %near.bits = bitcast float %near to i32
  %away.low = call double @llvm.fabs.f64(double %back)
  %size.d = call double @llvm.fabs.f64(double %d)
  %beyond = fcmp ogt double %away.low, %size.d
  %step = zext i1 %beyond to i32
  %toward = sub i32 %near.bits, %step
  %odd.bits = or i32 %toward, 1
  %chosen = select i1 %exact, i32 %near.bits, i32 %odd.bits
  %x = bitcast i32 %chosen to float
"""


def with_conversions(text: str, *, boxed: bool, group: str) -> str:
    """LLVM IR with the functions that its conversions of f16 become. ``boxed`` says that f16 are
    passed as the lower bits of an f32, as RISC-V does, and not as an i32; ``group`` is the number
    of the attributes of functions."""
    if " half" not in text:
        return text
    kind = "float" if boxed else "i32"
    taken = "  %h = bitcast float %b to i32\n" if boxed else ""
    name = "%b" if boxed else "%h"
    result = "  %box = or i32 %h, -65536\n  %out = bitcast i32 %box to float\n" if boxed else ""
    given = "%out" if boxed else "%h"
    fabs = "" if "@llvm.fabs.f64(" in text else "declare double @llvm.fabs.f64(double)\n"
    return (
        f"{text}\n{fabs}"
        f"define internal float @__extendhfsf2({kind} {name}) #{group} {{\n{taken}{_WIDEN}"
        "  ret float %wide\n}\n"
        f"define internal {kind} @__truncsfhf2(float %x) #{group} {{\n{_NARROW}{result}"
        f"  ret {kind} {given}\n}}\n"
        f"define internal {kind} @__truncdfhf2(double %d) #{group} {{\n{_FROM_F64}{_NARROW}{result}"
        f"  ret {kind} {given}\n}}\n"
    )
