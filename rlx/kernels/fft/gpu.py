"""Fourier transforms of rows on GPUs: a block a row, which lies in shared memory between passes.

    block (row):
        each pass (see ``plan``, without vectors): every thread reads the elements of its
            transforms of a few, all wait, and every thread writes them to their new places
        a real transform of 2n elements is a complex one of n, and a loop that takes the two apart
            behind it, or puts them together before it

The first pass reads the row, the last writes it, so two passes share memory once. A thread's part
does not depend on their number: bits are the same for any.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.complex import parts
from rlx.codegen.family import Launch
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.fft.butterfly import Pair, butterfly, times
from rlx.kernels.fft.emit import Kind
from rlx.kernels.fft.plan import Pass, passes_of, table_of, untangling
from rlx.types import DType, complex_of

__all__ = ["SHARED", "GpuFftConfig", "choose", "emit", "launch", "name", "table"]

name = "gpu_fft"

SHARED = 16 << 10
"""Bytes that a block of any GPU may share: the parts of a row."""

THREADS = 256
"""Threads of a block at most; each has two elements of the row or more."""


@frozen
class GpuFftConfig:
    """A transform of rows of ``n`` elements by ``threads``, real ones on one side unless it is
    complex. It is made for a size, as on CPUs."""

    kind: Kind
    part: DType
    n: int
    inverse: bool
    scale: float
    threads: int

    @property
    def points(self) -> int:
        """Elements of the complex transform."""
        return self.n if self.kind == "complex" else self.n // 2

    def passes(self) -> list[Pass]:
        """The passes, an element at a time."""
        return passes_of(self.points, 1)


def choose(
    target: KernelTarget, kind: Kind, part: DType, n: int, inverse: bool, scale: float
) -> GpuFftConfig:
    """The config of a transform: as many threads as have two elements each."""
    points = n if kind == "complex" else n // 2
    threads = 1
    while 2 * threads <= min(target.most_threads, THREADS) and 4 * threads <= points:
        threads *= 2
    return GpuFftConfig(kind, part, n, inverse, scale, threads)


def table(config: GpuFftConfig) -> object:
    """The kernel's constants, an array of the part's type."""
    real = 0 if config.kind == "complex" else config.n
    return table_of(config.points, config.passes(), config.part.numpy, real)


def launch(config: GpuFftConfig, rows: int, row_stride: int) -> Launch:
    """The kernel's arguments: rows that lie ``row_stride`` elements of the source apart."""
    return Launch(rows, 1, (row_stride,))


