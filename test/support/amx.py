"""AMX without AMX: the tile instructions in emitted LLVM text become calls of what they compute.

A tile is a number by which ``Tiles`` keeps it; phis and arguments carry the number. The arithmetic
is that of Intel's Software Developer's Manual: ``tdpbf16ps`` sums the products of even and of odd
elements apart, and adds both to the tile at last; products of bytes wrap in 32 bits.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from rlx.codegen.builder import KernelText
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import Features
from support.jit import Call, host, load

__all__ = ["Tiles", "jit_with_tiles"]

Array = np.ndarray[Any, Any]

_CALL = re.compile(r"@llvm\.x86\.(\w+)\.internal\(")
_I16, _I64, _PTR = ctypes.c_int16, ctypes.c_int64, ctypes.c_void_p
_ROWS, _ROW_BYTES = 16, 64


class Tiles:
    """The tiles that a kernel has made, and a function for each instruction."""

    def __init__(self) -> None:
        self.kept: list[Array] = []
        self.counts: dict[str, int] = {}
        product = (_I64, _I16, _I16, _I16, _I64, _I64, _I64)
        self.functions = {
            "tilezero": self.function(self.zero, _I64, _I16, _I16),
            "tileloadd64": self.function(self.load, _I64, _I16, _I16, _PTR, _I64),
            "tilestored64": self.function(self.store, None, _I16, _I16, _PTR, _I64, _I64),
            "tdpbf16ps": self.function(self.bf16, *product),
        }
        signs = {"ss": (np.int8, np.int8), "su": (np.int8, np.uint8),
                 "us": (np.uint8, np.int8), "uu": (np.uint8, np.uint8)}  # fmt: skip
        for name, types in signs.items():
            self.functions[f"tdpb{name}d"] = self.function(self.bytes_of(*types), *product)

    def function(self, body: Callable[..., Any], *types: Any) -> Any:
        return ctypes.CFUNCTYPE(*types)(body)

    def address(self, name: str) -> int:
        """Where the function of an instruction is."""
        self.counts[name] = self.counts.get(name, 0) + 1
        return int(ctypes.cast(self.functions[name], ctypes.c_void_p).value or 0)

    def keep(self, tile: Array) -> int:
        self.kept.append(tile)
        return len(self.kept) - 1

    def zero(self, rows: int, width: int) -> int:
        assert 0 < rows <= _ROWS and 0 < width <= _ROW_BYTES
        return self.keep(np.zeros((rows, width), np.uint8))

    def load(self, rows: int, width: int, at: int, stride: int) -> int:
        tile = self.zero(rows, width)
        for i in range(rows):
            row = (ctypes.c_uint8 * width).from_address(at + i * stride)
            self.kept[tile][i] = row
        return tile

    def store(self, rows: int, width: int, at: int, stride: int, tile: int) -> None:
        found = self.kept[tile]
        assert found.shape == (rows, width)
        for i in range(rows):
            ctypes.memmove(at + i * stride, found[i].tobytes(), width)

    def operands(self, m: int, n: int, k: int, *tiles: int) -> tuple[Array, Array, Array]:
        """Sums [m, n / 4], and groups [m, k / 4, 4] and [k / 4, n / 4, 4] of bytes."""
        c, a, b = (self.kept[t] for t in tiles)
        assert c.shape == (m, n) and a.shape == (m, k) and b.shape == (k // 4, n)
        return c, a.reshape(m, k // 4, 4), b.reshape(k // 4, n // 4, 4)

    def bf16(self, m: int, n: int, k: int, *tiles: int) -> int:
        c, *given = self.operands(m, n, k, *tiles)
        words = [np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << 16 for x in given]
        a, b = (_flushed(x.view(np.float32)).astype(np.float64) for x in words)
        halves = np.zeros((2, m, n // 4), np.float32)
        for step in range(k // 4):
            for half in range(2):
                products = np.outer(a[:, step, half], b[step, :, half])
                halves[half] = _flushed((halves[half] + products).astype(np.float32))
        total = _flushed(_flushed(c.view(np.float32)) + _flushed(halves[0] + halves[1]))
        return self.keep(total.view(np.uint8))

    def bytes_of(self, left: Any, right: Any) -> Callable[..., int]:
        """The instruction of two signednesses."""

        def multiply(m: int, n: int, k: int, *tiles: int) -> int:
            c, a, b = self.operands(m, n, k, *tiles)
            x, y = a.view(left).astype(np.int64), b.view(right).astype(np.int64)
            total = c.view(np.int32) + np.einsum("mkq,knq->mn", x, y)
            return self.keep(total.astype(np.int32).view(np.uint8))

        return multiply


def _flushed(x: Array) -> Array:
    """Subnormal numbers count as 0."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)


def jit_with_tiles(kernel: KernelText, features: Features, tiles: Tiles) -> Call:
    """As ``support.jit.jit`` of a kernel that was made for a CPU with AMX."""
    text = emit.to_llvm([kernel], features)
    lines = [x for x in text.splitlines() if not ("declare" in x and _CALL.search(x))]
    text = "\n".join(lines).replace("x86_amx", "i64")
    text = _CALL.sub(lambda m: f"inttoptr (i64 {tiles.address(m[1])} to ptr)(", text)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    here = host().machine
    target = llvm.Target.from_triple(here.triple)
    machine = target.create_target_machine(
        cpu=here.cpu, features=here.attributes, opt=2, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text)
    module.triple = here.triple
    return load(machine.emit_object(module), kernel.name)
