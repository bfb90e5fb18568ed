"""Fourier transforms of rows, by Stockham's passes on split real and imaginary parts.

    task (row):
        each pass (see fft_plan): from the source, then from one half of the worker's scratch to the
            other, last to the result
        a real transform of 2n elements is a complex one of n, and a loop that takes the two apart
            behind it, or puts them together before it

An inverse transform is the forward one with the parts exchanged at both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.complex import parts
from rlx.codegen.family import Launch
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.fft.butterfly import Pair, butterfly, interleaved, times
from rlx.kernels.fft.plan import Pass, passes_of, table_of, untangling
from rlx.types import DType, complex_of

__all__ = ["FftConfig", "emit", "launch", "table"]

name = "fft"

SHARE = 1 << 15
"""Additions and multiplications that are worth a thread of their own."""

PADDING = 192
"""Bytes between arrays of the scratch, so that they do not lie a multiple of 4 KiB apart."""

Kind = Literal["complex", "from_real", "to_real"]


@frozen
class FftConfig:
    """A transform of rows of ``n`` elements, real ones on one side unless it is complex.

    Unlike other kernels it is made for a size: the passes and their number depend on it.
    """

    kind: Kind
    part: DType
    n: int
    inverse: bool
    scale: float

    @property
    def points(self) -> int:
        """Elements of the complex transform."""
        return self.n if self.kind == "complex" else self.n // 2

    def passes(self, target: KernelTarget) -> list[Pass]:
        """The passes on a target's vectors."""
        return passes_of(self.points, target.lanes(self.part))

    def span(self) -> int:
        """Bytes from one array of the scratch to the next."""
        size = (self.points + 1) * self.part.bytes
        return -(-size // 64) * 64 + PADDING


def table(config: FftConfig, target: KernelTarget) -> object:
    """The kernel's constants, an array of the part's type."""
    real = 0 if config.kind == "complex" else config.n
    return table_of(config.points, config.passes(target), config.part.numpy, real)


def launch(config: FftConfig, rows: int, row_stride: int) -> Launch:
    """The kernel's arguments: rows that lie ``row_stride`` elements of the source apart."""
    work = 5 * config.n * maximum(1, config.n.bit_length() - 1)
    return Launch(rows, maximum(1, SHARE // work), (row_stride,), 4 * config.span())


def emit(name: str, config: FftConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: source, table, result; the stride of the source's rows.
    The result's rows are dense."""
    return _Emitter(name, config, target).emit()


class _Array:
    """Complex values somewhere: of a row of interleaved ones, or of two arrays of parts."""

    def __init__(self, k: Kernel, buffers: list[Buffer], base: Reg | None, swap: bool) -> None:
        self.k, self.buffers, self.base, self.swap = k, buffers, base, swap

    def load(self, at: Reg, lanes: int) -> Pair:
        at = at if self.base is None else self.base + at
        if len(self.buffers) == 1:
            re, im = parts(self.k.load(self.buffers[0], at, lanes))
        else:
            re, im = (self.k.load(b, at, lanes) for b in self.buffers)
        return (im, re) if self.swap else (re, im)

    def store(self, at: Reg, value: Pair) -> None:
        at = at if self.base is None else self.base + at
        re, im = value[::-1] if self.swap else value
        if len(self.buffers) == 1:
            self.k.store(self.k.pair(re, im), self.buffers[0], at)
            return
        for b, part in zip(self.buffers, (re, im), strict=True):
            self.k.store(part, b, at)


class _Emitter:
    def __init__(self, name: str, config: FftConfig, target: KernelTarget) -> None:
        self.config, self.k = config, Kernel(name, target)
        self.passes = config.passes(target)
        self.lanes = target.lanes(config.part)
        k, part, both = self.k, config.part, complex_of(config.part)
        # Real rows are read and written as rows of pairs.
        self.source = k.buffer("source", both)
        self.table = k.buffer("table", part)
        self.result = k.buffer("result", both)
        self.row_stride = k.size("row_stride")
        spaces = [k.scratch(part, config.span() * n) for n in range(4)]
        swap = config.inverse
        self.work = [_Array(k, spaces[:2], None, False), _Array(k, spaces[2:], None, False)]
        self.swapped = [_Array(k, spaces[:2], None, swap), _Array(k, spaces[2:], None, swap)]

    def emit(self) -> KernelText:
        self.k.parallel(self.row)
        return self.k.text()

    def row(self, row: Reg) -> None:
        k, config = self.k, self.config
        n, swap = config.points, config.inverse
        out_length = n + 1 if config.kind == "from_real" else n
        # A stride of real rows counts reals, which the claim has found to be even.
        stride = self.row_stride // 2 if config.kind == "from_real" else self.row_stride
        source = _Array(k, [self.source], row * stride, swap)
        result = _Array(k, [self.result], row * out_length, swap)
        first, last, at = source, result, 0
        if config.kind == "to_real":
            source.swap = False
            self.tangle(source, self.work[1])
            first = self.swapped[1]
        if config.kind == "from_real":
            last = self.work[(len(self.passes) - 1) % 2]
        for i, step in enumerate(self.passes):
            end = i == len(self.passes) - 1
            target = last if end else self.work[at]
            scaled = end and config.kind != "from_real"
            self.run_pass(step, first, target, config.scale if scaled else 1.0)
            first, at = target, 1 - at
        if config.kind == "from_real":
            self.untangle(last, result)

    # -- loops -----------------------------------------------------------------------------

    def cover(self, count: int, lanes: int, body: Callable[[Reg], None], least: int = 0) -> None:
        """``body(i)`` for vectors that cover [least, count), the last of which may overlap the one
        before; or for every i if ``lanes`` is 0."""
        k, step = self.k, maximum(lanes, 1)
        whole = least + (count - least) // step * step
        if whole == least + step:
            body(k.index(least))
        elif whole > least:
            k.loop(least, whole, step, body)
        if whole < count:
            body(k.index(count - step))

    # -- passes ----------------------------------------------------------------------------

    def run_pass(self, step: Pass, source: _Array, target: _Array, scale: float) -> None:
        if step.flat:
            self.flat_pass(step, source, target, scale)
            return
        k, r, s, m = self.k, step.radix, step.stride, step.steps

        def column(p: Reg) -> None:
            first = self.table_at(step, p * (2 * (r - 1)))
            roots = [
                (k.load(self.table, first + 2 * j), k.load(self.table, first + (2 * j + 1)))
                for j in range(r - 1 if m > 1 else 0)
            ]
            read, written = p * s, p * (s * r)

            def body(q: Reg) -> None:
                values = [source.load(read + q + j * s * m, step.lanes) for j in range(r)]
                for j, y in enumerate(self.turned(values, roots, scale)):
                    target.store(written + q + j * s, y)

            self.cover(s, step.lanes, body)

        self.cover(m, 0, column)

    def table_at(self, step: Pass, at: Reg) -> Reg:
        return at + step.table if step.table else at

    def turned(self, values: list[Pair], roots: list[Pair], scale: float) -> list[Pair]:
        """The transform of a few values, times roots, times a number."""
        k = self.k
        y = butterfly(k, values)
        if roots:
            y = [y[0], *(times(k, a, w) for a, w in zip(y[1:], roots, strict=True))]
        return y if scale == 1.0 else [(re * scale, im * scale) for re, im in y]

    def flat_pass(self, step: Pass, source: _Array, target: _Array, scale: float) -> None:
        k, r, s, m, lanes = self.k, step.radix, step.stride, step.steps, step.lanes
        repeated = [i // s for i in range(lanes)]

        def root(j: int, part: int, p: Reg) -> Reg:
            at = self.table_at(step, p + (2 * j + part) * m)
            found = k.load(self.table, at, lanes // s)
            return found if s == 1 else k.shuffle(found, found, repeated)

        def body(i: Reg) -> None:
            p = i // s if s > 1 else i
            values = [source.load(i + j * s * m, lanes) for j in range(r)]
            roots = [(root(j, 0, p), root(j, 1, p)) for j in range(r - 1 if m > 1 else 0)]
            y = self.turned(values, roots, scale)
            re, im = (interleaved(k, side, s) for side in zip(*y, strict=True))
            for v, value in enumerate(zip(re, im, strict=True)):
                target.store(i * r + v * lanes, value)

        self.cover(s * m, lanes, body)

    # -- real transforms -------------------------------------------------------------------

    def half_lanes(self, count: int) -> int:
        """Vectors for ``count`` elements, of which the last may overlap."""
        lanes = self.lanes
        while lanes > count:
            lanes //= 2
        return lanes if lanes > 1 else 0

    def real_root(self, at: Reg, lanes: int) -> Pair:
        """exp(-2 pi i k / n) of the real transform's n from k on."""
        first = at + untangling(self.passes)
        return (
            self.k.load(self.table, first, lanes),
            self.k.load(self.table, first + (self.config.points + 1), lanes),
        )

    def mirrored(self, array: _Array, at: Reg, lanes: int) -> Pair:
        """Elements points - at, points - at - 1, and so on."""
        k = self.k
        back = self.config.points - at
        if not lanes:
            return array.load(back, 0)
        order = range(lanes - 1, -1, -1)
        re, im = array.load(back - (lanes - 1), lanes)
        return k.shuffle(re, re, order), k.shuffle(im, im, order)

    def untangle(self, z: _Array, result: _Array) -> None:
        """The transform of the reals x from that of the pairs (x[2t], x[2t + 1]), for k <= n / 2:
        (z[k] + conj z[n/2 - k]) / 2 - i w**k (z[k] - conj z[n/2 - k]) / 2, with z[n/2] = z[0]."""
        k, n, half = self.k, self.config.points, 0.5 * self.config.scale
        z.store(k.index(n), z.load(k.index(0), 0))
        lanes = self.half_lanes(n + 1)

        def body(at: Reg) -> None:
            (a, b), (c, d) = z.load(at, lanes), self.mirrored(z, at, lanes)
            odd = times(k, (b + d, c - a), self.real_root(at, lanes))
            result.store(at, ((a + c + odd[0]) * half, (b - d + odd[1]) * half))

        self.cover(n + 1, lanes, body)

    def tangle(self, h: _Array, z: _Array) -> None:
        """The opposite of ``untangle``, times 2: (h[k] + conj h[n/2 - k]) + i w**-k (h[k] - conj
        h[n/2 - k]). What h[0] and h[n/2] have of imaginary parts is left out, as in NumPy."""
        k, n = self.k, self.config.points
        lanes = self.half_lanes(n - 1)

        def body(at: Reg) -> None:
            (a, b), (c, d) = h.load(at, lanes), self.mirrored(h, at, lanes)
            re, im = self.real_root(at, lanes)
            # i w**-k, the conjugate of the root turned by 90 degrees, is (im, re).
            odd = times(k, (a - c, b + d), (im, re))
            z.store(at, (a + c + odd[0], b - d + odd[1]))

        self.cover(n, lanes, body, least=1)
        (a, _), (c, _) = h.load(k.index(0), 0), h.load(k.index(n), 0)
        z.store(k.index(0), (a + c, a - c))