def emit(name: str, config: GpuFftConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: source, table, result; the stride of the source's rows.
    The result's rows are dense."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: GpuFftConfig, target: KernelTarget) -> None:
        self.config, self.k = config, Kernel(name, target)
        k, part, both = self.k, config.part, complex_of(config.part)
        # Real rows are read and written as rows of pairs.
        self.source = k.buffer("source", both)
        self.table = k.buffer("table", part)
        self.result = k.buffer("result", both)
        self.row_stride = k.size("row_stride")
        self.shared: list[Buffer] = [k.shared(part, config.points) for _ in range(2)]

    def emit(self) -> KernelText:
        self.k.parallel_blocks(self.config.threads, self.row)
        return self.k.text()

    def row(self, row: Reg, thread: Reg) -> None:
        k, config, passes = self.k, self.config, self.config.passes()
        n, kind = config.points, config.kind
        length = n + 1 if kind == "from_real" else n
        stride = self.row_stride // 2 if kind == "from_real" else self.row_stride
        self.thread, self.begin, self.out = thread, row * stride, row * length
        read, end = self.given, len(passes) - 1
        if kind == "to_real":
            self.tangle()
            read = self.held
        for i, step in enumerate(passes):
            last = i == end and kind != "from_real"
            scale = config.scale if last else 1.0
            self.run_pass(
                step, read, self.give if last else self.hold, scale, wait=i > 0 or kind == "to_real"
            )
            read = self.held
        if kind == "from_real":
            k.barrier()
            self.untangle()

    # -- places ----------------------------------------------------------------------------

    def given(self, at: Reg) -> Pair:
        re, im = parts(self.k.load(self.source, self.begin + at))
        return (im, re) if self.config.inverse else (re, im)

    def give(self, at: Reg, value: Pair) -> None:
        re, im = value[::-1] if self.config.inverse else value
        self.k.store(self.k.pair(re, im), self.result, self.out + at)

    def held(self, at: Reg) -> Pair:
        re, im = (self.k.load(b, at) for b in self.shared)
        return re, im

    def hold(self, at: Reg, value: Pair) -> None:
        for b, part in zip(self.shared, value, strict=True):
            self.k.store(part, b, at)

    # -- passes ----------------------------------------------------------------------------

    def run_pass(
        self,
        step: Pass,
        read: Callable[[Reg], Pair],
        write: Callable[[Reg, Pair], None],
        scale: float,
        *,
        wait: bool,
    ) -> None:
        """Each thread reads all that it will, then all threads write: they share one row."""
        k, r, s, m = self.k, step.radix, step.stride, step.steps
        count, threads = s * m, self.config.threads
        if wait:
            k.barrier()
        made: list[tuple[Reg, Reg, list[Pair]]] = []
        for first in range(0, count, threads):
            i = self.thread + first if first else self.thread
            near = i if first + threads <= count else k.minimum(i, count - 1)
            p, q = (near // s, near % s) if s > 1 else (near, None)
            values = [read(near + j * s * m) for j in range(r)]
            y = butterfly(k, values)
            if m > 1:
                at = p * (2 * (r - 1)) + step.table
                roots = [
                    (k.load(self.table, at + 2 * j), k.load(self.table, at + (2 * j + 1)))
                    for j in range(r - 1)
                ]
                y = [y[0], *(times(k, a, w) for a, w in zip(y[1:], roots, strict=True))]
            if scale != 1.0:
                y = [(re * scale, im * scale) for re, im in y]
            place = p * (s * r) if q is None else p * (s * r) + q
            made.append((i, place, y))
        k.barrier()
        for n, (i, place, y) in enumerate(made):

            def stored(place: Reg = place, y: list[Pair] = y) -> None:
                for j, value in enumerate(y):
                    write(place + j * s, value)

            if (n + 1) * threads <= count:
                stored()
            else:
                k.when(i < count, stored)

    # -- real transforms -------------------------------------------------------------------

    def real_root(self, at: Reg) -> Pair:
        """exp(-2 pi i k / n) of the real transform's n."""
        first = at + untangling(self.config.passes())
        return (
            self.k.load(self.table, first),
            self.k.load(self.table, first + (self.config.points + 1)),
        )

    def untangle(self) -> None:
        """As on CPUs (``emit``), with z[n / 2] read as z[0]."""
        k, n, half = self.k, self.config.points, 0.5 * self.config.scale

        def body(at: Reg) -> None:
            (a, b), (c, d) = self.held(at % n), self.held((n - at) % n)
            odd = times(k, (b + d, c - a), self.real_root(at))
            value = k.pair((a + c + odd[0]) * half, (b - d + odd[1]) * half)
            k.store(value, self.result, self.out + at)

        k.loop(self.thread, n + 1, self.config.threads, body)

    def tangle(self) -> None:
        """As on CPUs: rows of n / 2 + 1 elements to n / 2 complex ones in shared memory, whose
        parts are exchanged, since what follows is an inverse transform."""
        k, n = self.k, self.config.points

        def element(at: Reg) -> Pair:
            return parts(k.load(self.source, self.begin + at))

        def body(at: Reg) -> None:
            (a, b), (c, d) = element(at), element(n - at)
            # What the first and the last have of imaginary parts is left out, as in NumPy.
            first = at < 1
            b, d = k.select(first, 0.0, b), k.select(first, 0.0, d)
            re, im = self.real_root(at)
            odd = times(k, (a - c, b + d), (im, re))
            self.hold(at, (b - d + odd[1], a + c + odd[0]))

        k.loop(self.thread, n, self.config.threads, body)
