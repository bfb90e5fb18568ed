"""From kernel text to one object for a CPU.

A kernel's function becomes ``NAME_body``, with one argument a buffer and a size, and functions that
it calls (``Kernel.outline``) are beside it. The exported symbol ``NAME`` is the frame by which the
runtime calls every kernel alike::

    void NAME(int64_t begin, int64_t end, void *const *buffers, const int64_t *sizes, void *scratch)
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal

from rlx import _mlir
from rlx.codegen.builder import KernelText
from rlx.codegen.function import Function
from rlx.targets.base import check_kernels
from rlx.targets.cpu.features import Features
from rlx.targets.llvm import machine
from rlx.targets.llvm.bridge import to_llvm22
from rlx.targets.llvm.half import with_conversions
from rlx.targets.llvm.join import joined

__all__ = ["compile_kernels", "framed", "to_assembly", "to_llvm"]

# The order matters: functions first, so that memrefs become bare pointers. The canonicalizer then
# folds the descriptors away that each access unpacks, and halves the text that LLVM parses.
PIPELINE = (
    "builtin.module(cse,convert-scf-to-cf,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-to-llvm,"
    "canonicalize{region-simplify=disabled},reconcile-unrealized-casts)"
)

_LINES = "builtin.module(ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly})"

MODULES_PER_CONTEXT = 256
"""How many modules share an MLIR context before a new one is made. A context takes as long to make
as many a kernel to lower, but keeps all types, attributes and locations that it has ever seen."""

# No calls of a C library, not even of memcpy, no tables of addresses to relocate, and nothing below
# the stack pointer, where Windows may write.
_FUNCTION_ATTRIBUTES = 'nounwind noredzone "no-builtins" "no-jump-tables"="true"'


def compile_kernels(kernels: Sequence[KernelText], features: Features, *, opt: int = 2) -> bytes:
    """One ELF object that exports a symbol a kernel, in the C ABI above, and needs none.

    ``opt`` is the level of LLVM's code generator. Equal kernels give equal bytes. Raises IRError
    or PassError for text that MLIR refuses, ToolchainError for what LLVM cannot emit.
    """
    shared = {f.name: f for k in kernels for f in k.shared}
    parts = [_part(f, features, opt) for f in shared.values()]
    text = _with_conversions(
        framed(kernels, 64, attributes=features.function_attributes, apart=True), features
    )
    own = machine.emit_object(text, features.machine, opt=opt, linked=shared.__contains__)
    return joined(own, [part.result() for part in parts]) if parts else own


_parts: dict[tuple[str, Features, int, int], Future[bytes]] = {}


def _part(function: Function, features: Features, opt: int) -> Future[bytes]:
    """The object of a shared function. It is made here, if it is the first in this process to ask
    for it; another thread may still be at it."""
    key, mine = (function.name, features, opt, os.getpid()), Future[bytes]()
    if (found := _parts.setdefault(key, mine)) is not mine:
        return found
    try:
        local = f"{_lowered(function.text, 64)}{_attributes(features.function_attributes)}"
        text = local.replace(
            f"define internal void @{function.name}(", f"define void @{function.name}("
        )
        mine.set_result(
            machine.emit_object(_with_conversions(text, features), features.machine, opt=opt)
        )
    except BaseException as error:
        del _parts[key]
        mine.set_exception(error)
        raise
    return mine


def to_assembly(kernels: Sequence[KernelText], features: Features, *, opt: int = 2) -> str:
    """The assembly of what ``compile_kernels`` emits, with shared functions beside it."""
    return machine.emit_assembly(to_llvm(kernels, features), features.machine, opt=opt)


def to_llvm(kernels: Sequence[KernelText], features: Features, *, lines: bool = False) -> str:
    """LLVM 22 text of the kernels' bodies and frames.

    With ``lines`` an instruction says by ``!dbg`` which line of the text it came from, counted from
    the kernel's first.
    """
    text = framed(kernels, 64, lines, features.function_attributes)
    return _with_conversions(text, features)


def _with_conversions(text: str, features: Features) -> str:
    return with_conversions(text, boxed=True, group="1000") if features.arch == "riscv64" else text


def framed(
    kernels: Sequence[KernelText],
    index_bits: Literal[32, 64],
    lines: bool = False,
    attributes: str = "",
    apart: bool = False,
) -> str:
    """LLVM 22 text of kernels whose indices and sizes have so many bits, for any machine. The
    attributes of its functions, those given among them, are number 1000. Functions that kernels
    share are defined once, or declared, if they are ``apart``."""
    check_kernels(kernels, "cpu")
    bodies = "\n".join(_as_body(k) for k in kernels)
    for f in {f.name: f for k in kernels for f in k.shared}.values():
        before, *behind = bodies.split(f.text)
        bodies = "".join([before, f.declaration if apart else f.text, *behind])
    text = _lowered(bodies, index_bits, lines)
    frames = "\n".join(_frame(k, index_bits) for k in kernels)
    return f"{text}\n{frames}{_attributes(attributes)}"


def _lowered(bodies: str, index_bits: Literal[32, 64], lines: bool = False) -> str:
    """LLVM 22 text of functions, all of them local to the object."""
    # The module's own head stands before the first line, so that kernel lines count from 1.
    head = "" if index_bits == 64 else f" attributes {{{_INDEX_OF_32}}}"
    made = _lowering[index_bits].translate(f"module{head} {{{bodies}\n}}", lines)
    # It says how wide an index is; the layout that counts is the machine's.
    return _local(to_llvm22(_LAYOUT.sub("", made)))


def _attributes(more: str) -> str:
    given = " ".join(filter(None, (_FUNCTION_ATTRIBUTES, more)))
    return f"\nattributes #1000 = {{ {given} }}\n"


class _Lowering:
    """MLIR from kernel text to LLVM IR, one module at a time, in a context that many share."""

    def __init__(self, pipeline: str) -> None:
        self._text = pipeline
        self._lock = threading.Lock()
        self._modules_left = 0

    def translate(self, text: str, lines: bool) -> str:
        with self._lock:
            if not self._modules_left:
                self._context = _mlir.context()
                self._pipeline = _mlir.Pipeline(self._text, self._context)
                self._with_lines = _mlir.Pipeline(_LINES, self._context)
                self._modules_left = MODULES_PER_CONTEXT
            self._modules_left -= 1
            pipelines = [self._pipeline, self._with_lines] if lines else [self._pipeline]
            return _mlir.text_to_llvm_ir(text, pipelines, self._context)


_lowering = {
    64: _Lowering(PIPELINE),
    32: _Lowering(PIPELINE.replace("convert-to-llvm,", "convert-to-llvm{dynamic=true},")),
}
"""By the bits of an index: the conversion to LLVM reads others than 64 from the module."""

_INDEX_OF_32 = "dlti.dl_spec = #dlti.dl_spec<index = 32 : i32>"
# A search for fixed characters is fast, where ``^`` is tried at every character of the text.
_LAYOUT = re.compile(r"\ntarget datalayout.*")


def _as_body(k: KernelText) -> str:
    return k.text.replace(f"func.func @{k.name}(", f"func.func @{k.name}_body(", 1)


_HEAD = re.compile(r"\ndefine (?:\w+ )?void( @[^(]+\(.*?\))( !dbg \S+)? \{(?=\n)")


def _local(text: str) -> str:
    """Make all functions local to the object and give them our attributes."""
    return _HEAD.sub(lambda head: f"\ndefine internal void{head[1]} #1000{head[2] or ''} {{", text)


def _frame(k: KernelText, bits: Literal[32, 64]) -> str:
    """The exported function: load the pointers and sizes, and call the body with them."""
    word, align = f"i{bits}", bits // 8
    lines, arguments = [], [f"{word} %begin", f"{word} %end"]
    for kind, table, count in (
        ("ptr", "%buffers", len(k.buffers)),
        (word, "%sizes", len(k.sizes)),
    ):
        for n in range(count):
            at, value = f"{table}.at{n}", f"{table}.{n}"
            lines.append(f"  {at} = getelementptr {word}, ptr {table}, i64 {n}")
            lines.append(f"  {value} = load {kind}, ptr {at}, align {align}")
            arguments.append(f"{kind} {value}")
    if k.scratch:
        arguments.append("ptr %scratch")
    return "\n".join(
        [
            f"define void @{k.name}({word} %begin, {word} %end, ptr %buffers, ptr %sizes,"
            " ptr %scratch) #1000 {",
            *lines,
            f"  call void @{k.name}_body({', '.join(arguments)})",
            "  ret void",
            "}",
        ]
    )
