"""Rounding of f32 to bf16: on the bits, and where the CPU has it by an instruction.

The instruction takes subnormal numbers for 0. They are rare, so whether a register has one is asked
first, and the bits are rounded then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.codegen.reg import Reg
from rlx.types import bool_, u16, u32

if TYPE_CHECKING:
    from rlx.codegen.builder import Kernel, KernelTarget

__all__ = ["rounded_to_bf16", "rounds_fast"]

_LANES = 16
_SUBNORMAL = 0x20


def rounds_fast(target: KernelTarget) -> bool:
    """Whether a target rounds a register by an instruction."""
    return {"avx512bf16", "avx512dq"} <= target.has


def rounded_to_bf16(k: Kernel, x: Reg) -> Reg:
    """The bits of the bf16 next to each f32, ties to even, nan quiet, as u16."""
    if x.lanes != _LANES or not rounds_fast(k.target):
        return _on_bits(k, x)
    tiny = k.op(f"{_any_subnormal(k, x)} : i{_LANES}", bool_, 0)
    return k.when(tiny, lambda: _on_bits(k, x), lambda: _by_instruction(k, x), [_like(k)])[0]


def _on_bits(k: Kernel, x: Reg) -> Reg:
    # LLVM would call a library function for fptrunc.
    bits = k.bitcast(x, u32)
    even = (bits + 0x7FFF) + ((bits >> 16) & 1)
    quiet = bits | 0x400000
    return k.cast(k.select(k.compare("ne", x, x), quiet, even) >> 16, u16)


def _like(k: Kernel) -> Reg:
    return k.const(0, u16, _LANES)


def _by_instruction(k: Kernel, x: Reg) -> Reg:
    kind = f"vector<{_LANES}xbf16>"
    call = f'llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"({x.name})'
    short = k.op(f"{call} : ({x.mlir}) -> {kind}", u16, _LANES)
    return k.op(f"vector.bitcast {short.name} : {kind} to vector<{_LANES}xi16>", u16, _LANES)


def _any_subnormal(k: Kernel, x: Reg) -> str:
    mask = f"vector<{_LANES}xi1>"
    kind = k.op(f"arith.constant {_SUBNORMAL} : i32", u32, 0).name
    call = f'llvm.call_intrinsic "llvm.x86.avx512.fpclass.ps.512"({x.name}, {kind})'
    found = k.op(f"{call} : ({x.mlir}, i32) -> {mask}", bool_, _LANES)
    bits = k.op(f"vector.bitcast {found.name} : {mask} to vector<1xi{_LANES}>", u16, 1)
    word = k.op(f"vector.extract {bits.name}[0] : i{_LANES} from vector<1xi{_LANES}>", u16, 0)
    return f"arith.cmpi ne, {word.name}, {k.const(0, u16).name}"
