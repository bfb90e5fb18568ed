"""Transforms of a few elements in registers, forward: a complex value is a pair of registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Reg

__all__ = ["Pair", "butterfly", "interleaved", "times"]

Pair = tuple[Reg, Reg]


def butterfly(k: Kernel, a: Sequence[Pair]) -> list[Pair]:
    """The transform of 2, 4 or 8 elements, or of an odd number."""
    match len(a):
        case 2:
            return [_add(*a), _sub(*a)]
        case 4:
            return _four(a)
        case 8:
            return _eight(k, a)
        case _:
            return _odd(k, a)


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def _add_i(a: Pair, b: Pair) -> Pair:
    """a + i b"""
    return a[0] - b[1], a[1] + b[0]


def _sub_i(a: Pair, b: Pair) -> Pair:
    """a - i b"""
    return a[0] + b[1], a[1] - b[0]


def times(k: Kernel, a: Pair, w: Pair) -> Pair:
    """The product of two complex values, each part rounded twice."""
    re = k.fma(-a[1], w[1], a[0] * w[0])
    return re, k.fma(a[1], w[0], a[0] * w[1])


def _four(a: Sequence[Pair]) -> list[Pair]:
    even, odd = _add(a[0], a[2]), _add(a[1], a[3])
    cross, turned = _sub(a[0], a[2]), _sub(a[1], a[3])
    return [_add(even, odd), _sub_i(cross, turned), _sub(even, odd), _add_i(cross, turned)]


def _eight(k: Kernel, a: Sequence[Pair]) -> list[Pair]:
    """Two of four; the odd one is turned by 0, 45, 90 and 135 degrees before they meet."""
    e, o = _four(a[0::2]), _four(a[1::2])
    c = math.sqrt(0.5)

    def met(x: Pair, y: Pair, by: float) -> Pair:
        return k.fma(y[0], by, x[0]), k.fma(y[1], by, x[1])

    one = (o[1][0] + o[1][1], o[1][1] - o[1][0])
    three = (o[3][1] - o[3][0], -(o[3][0] + o[3][1]))
    return [
        _add(e[0], o[0]), met(e[1], one, c), _sub_i(e[2], o[2]), met(e[3], three, c),
        _sub(e[0], o[0]), met(e[1], one, -c), _add_i(e[2], o[2]), met(e[3], three, -c),
    ]  # fmt: skip


def _odd(k: Kernel, a: Sequence[Pair]) -> list[Pair]:
    """By pairs: elements j and r - j have conjugate roots, and so have results k and r - k."""
    r = len(a)
    half = range(1, (r + 1) // 2)
    sums, differences = [_add(a[j], a[r - j]) for j in half], [_sub(a[j], a[r - j]) for j in half]
    out = [a[0]] * r
    for s in sums:
        out[0] = _add(out[0], s)
    for n in half:
        even, odd = a[0], None
        for j, s, d in zip(half, sums, differences, strict=True):
            turn = 2 * math.pi * (j * n % r) / r
            cosine, sine = math.cos(turn), math.sin(turn)
            even = (k.fma(s[0], cosine, even[0]), k.fma(s[1], cosine, even[1]))
            if odd is None:
                odd = (d[0] * sine, d[1] * sine)
            else:
                odd = (k.fma(d[0], sine, odd[0]), k.fma(d[1], sine, odd[1]))
        assert odd is not None
        out[n], out[r - n] = _sub_i(even, odd), _add_i(even, odd)
    return out


def interleaved(k: Kernel, rows: Sequence[Reg], run: int) -> list[Reg]:
    """Vectors in the order of memory: of each row a run, then of each row the next one, and so on.

    Lanes and runs are powers of two. As many rows are brought together by rounds, in each of which
    a bit of the row's number changes places with one of the top bits of the lane's; the last round,
    and rows of another number, by shuffles that also put the lanes in their places.
    """
    count, lanes = len(rows), rows[0].lanes
    # What each lane of each register holds: the row, and the lane of it.
    held = [[(row, lane) for lane in range(lanes)] for row in range(count)]
    regs = list(rows)
    rounds = min(count, lanes // run).bit_length() - 1 if count & (count - 1) == 0 else 0
    for n in range(rounds - 1):
        regs, held = _exchanged(k, regs, held, 1 << (rounds - 1 - n), lanes >> (n + 1))
    places = range(count * lanes)
    order = [(f // run % count, f // (run * count) * run + f % run) for f in places]
    return [_picked(k, regs, held, order[v * lanes : (v + 1) * lanes]) for v in range(count)]


Held = list[list[tuple[int, int]]]


def _exchanged(
    k: Kernel, regs: list[Reg], held: Held, row_bit: int, lane_bit: int
) -> tuple[list[Reg], Held]:
    """Registers after a bit of their number and a bit of the lane's have changed places."""
    lanes = regs[0].lanes
    out, now = list(regs), list(held)
    for i in range(len(regs)):
        if i & row_bit:
            continue
        j = i | row_bit
        both = [*held[i], *held[j]]
        low = [n if not n & lane_bit else lanes + n - lane_bit for n in range(lanes)]
        high = [n + lane_bit if not n & lane_bit else lanes + n for n in range(lanes)]
        out[i], now[i] = k.shuffle(regs[i], regs[j], low), [both[n] for n in low]
        out[j], now[j] = k.shuffle(regs[i], regs[j], high), [both[n] for n in high]
    return out, now


def _picked(k: Kernel, regs: list[Reg], held: Held, wanted: list[tuple[int, int]]) -> Reg:
    """The vector of wanted elements, from as many registers as hold some."""
    sources = [i for i, have in enumerate(held) if set(have) & set(wanted)]
    found, have = regs[sources[0]], held[sources[0]]
    for i in sources[1:] or sources:
        place = {label: n for n, label in enumerate([*have, *held[i]])}
        # Lanes that no register so far holds are filled later; until then with anything.
        found = k.shuffle(found, regs[i], [place.get(label, 0) for label in wanted])
        have = [label if label in place else (-1, n) for n, label in enumerate(wanted)]
    return found
