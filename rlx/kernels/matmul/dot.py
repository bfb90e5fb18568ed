"""Instructions that multiply groups of small numbers and add them up: a lane of 32 bits of each
operand holds a group, and the sum goes to one lane of 32 bits.

- "bf16": pairs of bf16 into f32 (vdpbf16ps, bfdot). Subnormal operands count as 0, as do subnormal
  results, and the two products of a pair are added with roundings of the machine's own, each to
  nearest.
- "i8": fours of 8-bit integers into i32, one operand unsigned and one signed (vpdpbusd, usdot), or
  both alike (sdot, udot). Sums wrap and never saturate.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import INDEX, Buffer, Reg, mlir_type
from rlx.kernels.matmul import dot_arm
from rlx.types import DType, bf16, f32, i8, i32, i64, u8, u32

__all__ = [
    "bytes_less", "dot", "dot_alike", "fours", "group_of", "joined", "paired", "parts",
    "store_words", "takes_alike", "word", "words",
]  # fmt: skip

_LANES, _NEON = 16, 4
_BF16 = "llvm.x86.avx512bf16.dpbf16ps.512"
_ROUND = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
_I8 = "llvm.x86.avx512.vpdpbusd.512"
_HAVE_DOTS = frozenset(["dotprod", "i8mm", "bf16"])
"""Extras of AArch64 by which products of groups are made."""
_PAIRS = {16: "llvm.x86.avx512.pmaddubs.w.512", 8: "llvm.x86.avx2.pmadd.ub.sw"}
_JOIN = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}


def group_of(target: KernelTarget, a: DType, b: DType) -> int:
    """How many elements a group of two element types has on a target; 1 if there is no instruction
    for them."""
    alike = a is b and takes_alike(target)
    if a in (i8, u8) and b in (i8, u8) and (alike or "i8mm" in target.has):
        return 4
    if a is bf16 and b is bf16 and "bf16" in target.has:
        return 2
    if target.vector_bytes != 4 * _LANES:
        return 1
    if a is bf16 and b is bf16 and "avx512bf16" in target.has:
        return 2
    if a in (i8, u8) and b in (i8, u8) and "avx512vnni" in target.has:
        return 4
    return 1


def takes_alike(target: KernelTarget) -> bool:
    """Whether there is an instruction for fours of bytes that are both signed, or both unsigned."""
    return "dotprod" in target.has


def words(k: Kernel, b: Buffer, at: Reg, lanes: int) -> Reg:
    """``lanes`` consecutive groups from an element offset on."""
    kind = _kind(b, lanes)
    raw = k.op(f"vector.load {b.name}[{at.name}] : {b.mlir}, {kind}", u32, lanes)
    return k.op(f"vector.bitcast {raw.name} : {kind} to {mlir_type(u32, lanes)}", u32, lanes)


def word(k: Kernel, b: Buffer, at: Reg) -> Reg:
    """One group, as a scalar."""
    if not _HAVE_DOTS & k.target.has:
        return k.extract(words(k, b, at, 1), 0)
    # A vector of four bytes is one of four halves to LLVM for AArch64, with moves between them.
    kind = f"memref.extract_aligned_pointer_as_index {b.name} : {b.mlir} -> index"
    address = k.op(kind, INDEX, 0) + at * b.dtype.bytes
    where = k.cast(address, i64)
    pointer = k.fresh()
    k.line(f"{pointer} = llvm.inttoptr {where.name} : i64 to !llvm.ptr")
    return k.op(f"llvm.load {pointer} {{alignment = 1 : i64}} : !llvm.ptr -> i32", u32, 0)


def joined(k: Kernel, elements: Sequence[Reg], dt: DType) -> Reg:
    """The groups of vectors of elements, first element lowest; f32 becomes the bf16 next to it."""
    out: Reg | None = None
    for n, x in enumerate(elements):
        if dt is bf16:
            bits = k.bitcast(k.round_to(x, bf16), u32)
            part = bits & 0xFFFF0000 if n else bits >> 16
        else:
            part = (k.cast(x, u32) & 0xFF) << 8 * n
        out = part if out is None else out | part
    assert out is not None
    return out


def paired(k: Kernel, first: Reg, second: Reg) -> Reg:
    """Pairs of vectors of f32, each rounded to bf16; subnormal numbers may count as 0."""
    if "sve" in k.target.has:
        return dot_arm.paired(k, first, second)
    kind = f"vector<{2 * _LANES}xbf16>"
    rounded = k.op(
        f'llvm.call_intrinsic "{_ROUND}"({second.name}, {first.name}) :'
        f" ({second.mlir}, {first.mlir}) -> {kind}",
        u32,
        _LANES,
    )
    order = [n // 2 + n % 2 * _LANES for n in range(2 * _LANES)]
    text = f"vector.shuffle {rounded.name}, {rounded.name} {order} : {kind}, {kind}"
    mixed = k.op(text, u32, _LANES)
    return k.op(f"vector.bitcast {mixed.name} : {kind} to {mlir_type(u32, _LANES)}", u32, _LANES)


def parts(k: Kernel, x: Reg) -> tuple[Reg, Reg]:
    """The numbers of vectors of pairs of bf16, as f32."""
    return k.bitcast(x << 16, f32), k.bitcast(x & 0xFFFF0000, f32)


def bytes_less(k: Kernel, x: Reg, number: int) -> Reg:
    """Groups of bytes, from each of which a number is taken; it wraps."""
    if not number:
        return x
    kind = f"vector<{4 * x.lanes}xi8>"
    raw = k.op(f"vector.bitcast {x.name} : {x.mlir} to {kind}", u32, x.lanes)
    signed = number - 256 if number > 127 else number
    less = k.op(f"arith.constant dense<{signed}> : {kind}", u32, x.lanes)
    found = k.op(f"arith.subi {raw.name}, {less.name} : {kind}", u32, x.lanes)
    return k.op(f"vector.bitcast {found.name} : {kind} to {x.mlir}", u32, x.lanes)


def store_words(k: Kernel, x: Reg, b: Buffer, at: Reg) -> None:
    """Write groups from an element offset on."""
    kind = _kind(b, x.lanes)
    raw = k.op(f"vector.bitcast {x.name} : {x.mlir} to {kind}", x.dtype, x.lanes)
    k.line(f"vector.store {raw.name}, {b.name}[{at.name}] : {b.mlir}, {kind}")


def _kind(b: Buffer, lanes: int) -> str:
    element = "i16" if b.dtype is bf16 else "i8"
    return f"vector<{lanes * (4 // b.dtype.bytes)}x{element}>"


def dot(k: Kernel, x: Reg, y: Reg, total: Reg) -> Reg:
    """``total`` plus the products of two operands, group by group; by the type of ``total``, f32
    for "bf16" and i32 for "i8". Of integers x is the unsigned one and y the signed one."""
    unit, ours, others = (
        ("bf16", "bfdot", _BF16) if total.dtype.is_float else ("i8mm", "usdot", _I8)
    )
    if unit in k.target.has:
        return dot_arm.multiplied(k, ours, x, y, total)
    return _call(k, others, x, y, total)


def dot_alike(k: Kernel, x: Reg, y: Reg, total: Reg, dt: DType) -> Reg:
    """``dot`` of bytes that are both of the type ``dt``."""
    return dot_arm.multiplied(k, "sdot" if dt is i8 else "udot", x, y, total)


def _call(k: Kernel, name: str, x: Reg, y: Reg, total: Reg) -> Reg:
    kind, parts = dot_arm.as_groups(k, x, y, total)
    args = ", ".join([total.name, *parts])
    return k.op(
        f'llvm.call_intrinsic "{name}"({args}) : ({total.mlir}, {kind}, {kind}) -> {total.mlir}',
        total.dtype,
        total.lanes,
    )


def fours(k: Kernel, codes: Reg, x: Reg, total: Reg, bits: int) -> Reg:
    """``total`` plus the products of fours of codes, unsigned and of so many bits, and signed bytes
    of -127 to 127; exact on every target."""
    has, lanes = k.target.has, total.lanes
    arm = "sve" in has or lanes == _NEON
    if ("avx512vnni" in has and lanes == _LANES) or ("i8mm" in has and arm):
        return dot(k, codes, x, total)
    if takes_alike(k.target) and arm:
        # Codes of 7 bits are signed bytes too; the eighth counts by itself.
        if bits == 8:
            ones = dot_alike(k, codes >> 7 & 0x01010101, x, k.const(0, total.dtype, lanes), i8)
            codes, total = codes & 0x7F7F7F7F, total + (ones << 7)
        return dot_alike(k, codes, x, total, i8)
    if ("avx512bw" in has and lanes == _LANES) or ("avx2" in has and lanes == _LANES // 2):
        if bits < 8:
            return total + _by_pairs(k, codes, x)
        # Two products of 8 bits would saturate: the halves of the codes by themselves.
        high = _by_pairs(k, codes >> 4 & 0x0F0F0F0F, x) << 4
        return total + _by_pairs(k, codes & 0x0F0F0F0F, x) + high
    for byte in range(4):
        code = k.bitcast(codes >> 8 * byte & 255, i32)
        total = total + code * (k.bitcast(x << (24 - 8 * byte), i32) >> 24)
    return total


def _by_pairs(k: Kernel, codes: Reg, x: Reg) -> Reg:
    """Sums of the products of fours: of pairs in 16 bits, which codes of 7 bits do not overflow."""
    lanes = codes.lanes
    raw, words = f"vector<{4 * lanes}xi8>", f"vector<{2 * lanes}xi16>"
    parts = [k.op(f"vector.bitcast {v.name} : {v.mlir} to {raw}", u32, lanes) for v in (codes, x)]
    names = ", ".join(p.name for p in parts)
    call = f'llvm.call_intrinsic "{_PAIRS[lanes]}"({names}) : ({raw}, {raw}) -> {words}'
    pairs = k.op(call, u32, lanes)
    ones = k.op(f"arith.constant dense<1> : {words}", u32, lanes)
    call = f'llvm.call_intrinsic "{_JOIN[lanes]}"({pairs.name}, {ones.name}) :'
    return k.op(f"{call} ({words}, {words}) -> {mlir_type(i32, lanes)}", i32, lanes)
