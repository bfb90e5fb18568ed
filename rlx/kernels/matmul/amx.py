"""Products by AMX: tiles of 16 rows of 64 bytes, in registers of their own.

A tile of A is 16 rows of a group's worth of K, row-major; one of B is read from grouped panels
(``rlx.kernels.matmul.dot``), 16 columns of each, as the distance between rows of memory is free.
Products of bf16 are summed in f32: over the elements of even and of odd k of a tile apart,
subnormals count as 0. Those of 8-bit integers are exact and wrap in i32, whatever the signs.
"""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType, bf16, i8, u8

__all__ = ["ROWS", "Block", "emit_block", "serves"]

ROWS = 16
"""Rows of a tile."""

ROW_BYTES = 64
_COLUMNS = 16


def serves(target: KernelTarget, a: DType, b: DType, k: int) -> bool:
    """Whether a target multiplies two element types by AMX; K is a multiple of a tile's."""
    kinds = {"amx-bf16": (bf16,), "amx-int8": (i8, u8)}
    needs = [extra for extra, types in kinds.items() if a in types and b in types]
    return (
        "amx-tile" in target.has
        and any(extra in target.has for extra in needs)
        and k % (ROW_BYTES // a.bytes) == 0
    )


@frozen
class Block:
    """What a block of tiles works on: A from ``a_at`` on with rows ``a_row`` elements apart, a
    panel of B of ``vectors`` times 16 columns from ``b_at`` on, and where its sums go."""

    a: Buffer
    a_at: Reg
    a_row: Reg
    b: Buffer
    b_at: Reg
    vectors: int
    sums: Buffer
    sums_at: Reg
    sums_row: Reg


def emit_block(k: Kernel, block: Block, depth: Reg, tiles: int) -> None:
    """Emit ``tiles`` times 16 rows times a panel, over ``depth`` elements."""
    o = block
    step = ROW_BYTES // o.a.dtype.bytes
    left, right = _tile(o.a.dtype, step), _tile(o.b.dtype, step)
    total = _tile(o.sums.dtype, _COLUMNS)
    group = 4 // o.b.dtype.bytes
    panel_row = k.index(o.vectors * _COLUMNS * group)

    def load_a(r: int, i: Reg) -> Reg:
        return _load(k, o.a, o.a_at + o.a_row * (r * ROWS) + i * step, o.a_row, left, step)

    def body(i: Reg, *acc: Reg) -> list[Reg]:
        out = list(acc)
        held: tuple[int, Reg] | None = None
        for v in range(o.vectors):
            at = o.b_at + i * (step * o.vectors * _COLUMNS) + v * _COLUMNS * group
            y = _load(k, o.b, at, panel_row, right, step)
            # Back and forth over the rows: eight registers hold six sums, one tile of A, one of B.
            for r in range(tiles) if v % 2 == 0 else reversed(range(tiles)):
                x = held[1] if held and held[0] == r else load_a(r, i)
                held = r, x
                n = r * o.vectors + v
                out[n] = _multiply(k, x, y, out[n], o)
        return out

    zeros = [_zero(k, total) for _ in range(tiles * o.vectors)]
    for n, value in enumerate(k.loop(0, depth / step, 1, body, zeros)):
        r, v = divmod(n, o.vectors)
        at = o.sums_at + o.sums_row * (r * ROWS) + v * _COLUMNS
        _store(k, value, o.sums, at, o.sums_row)


def _tile(dt: DType, columns: int) -> DType:
    """The type of a tile register, in the place of an element type."""
    element = dt.name if dt.is_float else f"i{dt.bits}"
    return DType(f"!x86.amx.tile<{ROWS}x{columns}x{element}>", "float", 8 * ROWS * ROW_BYTES)


def _window(k: Kernel, b: Buffer, at: Reg, row: Reg, columns: int) -> tuple[str, str]:
    """A buffer from an element on as a matrix, and its type."""
    element = b.mlir.split("x")[-1].rstrip(">")
    kind = f"memref<{ROWS}x{columns}x{element}, strided<[?, 1], offset: ?>>"
    name = k.fresh()
    k.line(
        f"{name} = memref.reinterpret_cast {b.name} to offset: [{at.name}], sizes:"
        f" [{ROWS}, {columns}], strides: [{row.name}, 1] : {b.mlir} to {kind}"
    )
    return name, kind


def _zero(k: Kernel, tile: DType) -> Reg:
    return k.op(f"x86.amx.tile_zero : {tile.name}", tile, 0)


def _load(k: Kernel, b: Buffer, at: Reg, row: Reg, tile: DType, columns: int) -> Reg:
    place, kind = _window(k, b, at, row, columns)
    zero = k.index(0).name
    return k.op(f"x86.amx.tile_load {place}[{zero}, {zero}] : {kind} into {tile.name}", tile, 0)


def _store(k: Kernel, x: Reg, b: Buffer, at: Reg, row: Reg) -> None:
    place, kind = _window(k, b, at, row, _COLUMNS)
    zero = k.index(0).name
    k.line(f"x86.amx.tile_store {place}[{zero}, {zero}], {x.name} : {kind}, {x.dtype.name}")


def _multiply(k: Kernel, x: Reg, y: Reg, total: Reg, o: Block) -> Reg:
    """``total`` plus the product of a tile of A and one of B."""
    kinds = ", ".join(r.dtype.name for r in (x, y, total))
    if o.a.dtype is bf16:
        text = f"x86.amx.tile_mulf {x.name}, {y.name}, {total.name} : {kinds}"
    else:
        left, right = (" zext" if b.dtype is u8 else "" for b in (o.a, o.b))
        text = f"x86.amx.tile_muli {x.name}{left}, {y.name}{right}, {total.name} : {kinds}"
    return k.op(text, total.dtype, 0)
