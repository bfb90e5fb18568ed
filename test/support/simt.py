"""One block of a GPU kernel, run by NumPy: every op for all threads at once, with a mask.

It knows what the kernels by matrix units are made of, and nothing more. The instructions of matrix
units are done by the maps from lanes to elements of the makers' documents, which are written here
for themselves: see ``rlx.kernels.matmul.gpu_matrix_units`` for their names. What one thread
writes to shared memory and another reads without a barrier between them is an AssertionError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from rlx import _mlir
from rlx._mlir import ir
from rlx.codegen.builder import KernelText

__all__ = ["MAPS", "Map", "run_blocks"]

Array = np.ndarray[Any, Any]
Place = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Map:
    """Where an instruction has its matrices: of a lane and the number of one of its elements, the
    row and column in A (m x k), B (k x n), and in the sums (m x n). Some lanes may have the same.
    """

    wave: int
    m: int
    n: int
    k: int
    a: Place
    b: Place
    d: Place


def _mma_d(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (0 if i < 2 else 8), lane % 4 * 2 + (i & 1)


MAPS = {
    # PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
    "mma.m16n8k16": Map(
        32, 16, 8, 16,
        lambda lane, i: (
            lane // 4 + (0 if i in (0, 1, 4, 5) else 8),
            lane % 4 * 2 + (i & 1) + (0 if i < 4 else 8),
        ),
        lambda lane, i: (lane % 4 * 2 + (i & 1) + (0 if i < 2 else 8), lane // 4),
        _mma_d,
    ),
    # PTX ISA, "Matrix Fragments for mma.m16n8k8", f16.
    "mma.m16n8k8": Map(
        32, 16, 8, 8,
        lambda lane, i: (lane // 4 + (0 if i < 2 else 8), lane % 4 * 2 + (i & 1)),
        lambda lane, i: (lane % 4 * 2 + i, lane // 4),
        _mma_d,
    ),
    # CDNA3 ISA 7.1.4: A[i][k] is in lane i + 16 (k / 4), B[k][j] in j + 16 (k / 4), both as item
    # k % 4; D[i][j] is item i % 4 of lane j + 16 (i / 4).
    "mfma.16x16x16": Map(
        64, 16, 16, 16,
        lambda lane, i: (lane % 16, lane // 16 * 4 + i),
        lambda lane, i: (lane // 16 * 4 + i, lane % 16),
        lambda lane, i: (lane // 16 * 4 + i, lane % 16),
    ),
    # CDNA4 ISA 7.1.5: the same, with 8 of k in a lane.
    "mfma.16x16x32": Map(
        64, 16, 16, 32,
        lambda lane, i: (lane % 16, lane // 16 * 8 + i),
        lambda lane, i: (lane // 16 * 8 + i, lane % 16),
        lambda lane, i: (lane // 16 * 4 + i, lane % 16),
    ),
    # RDNA3 ISA 7.9: A's rows and B's columns are whole, in both halves of the wave; the halves take
    # turns at the rows of D.
    "wmma.rdna3": Map(
        32, 16, 16, 16,
        lambda lane, i: (lane % 16, i),
        lambda lane, i: (i, lane % 16),
        lambda lane, i: (2 * i + lane // 16, lane % 16),
    ),
    # RDNA4 ISA 7.12.2: the second half of the wave has the second half of k, and of the rows of D.
    "wmma.rdna4": Map(
        32, 16, 16, 16,
        lambda lane, i: (lane % 16, lane // 16 * 8 + i),
        lambda lane, i: (lane // 16 * 8 + i, lane % 16),
        lambda lane, i: (lane // 16 * 8 + i, lane % 16),
    ),
}  # fmt: skip


def multiplied(m: Map, a: Array, b: Array, c: Array) -> Array:
    """The sums of every thread, from those of A, B and C: arrays (threads, elements)."""
    out = np.empty_like(c)
    for first in range(0, len(c), m.wave):
        lanes = range(first, first + m.wave)
        left, right = np.full((m.m, m.k), np.nan), np.full((m.k, m.n), np.nan)
        for of, values, place in ((left, a, m.a), (right, b, m.b)):
            for lane in lanes:
                for i in range(values.shape[1]):
                    of[place(lane - first, i)] = values[lane, i]
        with np.errstate(invalid="ignore", over="ignore"):
            product = left @ right
        for lane in lanes:
            for i in range(c.shape[1]):
                total = product[m.d(lane - first, i)] + np.float64(c[lane, i])
                out[lane, i] = np.float32(total)
    return out


def run_blocks(text: KernelText, blocks: int, buffers: list[Array], numbers: list[int]) -> None:
    """Run all blocks of a kernel, one after the other, on flat arrays; ``numbers`` are in the
    order of ``KernelText.sizes``, and all views start at 0."""
    module = _mlir.parse_module(
        f"module attributes {{gpu.container_module}} {{\ngpu.module @k {{\n{text.text}\n}}\n}}",
        _mlir.context(),
    )
    (function,) = module.body.operations[0].regions[0].blocks[0].operations
    sizes = np.array([*numbers, *[0] * len(buffers)], np.int32)
    for block in range(blocks):
        _Block(text.block, block).run(function, [*buffers, sizes])


@dataclass
class _Shared:
    """Memory of a block, and who touched what since the last barrier (-1: nobody, -2: several)."""

    values: Array
    writer: Array
    reader: Array

    @classmethod
    def of(cls, size: int, dt: Any) -> _Shared:
        return cls(np.zeros(size, dt), np.full(size, -1), np.full(size, -1))

    def barrier(self) -> None:
        self.writer[:], self.reader[:] = -1, -1

    def read(self, at: Array, thread: Array) -> None:
        other = (self.writer[at] != -1) & (self.writer[at] != thread)
        assert not other.any(), "read what another thread wrote, with no barrier between"
        old = self.reader[at]
        self.reader[at] = np.where((old == -1) | (old == thread), thread, -2)
        self.reader[at[self.reader[at] != thread]] = -2

    def write(self, at: Array, thread: Array) -> None:
        for touched in (self.reader[at], self.writer[at]):
            other = (touched != -1) & (touched != thread)
            assert not other.any(), "write over what another thread uses, with no barrier between"
        self.writer[at] = thread
        assert (self.writer[at] == thread).all(), "two threads write to one place"


@dataclass
class _Block:
    threads: int
    number: int
    values: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def run(self, function: Any, arguments: list[Array]) -> None:
        body = function.regions[0].blocks[0]
        for value, given in zip(body.arguments, arguments, strict=False):
            self.values[value] = given
        for value in list(body.arguments)[len(arguments) :]:
            kind = ir.MemRefType(value.type)
            self.values[value] = _Shared.of(kind.shape[0], _dtype(kind.element_type))
        self.shared = [v for v in self.values.values() if isinstance(v, _Shared)]
        self.thread = np.arange(self.threads)
        self.region(body, np.ones(self.threads, bool))

    def region(self, block: Any, mask: Array) -> list[Array]:
        for view in block.operations:
            op = view.operation
            if op.name in ("scf.yield", "gpu.return"):
                return [self.values[o] for o in op.operands]
            results = self.do(op, mask)
            for value, found in zip(op.results, results, strict=True):
                self.values[value] = found
        return []

    def do(self, op: Any, mask: Array) -> list[Any]:
        given = [self.values[o] for o in op.operands]
        family, _, verb = op.name.partition(".")
        if op.name in _SIMPLE:
            with np.errstate(all="ignore"):
                return [_SIMPLE[op.name](*given)]
        if op.name in _TYPED:
            (x,) = given
            return [_TYPED[op.name](x, op.results[0].type)]
        return getattr(self, f"{family}_{verb.replace('.', '_')}")(op, mask, *given)

    def splat(self, value: Any, dt: Any) -> Array:
        return np.full(self.threads, value, dt)

    # -- values ----------------------------------------------------------------------------

    def arith_constant(self, op: Any, mask: Array) -> list[Any]:
        value, kind = op.attributes["value"], op.results[0].type
        if isinstance(kind, ir.VectorType):
            one = np.array(ir.DenseElementsAttr(value))
            return [np.broadcast_to(one, (self.threads, len(one)))]
        number = value.value
        return [self.splat(number, _dtype(kind))]

    def arith_cmpi(self, op: Any, mask: Array, a: Array, b: Array) -> list[Any]:
        number = ir.IntegerAttr(op.attributes["predicate"]).value
        compare = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
        if number > 5:  # of unsigned numbers
            a, b, number = a.view(np.uint32), b.view(np.uint32), number - 4
        return [compare[number](a, b)]

    def arith_cmpf(self, op: Any, mask: Array, a: Array, b: Array) -> list[Any]:
        number = ir.IntegerAttr(op.attributes["predicate"]).value
        compare = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal,
                   13: np.not_equal}  # fmt: skip
        return [compare[number](a, b)]

    def gpu_thread_id(self, op: Any, mask: Array) -> list[Any]:
        return [self.thread.copy()]

    def gpu_block_id(self, op: Any, mask: Array) -> list[Any]:
        along = "dim<x>" in str(op.attributes["dimension"]) or " x" in str(op)
        return [self.splat(self.number if along else 0, np.int64)]

    def gpu_barrier(self, op: Any, mask: Array) -> list[Any]:
        assert mask.all(), "every thread comes to a barrier"
        for shared in self.shared:
            shared.barrier()
        return []

    # -- memory ----------------------------------------------------------------------------

    def memref_alloca(self, op: Any, mask: Array) -> list[Any]:
        kind = ir.MemRefType(op.results[0].type)
        return [np.zeros((self.threads, kind.shape[0]), _dtype(kind.element_type))]

    def memref_load(self, op: Any, mask: Array, memory: Any, at: Array) -> list[Any]:
        if isinstance(memory, _Shared):
            memory.read(at[mask], self.thread[mask])
            memory = memory.values
        if memory.ndim == 2:
            return [memory[self.thread, at]]
        assert (at[mask] >= 0).all(), "outside"
        return [memory[np.where(mask, at, 0)]]

    def memref_store(self, op: Any, mask: Array, value: Array, memory: Any, at: Array) -> list[Any]:
        if isinstance(memory, _Shared):
            memory.write(at[mask], self.thread[mask])
            memory = memory.values
        if memory.ndim == 2:
            memory[self.thread[mask], at[mask]] = value[mask]
        else:
            assert (at[mask] >= 0).all() and len(set(at[mask])) == mask.sum(), (
                "one place, one value"
            )
            memory[at[mask]] = value[mask]
        return []

    def vector_load(self, op: Any, mask: Array, memory: Any, at: Array) -> list[Any]:
        count = ir.VectorType(op.results[0].type).shape[0]
        alignment = ir.IntegerAttr(op.attributes["alignment"]).value
        values = memory.values if isinstance(memory, _Shared) else memory
        assert (at[mask] * values.itemsize % alignment == 0).all(), "not aligned as it says"
        places = np.where(mask, at, 0)[:, None] + np.arange(count)
        for i in range(count) if isinstance(memory, _Shared) else ():
            memory.read(places[mask, i], self.thread[mask])
        found = values[places]
        return [found.view(np.uint16) if "xi16>" in str(op.results[0].type) else found]

    def vector_from_elements(self, op: Any, mask: Array, *given: Array) -> list[Any]:
        return [np.stack(given, axis=1)]

    def vector_shuffle(self, op: Any, mask: Array, a: Array, b: Array) -> list[Any]:
        return [
            np.concatenate([a, b], axis=1)[:, list(ir.DenseI64ArrayAttr(op.attributes["mask"]))]
        ]

    # -- control ---------------------------------------------------------------------------

    def scf_if(self, op: Any, mask: Array, condition: Array) -> list[Any]:
        assert not op.results
        inside = mask & condition
        if inside.any():
            self.region(op.regions[0].blocks[0], inside)
        return []

    def scf_for(self, op: Any, mask: Array, *given: Array) -> list[Any]:
        at, high, step, *carried = given
        body = op.regions[0].blocks[0]
        while (inside := mask & (at < high)).any():
            self.values[body.arguments[0]] = at
            for argument, value in zip(list(body.arguments)[1:], carried, strict=True):
                self.values[argument] = value
            found = self.region(body, inside)
            carried = [
                np.where(inside.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                for new, old in zip(found, carried, strict=True)
            ]
            at = at + step
        return carried

    # -- matrix units ----------------------------------------------------------------------

    def whole_waves(self, mask: Array) -> None:
        waves = mask.reshape(-1, 32)
        assert (waves.all(axis=1) | ~waves.any(axis=1)).all(), "a wave goes together"

    def nvvm_mma_sync(self, op: Any, mask: Array, *given: Array) -> list[Any]:
        depth = int(re.findall(r"k = (\d+)>", str(op.attributes["shape"]))[0])
        pieces = depth // 4
        a, b, c = given[:pieces], given[pieces : pieces * 3 // 2], given[pieces * 3 // 2 :]
        left, right = (np.concatenate([_halves(x) for x in of], axis=1) for of in (a, b))
        self.whole_waves(mask)
        return [multiplied(MAPS[f"mma.m16n8k{depth}"], left, right, np.stack(c, axis=1))]

    def llvm_extractvalue(self, op: Any, mask: Array, struct: Array) -> list[Any]:
        (at,) = ir.DenseI64ArrayAttr(op.attributes["position"])
        return [struct[:, at]]

    def amdgpu_mfma(self, op: Any, mask: Array, a: Array, b: Array, c: Array) -> list[Any]:
        depth = ir.IntegerAttr(op.attributes["k"]).value
        self.whole_waves(mask)
        return [multiplied(MAPS[f"mfma.16x16x{depth}"], a, b, c)]

    def amdgpu_wmma(self, op: Any, mask: Array, a: Array, b: Array, c: Array) -> list[Any]:
        self.whole_waves(mask)
        return [multiplied(MAPS["wmma.rdna3" if a.shape[1] == 16 else "wmma.rdna4"], a, b, c)]

    def vector_extract(self, op: Any, mask: Array, vector: Array) -> list[Any]:
        (at,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
        return [vector[:, at]]


def _halves(x: Array) -> Array:
    """A piece as two numbers: a pair of f16, or 32 bits with two bf16."""
    return x if x.ndim == 2 else x[:, None].view(ml_dtypes.bfloat16).astype(np.float32)


def _dtype(kind: Any) -> Any:
    text = str(kind)
    if text == "bf16":
        return ml_dtypes.bfloat16
    if text in ("f16", "f32"):
        return {"f16": np.float16, "f32": np.float32}[text]
    return {"index": np.int64, "i1": np.bool_, "i16": np.uint16, "i32": np.int32}[text]


def _element(kind: Any) -> Any:
    return _dtype(kind.element_type if isinstance(kind, ir.VectorType) else kind)


def _bits(x: Array, kind: Any) -> Array:
    return np.ascontiguousarray(x).view(_element(kind))


_SIMPLE: dict[str, Callable[..., Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divui": np.floor_divide,
    "arith.remui": np.remainder,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrui": lambda a, b: (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32),
    "arith.shrsi": np.right_shift,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.select": np.where,
}

_TYPED: dict[str, Callable[[Array, Any], Any]] = {
    "arith.sitofp": lambda x, kind: x.astype(_dtype(kind)),
    "arith.uitofp": lambda x, kind: x.view(np.uint32).astype(_dtype(kind)),
    "arith.index_cast": lambda x, kind: x.astype(_dtype(kind)),
    "arith.extf": lambda x, kind: x.astype(_dtype(kind)),
    "arith.truncf": lambda x, kind: x.astype(_dtype(kind)),
    "arith.extui": lambda x, kind: x.astype(_dtype(kind)),
    "arith.trunci": lambda x, kind: x.astype(_dtype(kind)),
    "arith.bitcast": _bits,
    "vector.bitcast": _bits,
}
