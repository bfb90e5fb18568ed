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

__all__ = [
    "COLUMNS", "ROWS", "Block", "Tile", "emit_block", "has_integers", "multiply", "serves",
]  # fmt: skip

ROWS = 16
"""Rows of a tile."""

ROW_BYTES = 64
COLUMNS = 16
"""Columns of a tile of sums."""


def serves(target: KernelTarget, a: DType, b: DType, k: int) -> bool:
    """Whether a target multiplies two element types by AMX; K is a multiple of a tile's."""
    kinds = {"amx-bf16": (bf16,), "amx-int8": (i8, u8)}
    needs = [extra for extra, types in kinds.items() if a in types and b in types]
    return (
        "amx-tile" in target.has
        and any(extra in target.has for extra in needs)
        and k % (ROW_BYTES // a.bytes) == 0
    )


def has_integers(target: KernelTarget) -> bool:
    """Whether a target multiplies 8-bit integers by AMX."""
    return serves(target, i8, i8, ROW_BYTES)


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
    left, right = Tile(o.a.dtype, step), Tile(o.b.dtype, step)
    total = Tile(o.sums.dtype, COLUMNS)
    group = 4 // o.b.dtype.bytes
    panel_row = k.index(o.vectors * COLUMNS * group)

    def load_a(r: int, i: Reg) -> Reg:
        return left.load(k, o.a, o.a_at + o.a_row * (r * ROWS) + i * step, o.a_row)

    def body(i: Reg, *acc: Reg) -> list[Reg]:
        out = list(acc)
        held: tuple[int, Reg] | None = None
        for v in range(o.vectors):
            at = o.b_at + i * (step * o.vectors * COLUMNS) + v * COLUMNS * group
            y = right.load(k, o.b, at, panel_row)
            # Back and forth over the rows: eight registers hold six sums, one tile of A, one of B.
            for r in range(tiles) if v % 2 == 0 else reversed(range(tiles)):
                x = held[1] if held and held[0] == r else load_a(r, i)
                held = r, x
                n = r * o.vectors + v
                out[n] = multiply(k, (left, x), (right, y), out[n])
        return out

    zeros = [total.zero(k) for _ in range(tiles * o.vectors)]
    for n, value in enumerate(k.loop(0, depth / step, 1, body, zeros)):
        r, v = divmod(n, o.vectors)
        at = o.sums_at + o.sums_row * (r * ROWS) + v * COLUMNS
        total.store(k, value, o.sums, at, o.sums_row)


@frozen
class Tile:
    """The shape of a tile register: rows of so many elements, at most 64 bytes."""

    element: DType
    columns: int
    rows: int = ROWS

    @property
    def register(self) -> DType:
        """Its type, in the place of an element type."""
        element = self.element.name if self.element.is_float else f"i{self.element.bits}"
        name = f"!x86.amx.tile<{self.rows}x{self.columns}x{element}>"
        return DType(name, "float", 8 * ROWS * ROW_BYTES)

    def zero(self, k: Kernel) -> Reg:
        """A tile of zeros."""
        return k.op(f"x86.amx.tile_zero : {self.register.name}", self.register, 0)

    def load(self, k: Kernel, b: Buffer, at: Reg, row: Reg) -> Reg:
        """Rows that lie ``row`` elements apart, from an element on."""
        place, kind = self._window(k, b, at, row)
        to = self.register
        return k.op(f"x86.amx.tile_load {place} : {kind} into {to.name}", to, 0)

    def store(self, k: Kernel, x: Reg, b: Buffer, at: Reg, row: Reg) -> None:
        """Write rows ``row`` elements apart, from an element on."""
        place, kind = self._window(k, b, at, row)
        k.line(f"x86.amx.tile_store {place}, {x.name} : {kind}, {x.dtype.name}")

    def _window(self, k: Kernel, b: Buffer, at: Reg, row: Reg) -> tuple[str, str]:
        """The first element of a part of a buffer as a matrix, and the type of that."""
        element, zero = b.mlir.split("x")[-1].rstrip(">"), k.index(0).name
        kind = f"memref<{self.rows}x{self.columns}x{element}, strided<[?, 1], offset: ?>>"
        name = k.fresh()
        k.line(
            f"{name} = memref.reinterpret_cast {b.name} to offset: [{at.name}], sizes:"
            f" [{self.rows}, {self.columns}], strides: [{row.name}, 1] : {b.mlir} to {kind}"
        )
        return f"{name}[{zero}, {zero}]", kind


def multiply(k: Kernel, left: tuple[Tile, Reg], right: tuple[Tile, Reg], total: Reg) -> Reg:
    """``total`` plus the product of a tile of A and one of B."""
    (a, x), (b, y) = left, right
    kinds = ", ".join(r.dtype.name for r in (x, y, total))
    if a.element is bf16:
        text = f"x86.amx.tile_mulf {x.name}, {y.name}, {total.name} : {kinds}"
    else:
        signs = (" zext" if t.element is u8 else "" for t in (a, b))
        names = (f"{r.name}{sign}" for r, sign in zip((x, y), signs, strict=True))
        text = f"x86.amx.tile_muli {', '.join(names)}, {total.name} : {kinds}"
    return k.op(text, total.dtype, 0)
