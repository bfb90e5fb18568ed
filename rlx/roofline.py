"""Rooflines: the peaks of this machine, measured by kernels of RLX's own builder.

Arithmetic: every thread runs fused multiply-adds on f32 vectors in registers, in as many
independent chains as the register file holds, which hides their latency. Memory: all threads read
a block of several times the last cache, or copy one half of it to the other; the faster of the two
counts. Each figure is of the fastest of several launches, and all of them together take a fraction
of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.runtime import _native
from rlx.schedule.codec import main_words
from rlx.schedule.steps import Launch, Place
from rlx.targets.base import Target
from rlx.targets.cpu import make_target
from rlx.targets.cpu.features import require
from rlx.types import f32

__all__ = ["Roofline", "measure"]

Array = np.ndarray[Any, Any]

ROUNDS = 20_000
"""Rounds of the multiply-add loop for one index: less than a tenth of a millisecond, so that a
launch fits between two interruptions by other programs."""

PIECE = 1 << 16
"""Elements that one index streams through: 256 KiB."""

STREAMS = 4
"""Places from which one index reads at a time: a thread reads faster than from one alone."""

CACHES, LEAST_BYTES, MOST_BYTES = 4, 64 << 20, 256 << 20
"""A block of memory is so many last caches, within these limits."""

RUNS, SECONDS = 5, 0.06
"""Launches for one figure, and for how long to go on with them."""


@frozen
class Roofline:
    """Flops and bytes a second that ``threads`` threads reach: in f32, and from memory beyond the
    caches."""

    flops: float
    bytes: float
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.flops / 1e9:.0f} GFLOP/s in f32, {self.bytes / 1e9:.1f} GB/s from memory"
            f" ({self.threads} thread{'s' * (self.threads > 1)}, measured)"
        )


def measure() -> Roofline:
    """Measure this machine with as many threads as runs use now. DeviceError where RLX_CPU names a
    CPU whose code does not run here."""
    target = make_target()
    require(target.features)
    threads = _native.num_threads()
    return Roofline(_flops(target, threads), _bytes(target), threads)


def _flops(target: Target, threads: int) -> float:
    lanes, chains = target.kernels.lanes(), _chains(target.kernels)
    count = 8 * threads
    factor, out = np.full(lanes, 0.5, np.float32), np.empty(count * lanes, np.float32)
    seconds = _fastest(target, _multiply_add(target.kernels), count, [ROUNDS], factor, out)
    return 2.0 * lanes * chains * ROUNDS * count / seconds


def _bytes(target: Target) -> float:
    size = min(max(CACHES * _last_cache(), LEAST_BYTES), MOST_BYTES)
    # Written, since pages that nobody has written are all one page, which lies in the cache.
    block = np.ones(size // 4 // (2 * PIECE) * (2 * PIECE), np.float32)
    first, second = np.split(block, 2)
    count = len(block) // PIECE
    sums = np.empty(count * target.kernels.lanes(), np.float32)
    read = _fastest(target, _read(target.kernels), count, [], block, sums)
    copied = _fastest(target, _copy(target.kernels), count // 2, [], first, second)
    return block.nbytes / min(read, copied)


def _fastest(
    target: Target, kernel: KernelText, count: int, sizes: Sequence[int], source: Array, out: Array
) -> float:
    """Seconds of the fastest of a few launches of a kernel from one buffer to another."""
    code = _native.Object(target.emitter.emit([kernel], target.stages[-1]))
    places = (Place(_native.BASE_FIRST_PARAM, 0), Place(_native.BASE_FIRST_PARAM + 1, 0))
    program = _native.Program(
        objects=[code],
        inputs=[("source", "f32", source.shape)],
        outputs=[("out", "f32", out.shape)],
        main=main_words([Launch(0, (count, 1, 0), places, tuple(sizes))]),
        kernels=[code.symbol(kernel.name)],
    )
    times: list[int] = []
    while len(times) < RUNS or sum(times) < SECONDS * 1e9:
        program.set_profiling(True)  # from zero
        program.run_into([source], [out])
        times.append(program.launch_times()[0][0])
    return min(times) * 1e-9


# -- kernels -------------------------------------------------------------------------------


def _chains(target: KernelTarget) -> int:
    """Accumulators: all registers but for the operands."""
    return target.registers - 4


def _multiply_add(target: KernelTarget) -> KernelText:
    """``rounds`` multiply-adds in every chain; the sums are stored so that they are needed."""
    k = Kernel("roof_flops", target)
    source, out, rounds = k.buffer("x", f32), k.buffer("out", f32), k.size("rounds")
    lanes = target.lanes()

    def index(i: Reg) -> None:
        x = k.load(source, 0, lanes)
        sums = k.loop(
            0, rounds, 1, lambda _, *acc: [k.fma(a, x, x) for a in acc], [x] * _chains(target)
        )
        k.store(_sum(sums), out, i * lanes, lanes)

    k.parallel(index)
    return k.text()


def _read(target: KernelTarget) -> KernelText:
    """The sum of a piece."""
    k = Kernel("roof_read", target)
    source, out = k.buffer("x", f32), k.buffer("out", f32)
    lanes = target.lanes()

    def index(i: Reg) -> None:
        def step(at: Reg, *sums: Reg) -> list[Reg]:
            places = [i * PIECE + n * (PIECE // STREAMS) + at for n in range(STREAMS)]
            loads = [k.load(source, place, lanes) for place in places]
            return [s + x for s, x in zip(sums, loads, strict=True)]

        zero = k.const(0.0, f32, lanes)
        sums = k.loop(0, PIECE // STREAMS, lanes, step, [zero] * STREAMS)
        k.store(_sum(sums), out, i * lanes, lanes)

    k.parallel(index)
    return k.text()


def _copy(target: KernelTarget) -> KernelText:
    """A piece of one buffer written to another."""
    k = Kernel("roof_copy", target)
    source, out = k.buffer("x", f32), k.buffer("out", f32)
    lanes = target.lanes()

    def index(i: Reg) -> None:
        def step(at: Reg) -> None:
            place = i * PIECE + at
            k.store(k.load(source, place, lanes), out, place, lanes)

        k.loop(0, PIECE, lanes, step)

    k.parallel(index)
    return k.text()


def _sum(values: Sequence[Reg]) -> Reg:
    total = values[0]
    for v in values[1:]:
        total = total + v
    return total


def _last_cache() -> int:
    """Bytes of the largest cache of the first CPU; 0 where the system does not tell."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
        sizes.append(int(text.rstrip("KMG")) << unit)
    return max(sizes)
