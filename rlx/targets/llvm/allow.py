"""The allow-list of LLVM IR: what it may hold before LLVM sees it.

LLVM's code generators end the process on what they cannot select ("no libcall available for
ftanh", "Cannot select"), and turn some of what they can into calls of libm or compiler-rt, which
an object of ours must not have. So only what is listed here goes in; the rest is refused by name.
The lists hold what the kernels use and what is known to select; add to them with a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rlx.errors import ToolchainError

__all__ = ["check"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INSTRUCTIONS = _words(
    """
    ret br switch unreachable phi select call freeze
    add sub mul sdiv udiv srem urem shl lshr ashr and or xor icmp
    fadd fsub fmul fdiv fneg fcmp
    load store alloca getelementptr fence
    extractelement insertelement shufflevector extractvalue insertvalue
    trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp bitcast ptrtoint inttoptr
    """
)

# No exp, log, sin, pow and the like: those become calls. ``frem`` likewise.
_GENERIC = _words(
    """
    fma fmuladd sqrt fabs copysign floor ceil trunc rint nearbyint roundeven round
    maximum minimum maxnum minnum maximumnum minimumnum is.fpclass fptosi.sat fptoui.sat
    smax smin umax umin abs ctpop ctlz cttz bswap bitreverse fshl fshr
    sadd.sat uadd.sat ssub.sat usub.sat sshl.sat ushl.sat
    vector.reduce.add vector.reduce.mul vector.reduce.and vector.reduce.or vector.reduce.xor
    vector.reduce.smax vector.reduce.smin vector.reduce.umax vector.reduce.umin
    vector.reduce.fadd vector.reduce.fmul vector.reduce.fmax vector.reduce.fmin
    vector.reduce.fmaximum vector.reduce.fminimum
    vector.insert vector.extract vector.interleave2 vector.deinterleave2
    masked.load masked.store masked.gather masked.scatter
    prefetch assume lifetime.start lifetime.end
    """
)

_X86 = _words(
    """
    x86.avx512.vpdpbusd.128 x86.avx512.vpdpbusd.256 x86.avx512.vpdpbusd.512
    x86.avx512.vpdpbusds.128 x86.avx512.vpdpbusds.256 x86.avx512.vpdpbusds.512
    x86.avx2.pmadd.ub.sw x86.avx2.pmadd.wd x86.avx512.pmaddubs.w.512 x86.avx512.pmaddw.d.512
    x86.avx512.mask.scalef.ps.512 x86.avx512.mask.scalef.pd.512
    x86.avx512.permvar.si.512 x86.avx512.fpclass.ps.512
    x86.avx512bf16.cvtneps2bf16.512 x86.avx512bf16.cvtne2ps2bf16.512
    x86.avx512bf16.dpbf16ps.128 x86.avx512bf16.dpbf16ps.256 x86.avx512bf16.dpbf16ps.512
    x86.tilezero.internal x86.tileloadd64.internal x86.tilestored64.internal
    x86.tdpbf16ps.internal x86.tdpbssd.internal x86.tdpbsud.internal x86.tdpbusd.internal
    x86.tdpbuud.internal
    """
)
_AARCH64 = _words(
    """
    aarch64.neon.sdot aarch64.neon.udot aarch64.neon.usdot aarch64.neon.bfdot
    aarch64.neon.smmla aarch64.neon.ummla aarch64.neon.usmmla aarch64.neon.bfmmla
    aarch64.sve.sdot aarch64.sve.udot aarch64.sve.usdot aarch64.sve.bfdot
    aarch64.sve.smmla aarch64.sve.ummla aarch64.sve.usmmla aarch64.sve.bfmmla
    aarch64.sve.fcvt.bf16f32.v2 aarch64.sve.fcvtnt.bf16f32.v2
    """
)
_NVPTX = _words(
    """
    nvvm.barrier0 nvvm.barrier.cta.sync.aligned.all nvvm.barrier.cta.sync.all
    nvvm.ex2.approx.f nvvm.ex2.approx.ftz.f nvvm.lg2.approx.f nvvm.lg2.approx.ftz.f
    nvvm.rsqrt.approx.f
    nvvm.fma.rn.f nvvm.fma.rn.d nvvm.sqrt.rn.f nvvm.sqrt.rn.d nvvm.div.rn.f nvvm.div.rn.d
    nvvm.membar.cta nvvm.membar.gl nvvm.membar.sys exp2
    nvvm.shfl.sync.bfly.i32 nvvm.shfl.sync.bfly.f32 nvvm.shfl.sync.down.i32
    nvvm.shfl.sync.down.f32 nvvm.shfl.sync.idx.i32 nvvm.shfl.sync.idx.f32 nvvm.shfl.sync.up.i32
    nvvm.shfl.sync.up.f32 nvvm.cp.async.commit.group nvvm.cp.async.wait.group
    nvvm.cp.async.wait.all
    """
)
_AMDGCN = _words(
    """
    amdgcn.workitem.id amdgcn.workgroup.id amdgcn.s.barrier amdgcn.implicitarg.ptr
    amdgcn.s.barrier.signal amdgcn.s.barrier.wait
    amdgcn.dispatch.ptr amdgcn.ds.bpermute amdgcn.ds.swizzle amdgcn.mbcnt.lo amdgcn.mbcnt.hi
    amdgcn.readfirstlane amdgcn.readlane amdgcn.update.dpp amdgcn.rcp amdgcn.rsq amdgcn.fdiv.fast
    amdgcn.exp2 amdgcn.log amdgcn.sqrt exp2 log2
    """
)
_INTRINSICS: dict[str, frozenset[str]] = {
    "x86-64": _GENERIC | _X86,
    "aarch64": _GENERIC | _AARCH64,
    "riscv64": _GENERIC,
    "wasm32": _GENERIC,
    "arm": _GENERIC,
    "nvptx64": _GENERIC | _NVPTX,
    "amdgcn": _GENERIC | _AMDGCN,
}
# Families of intrinsics with too many members to list, all of one kind.
_PREFIXES: dict[str, tuple[str, ...]] = {
    "nvptx64": ("nvvm.read.ptx.sreg.", "nvvm.mma.", "nvvm.wmma.", "nvvm.ldmatrix.",
                "nvvm.cp.async.ca.shared.global.", "nvvm.cp.async.cg.shared.global."),
    "amdgcn": ("amdgcn.mfma.", "amdgcn.wmma.", "amdgcn.workitem.id.", "amdgcn.workgroup.id."),
}  # fmt: skip

_ATTRIBUTES = _words(
    """
    alwaysinline noinline nounwind willreturn mustprogress nofree nosync norecurse nocallback
    nocreateundeforpoison speculatable convergent memory noalias nocapture captures nonnull
    noundef readonly readnone writeonly align dereferenceable zeroext signext immarg range
    argmemonly inaccessiblememonly cold hot optnone returned noredzone vscale_range
    "no-builtins" "no-jump-tables" "target-cpu" "target-features" "uniform-work-group-size"
    "amdgpu-flat-work-group-size" "amdgpu-waves-per-eu" "amdgpu-no-dispatch-ptr"
    "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-implicitarg-ptr"
    "nvvm.maxntid" "nvvm.reqntid"
    "nvvm.minctasm" "nvvm.maxnreg" "nvvm.annotations_transplanted" "frame-pointer"
    """
)

_SUFFIX = re.compile(r"(?:\.(?:nxv\d+|v\d+)?(?:[if]\d+|bf16|p\d+|x86amx|isVoid))+$")
# Lines are found by the newline before them: a search for fixed characters is fast, where ``^`` is
# tried at every character of the text.
_OPCODE = re.compile(r"\n  (?:%\S+ = )?(?:(?:tail|musttail|notail) )?([a-z]\w*)")
_DECLARED = re.compile(r"\ndeclare [^@\n]*@(\"[^\"]*\"|[\w.$-]+)")
_GROUP = re.compile(r"\nattributes #\d+ = \{(.*)\}")
_WORD = re.compile(r'("[^"]+")(?:="[^"]*")?|([a-z_]\w*)(?:\((?:[^()]|\([^()]*\))*\))?')
_FOREIGN_TYPES = ("x86_fp80", "fp128", "ppc_fp128", "i128")


def check(text: str, arch: str, linked: Callable[[str], bool] | None = None) -> None:
    """Refuse LLVM IR that holds what ``arch`` (as in ``Machine.arch``) is not known to take.
    ``linked`` says of which functions a definition will be added.

    Raises ToolchainError with every refused instruction, intrinsic, function, attribute and type.
    """
    if arch not in _INTRINSICS:
        raise ToolchainError(f"no allow-list for the architecture {arch!r}; add one to allow.py")
    text = f"\n{text}"
    refused = [
        *_named("instruction", sorted(set(_OPCODE.findall(text)) - _INSTRUCTIONS)),
        *_named("function", _outside(text, arch, linked)),
        *_named("attribute", sorted(set(_attributes(text)) - _ATTRIBUTES)),
        *_named("type", sorted(_foreign_types(text))),
    ]
    if refused:
        raise ToolchainError(
            f"code for {arch} would use {', '.join(refused)}; RLX does not send these to LLVM, "
            "which may end the process or call a library on them. This is a defect of a kernel: "
            "write it with listed operations, or list and test the operation in "
            "rlx/targets/llvm/allow.py"
        )


def _named(kind: str, names: Iterable[str]) -> list[str]:
    return [f"the {kind} {name}" for name in names]


def _outside(text: str, arch: str, linked: Callable[[str], bool] | None) -> list[str]:
    """The functions that are declared alone, and neither listed nor linked."""
    names = (n for n in _DECLARED.findall(text) if not _known(n, arch))
    return sorted(n for n in names if linked is None or not linked(n))


def _known(name: str, arch: str) -> bool:
    """Whether ``llvm.fma.v8f32`` is listed, under its name without the types it is for."""
    if not name.startswith("llvm."):
        return False
    short = name[5:]
    listed = _INTRINSICS[arch]
    if short in listed or short.startswith(_PREFIXES.get(arch, ())):
        return True
    return _SUFFIX.sub("", short) in listed


def _foreign_types(text: str) -> list[str]:
    return [t for t in _FOREIGN_TYPES if t in text and re.search(rf"\b{t}\b", text)]


def _attributes(text: str) -> list[str]:
    return [quoted or word for body in _GROUP.findall(text) for quoted, word in _WORD.findall(body)]
