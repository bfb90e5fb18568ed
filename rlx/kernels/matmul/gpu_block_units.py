"""Products by weights in packed blocks by matrix units, straight from registers.

A wave has some rows of the result by the outputs of a panel, and a part of the depth: the waves of
a block share it. Of a run of 16 elements, the depth of an instruction, a lane needs 4 elements of A
and 4 of B. Which they are is for us to say, if A and B agree: here they are neighbours, so that
those of B are the codes in a word of its output, and those of A are read at once. Nothing of either
goes through shared memory; what the waves have summed does, at the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Buffer, Reg, mlir_type
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_weights import Decoder
from rlx.kernels.matmul.gpu_block_panels import LANES, LaneRecord, code_of
from rlx.kernels.matmul.gpu_matrix_units import UNITS, MatrixUnit, Operands, unit_for
from rlx.kernels.matmul.gpu_tile import power_below
from rlx.quant.scheme import BlockScheme
from rlx.types import DType, f16, u16

__all__ = ["WORD", "Waves", "choose_waves", "emit_block"]

RUN, WORD = 16, 4
"""Elements of an instruction's depth, and those of them that a lane has."""

ROWS = (4, 2, 1)
"""Matrices of sums below each other that a wave may have: more take too many registers."""

ENOUGH_BLOCKS = 256
"""Blocks that keep a large GPU busy: with fewer, a wave has fewer rows."""

MOST_PARTS = 16


@frozen
class Waves:
    """``parts`` waves share the depth of ``rows`` matrices of the unit by a panel. ``aligned`` says
    that every row of x begins at a multiple of ``WORD`` elements."""

    unit: str
    rows: int
    parts: int
    aligned: bool

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.parts * UNITS[self.unit].wave

    @property
    def height(self) -> int:
        """Rows of the result of a block."""
        return self.rows * UNITS[self.unit].m

    @property
    def width(self) -> int:
        """Outputs of a block."""
        return LANES

    @property
    def columns(self) -> int:
        """Matrices side by side."""
        return LANES // UNITS[self.unit].n

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.rows * self.columns * len(UNITS[self.unit].sums)


