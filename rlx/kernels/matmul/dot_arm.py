"""The instructions of AArch64 that multiply groups, as ``dot.py`` has them: NEON's on vectors of
128 bits, and SVE's of the same names, where a target has it, on vectors of any length up to its
registers'.
"""

from __future__ import annotations

from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Reg, mlir_type
from rlx.types import DType, bf16, bool_, i8, u8, u32

__all__ = ["as_groups", "matrix_name", "multiplied", "paired"]


def multiplied(k: Kernel, name: str, x: Reg, y: Reg, total: Reg) -> Reg:
    """``total`` plus the products that the instruction ``name`` makes of two operands. Those of
    matrices have 2 x 2 numbers of it in each 128 bits, and two rows of x and of y."""
    is_float = total.dtype.is_float
    if "sve" not in k.target.has:
        kind, args = as_groups(k, x, y, total)
        types = "" if name == "bfmmla" else ".v4f32.v8bf16" if is_float else ".v4i32.v16i8"
        text = _call(f"neon.{name}{types}", [total.name, *args], total.mlir, kind)
        return k.op(text, total.dtype, total.lanes)
    groups = "vector<[8]xbf16>" if is_float else "vector<[16]xi8>"
    types = ".nxv4f32.nxv8bf16" if name == "bfmmla" else "" if is_float else ".nxv4i32"
    args = [_whole(k, total), *(_whole(k, v, groups) for v in (x, y))]
    sums = _whole_type(total)
    text = _call(f"sve.{name.replace('bfm', 'fm')}{types}", args, sums, groups)
    return _part(k, k.op(text, total.dtype, 0).name, sums, total)


def _call(name: str, args: list[str], sums: str, groups: str) -> str:
    call = f'llvm.call_intrinsic "llvm.aarch64.{name}"({", ".join(args)})'
    return f"{call} : ({sums}, {groups}, {groups}) -> {sums}"


def as_groups(k: Kernel, x: Reg, y: Reg, total: Reg) -> tuple[str, list[str]]:
    """The type of operands whose groups are summed in ``total``, and two of it by name."""
    bits = f"{2 * total.lanes}xbf16" if total.dtype.is_float else f"{4 * total.lanes}xi8"
    kind, lanes = f"vector<{bits}>", total.lanes
    made = (k.op(f"vector.bitcast {v.name} : {v.mlir} to {kind}", u32, lanes) for v in (x, y))
    return kind, [v.name for v in made]


def _whole_type(x: Reg) -> str:
    """The type of a register of SVE with lanes as those of ``x``, which in LLVM's words is as long
    as the machine has it: its instructions of SVE take no others."""
    return f"vector<[4]x{mlir_type(x.dtype, 0)}>"


def _whole(k: Kernel, x: Reg, kind: str = "") -> str:
    """A vector as a register of SVE, of the type ``kind`` if that is not of its lanes. It moves
    nothing. Cast before, as a vector of bf16 of a fixed length, it can end LLVM 22's code
    generator."""
    own = _whole_type(x)
    rest = k.op(f"llvm.mlir.poison : {own}", x.dtype, 0).name
    text = f"vector.scalable.insert {x.name}, {rest}[0] : {x.mlir} into {own}"
    found = k.op(text, x.dtype, 0).name
    return k.op(f"vector.bitcast {found} : {own} to {kind}", x.dtype, 0).name if kind else found


def _part(k: Kernel, name: str, kind: str, like: Reg) -> Reg:
    """What a register of SVE holds, as a vector like another."""
    text = f"vector.scalable.extract {name}[0] : {like.mlir} from {kind}"
    return k.op(text, like.dtype, like.lanes)


def paired(k: Kernel, first: Reg, second: Reg) -> Reg:
    """Pairs of vectors of f32, each rounded to bf16, by BFCVT, which writes the first of each two
    bf16 of a register of SVE, and BFCVTNT, which writes the second."""
    kind, every, floats = "vector<[8]xbf16>", "vector<[4]xi1>", _whole_type(first)
    mask = k.op(f"arith.constant dense<true> : {every}", bool_, 0).name
    out = k.op(f"llvm.mlir.poison : {kind}", u32, 0).name
    for name, x in (("fcvt", first), ("fcvtnt", second)):
        args = f"{out}, {mask}, {_whole(k, x)}"
        call = f'llvm.call_intrinsic "llvm.aarch64.sve.{name}.bf16f32.v2"({args})'
        out = k.op(f"{call} : ({kind}, {every}, {floats}) -> {kind}", u32, 0).name
    like = k.bitcast(first, u32)
    own = _whole_type(like)
    return _part(k, k.op(f"vector.bitcast {out} : {kind} to {own}", u32, 0).name, own, like)


def matrix_name(target: KernelTarget, a: DType, b: DType) -> str | None:
    """The instruction that multiplies two rows of A, of two groups each, by two columns of B; None
    without one. Of integers of two kinds it takes the unsigned ones first."""
    if a is b is bf16 and "bf16" in target.has:
        return "bfmmla"
    if "i8mm" not in target.has or not {a, b} <= {i8, u8}:
        return None
    kind = "us" if a is not b else "s" if a is i8 else "u"
    return f"{kind}mmla"
