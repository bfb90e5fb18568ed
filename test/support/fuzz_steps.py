"""Steps of every kind with numbers that fit or not, run where they are taken: an input and an
output end where a page begins that nobody may touch, so that a bound that is not checked is a
finding."""

from __future__ import annotations

import ctypes
import mmap
import random
from functools import cache
from os import getpid
from typing import Any

import numpy as np

from rlx.errors import RlxError
from rlx.runtime import _native
from rlx.schedule.codec import main_words
from rlx.schedule.steps import KINDS, Field, For, Launch, Place, Step, Unit, axis_words
from support.fuzzing import Target

__all__ = ["STEPS"]

SIZE = 64
"""Bytes of each memory."""
X, Y = 3, 4

WORDS: dict[Unit, tuple[int, ...]] = {
    "bytes": (0, 1, 8, SIZE, SIZE + 1, 2 * SIZE), "elements": (0, 1, 4, 8, 16, 17, SIZE, 2 * SIZE),
    "element type": tuple(range(15)), "rounds": (0, 1, 2, 3), "ranks": (1,), "rank": (0,),
    "site": (0, 7), "choice": tuple(range(7)), "letters": axis_words("a"), "argument": (0, 1),
}  # fmt: skip
"""What words are mostly: one by what it counts. An endless loop is no finding, so no step says how
long to go on but these."""
COUNTS = (0, 0, 0, 1, 2)
"""Of words in a list: most kinds of collectives have no peers."""
WILD = (-1, SIZE - 1, SIZE + 8, 2**31, 2**40, 2**62, -(2**63))


def _steps(_: None, r: random.Random) -> list[Step[Place]]:
    return [_step(r, 0) for _ in range(r.choice((1, 1, 2)))]


def _step(r: random.Random, loops: int, depth: int = 0) -> Step[Place]:
    kind = r.choice([Launch] if depth > 2 else list(KINDS))
    inside = loops + (kind is For)
    return kind(**{f.name: _field(f, r, loops, inside, depth) for f in KINDS[kind]})


def _field(f: Field, r: random.Random, loops: int, inside: int, depth: int) -> Any:
    match f.kind:
        case "kernel":
            return 0
        case "grid":
            return (1, 1, 0)
        case "flag":
            return r.random() < 0.5
        case "word":
            return _word(f, r)
        case "words":
            return tuple(
                [_word(f, r) for _ in range(1 if f.unit == "letters" else r.choice(COUNTS))]
            )
        case "place":
            return _place(r, loops)
        case "place?":
            return _place(r, loops) if r.random() < 0.8 else None
        case "places":
            return tuple([_place(r, loops) for _ in range(r.randrange(3))])
        case "steps":
            return tuple([_step(r, inside, depth + 1) for _ in range(r.choice((0, 1, 1)))])


def _word(f: Field, r: random.Random) -> int:
    assert f.unit is not None
    if f.unit != "rounds" and r.random() < 0.03:
        return r.choice(WILD)
    return r.randint(f.least, f.most) if f.unit == "choice" and f.most else r.choice(WORDS[f.unit])


def _place(r: random.Random, loops: int) -> Place:
    offset = r.choice(WILD) if r.random() < 0.03 else r.choice((0, 0, 8, SIZE - 8, SIZE - 4, SIZE))
    moves = [(r.randrange(loops), r.choice((0, 8, 32, -8)))] if loops and r.random() < 0.3 else []
    return Place(r.choice((X, X, X, Y, Y, Y, Y, 5)), offset, tuple(moves))


@cache
def _memory(process: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    """What a process runs on: the input, the output, and a function that looks at nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    arrays: list[np.ndarray[Any, Any]] = []
    for _ in range(2):
        pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        for page in (0, 2):
            assert not libc.mprotect(address + page * mmap.PAGESIZE, mmap.PAGESIZE, 0)
        at = 2 * mmap.PAGESIZE - SIZE
        arrays.append(np.frombuffer(pages, np.uint8, SIZE, at))
    _native.set_threads(1)
    _native.bind_communicators(["a"], _native.team_of_threads(1), True)
    nothing = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    assert nothing is not None
    return arrays[0], arrays[1], nothing


def _attempt(steps: list[Step[Place]]) -> None:
    x, y, nothing = _memory(getpid())
    program = _native.Program(
        objects=[], functions=[nothing], kernels=[nothing], main=main_words(steps),
        inputs=[("x", "u8", (SIZE,))], outputs=[("y", "u8", (SIZE,))],
    )  # fmt: skip
    x[:] = y[:] = 0
    x[::3] = 1
    program.run_into([x], [y])


ALLOWED = (_native.Error, _native.Fault, RlxError, OverflowError)

STEPS = Target(lambda: None, _steps, _attempt, allowed=ALLOWED)