def choose_waves(
    target: KernelTarget, x: DType, decoder: Decoder, m: int, n: int, aligned: bool
) -> Waves | None:
    """What a block computes of ``m`` rows and ``n`` outputs; None if the target has no unit that
    does it so."""
    unit = unit_for(target, x, x)
    if unit is None or not decoder.even or not _fits(unit):
        return None
    forms = [Waves(unit.name, rows, 1, aligned) for rows in ROWS]
    blocks = [ceil_div(m, f.height) * ceil_div(n, f.width) for f in forms]
    form = next((f for f, b in zip(forms, blocks, strict=True) if b >= ENOUGH_BLOCKS), forms[-1])
    most = min(target.most_threads, target.shared_bytes // (4 * form.sums)) // unit.wave
    return replace(form, parts=power_below(min(most, MOST_PARTS))) if most else None


def _fits(unit: MatrixUnit) -> bool:
    """Whether a lane has as many elements of a run as a word has codes."""
    return unit.k == RUN and unit.run * len(unit.b_pieces) == WORD


class Product(Protocol):
    """What a block computes a part of."""

    k: Kernel
    config: Any
    decoder: Decoder
    scheme: BlockScheme
    x: Buffer
    m: Reg
    lda: Reg
    blocks: Reg
    chunks: int

    def record(self, panel: Reg, block: Reg, lane: Reg) -> LaneRecord:
        """A block of the weight."""
        ...

    def put(self, total: Reg, row: Reg, column: Reg) -> None:
        """Store an element of the result, if there is one."""
        ...


def emit_block(of: Product, form: Waves, i: Reg, thread: Reg) -> None:
    """Block ``i`` of a product."""
    k, unit = of.k, UNITS[form.unit]
    down = (of.m + (form.height - 1)) // form.height
    row0, panel = i % down * form.height, i // down
    lane, own = thread % unit.wave, thread // unit.wave
    step = _Step(of, form, panel, row0, lane)
    none = unit.zeros(k) * (form.rows * form.columns)
    sums = k.loop(own, of.blocks * of.chunks, form.parts, step.unit, none)
    totals = [v for n in range(form.rows * form.columns) for v in unit.each(k, sums, n)]
    if form.parts > 1:
        totals = k.block_fold(thread, totals, lambda _, a, b: a + b, form.parts, unit.wave)
    row, column = unit.sum_row.of(lane) + row0, unit.sum_column.of(lane) + panel * LANES

    def store() -> None:
        for n, total in enumerate(totals):
            matrix, e = divmod(n, len(unit.sums))
            r, c = divmod(matrix, form.columns)
            y, x = unit.sums[e]
            of.put(total, row + (r * unit.m + y), column + (c * unit.n + x))

    k.when(own < 1, store)


class _Step:
    """A chunk of the depth, for a lane."""

    def __init__(self, of: Product, form: Waves, panel: Reg, row0: Reg, lane: Reg) -> None:
        self.of, self.k, self.form, self.unit_of = of, of.k, form, UNITS[form.unit]
        self.panel, unit = panel, self.unit_of
        self.group = unit.depth.of(lane) // unit.run
        first = unit.row.of(lane) + row0
        self.steps = sorted({s for _, s in unit.a_pieces})
        places = [r * unit.m + p for r in range(form.rows) for p, _ in unit.a_pieces]
        self.starts = {p: of.k.minimum(first + p, of.m - 1) * of.lda for p in places}
        self.outputs = [unit.column.of(lane) + c * unit.n for c in range(form.columns)]

    def unit(self, u: Reg, *sums: Reg) -> list[Reg]:
        """The sums, and what the chunk ``u`` adds to them."""
        of, k, decoder, unit = self.of, self.k, self.of.decoder, self.unit_of
        block, chunk = u // of.chunks, u % of.chunks
        records = [of.record(self.panel, block, output) for output in self.outputs]
        # A lane's words are as many units further on as its group.
        turned = [replace(r, lane=r.lane + self.group * LANES) for r in records]
        words = [[*decoder.words(r, chunk)] for r in turned]
        each = len(sums) // (self.form.rows * self.form.columns)
        for part in range(decoder.parts):
            number = decoder.number(chunk, part)
            scales = [decoder.scale(r, number) for r in records]
            start = block * of.scheme.block + number * decoder.sub + self.group * WORD
            for first in range(0, decoder.sub, RUN):
                at = (part * decoder.sub + first) // WORD
                right = [self.codes(w[at](), s) for w, s in zip(words, scales, strict=True)]
                out: list[Reg] = []
                for r in range(self.form.rows):
                    left = self.elements(r, start + first)
                    for b in right:
                        so_far = sums[len(out) : len(out) + each]
                        out += unit.multiply(k, unit, Operands(left, b, so_far, of.config.x))
                sums = tuple(out)
        return list(sums)

    def codes(self, word: Reg, scales: tuple[Reg, Reg | None]) -> list[Reg]:
        """The pieces of B: the numbers of a word, rounded to the type of the rows."""
        k, of, (scale, least) = self.k, self.of, scales
        found: list[Reg] = []
        for byte in range(WORD):
            value = code_of(k, word, byte, of.decoder.zero) * scale
            found.append(k.bits_of(value if least is None else value - least, of.config.x))
        return self.pieces(k.from_elements(found))

    def elements(self, r: int, at: Reg) -> list[Reg]:
        """The pieces of A from an element of the depth on, for one of the wave's matrices."""
        unit = self.unit_of
        pieces = {
            p: self.pieces(self.load(self.starts[r * unit.m + p] + at))
            for p in dict.fromkeys(p for p, _ in unit.a_pieces)
        }
        return [pieces[p][self.steps.index(s)] for p, s in unit.a_pieces]

    def pieces(self, x: Reg) -> list[Reg]:
        """A lane's elements of a run, cut into pieces."""
        run = self.unit_of.run
        if run == WORD:
            return [x]
        return [self.k.shuffle(x, x, range(n, n + run)) for n in range(0, WORD, run)]

    def load(self, at: Reg) -> Reg:
        """The bits of a few neighbouring elements of a row."""
        k, b = self.k, self.of.x
        raw = "f16" if b.dtype is f16 else "i16"
        said = f"{{alignment = {2 * WORD if self.form.aligned else 2} : i64}}"
        kind = f"vector<{WORD}x{raw}>"
        x = k.op(f"vector.load {b.name}[{at.name}] {said} : {b.mlir}, {kind}", u16, WORD)
        if b.dtype is not f16:
            return x
        kinds = f"{kind} to {mlir_type(u16, WORD)}"
        return k.op(f"vector.bitcast {x.name} : {kinds}", u16, WORD)
