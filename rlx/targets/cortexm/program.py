"""A schedule of floats as C: one static memory, weights in flash, a call of a kernel a launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import UnsupportedError
from rlx.schedule.plan import Schedule, Signature
from rlx.schedule.steps import For, If, Launch, Place, Step, While, launches
from rlx.targets.cortexm.features import Core
from rlx.types import DTYPES

__all__ = ["Program", "header", "source"]

Array = np.ndarray[Any, Any]

ALIGN = 16
SLACK = 64
"""Bytes behind each memory, which kernels may read."""

ERROR_BYTES = 16
_ROUNDS_OVER = 1
"""The code of a loop that reaches its limit."""


@frozen
class Program:
    """A schedule without a prologue: what that made of params is ``packed``; ``constants`` are the
    params that main reads, and constants, by the numbers of their memories."""

    name: str
    core: Core
    schedule: Schedule
    symbols: tuple[str, ...]
    packed: Array
    constants: dict[int, Array]

    @property
    def scratch_bytes(self) -> int:
        """Of the launch that needs most."""
        return max((int(s.grid[2]) for s in launches(self.schedule.main)), default=0)

    @property
    def inputs(self) -> list[int]:
        """Where each input lies behind the first, and the end of the last."""
        return _places(self.schedule.inputs)

    @property
    def outputs(self) -> list[int]:
        """The same of outputs."""
        return _places(self.schedule.outputs)

    @property
    def memory(self) -> dict[str, int]:
        """Where each part of the arena begins, and where it ends ("end")."""
        sizes = {
            "arena": int(self.schedule.arena_bytes) + SLACK, "scratch": self.scratch_bytes,
            "error": ERROR_BYTES, "inputs": self.inputs[-1] + SLACK,
            "outputs": self.outputs[-1] + SLACK,
        }  # fmt: skip
        found, at = dict[str, int](), 0
        for name, size in sizes.items():
            found[name], at = at, at + _aligned(size)
        return {**found, "end": at}

    @property
    def arena_bytes(self) -> int:
        """RAM that activations, inputs and outputs take."""
        return self.memory["end"]

    @property
    def weight_bytes(self) -> int:
        """Flash that numbers take."""
        return sum(a.nbytes for a in (self.packed, *self.constants.values()))

    @property
    def report(self) -> str:
        """What it takes, in words."""
        return (
            f"{self.core.name}: an arena of {self.arena_bytes} bytes of RAM, and"
            f" {self.weight_bytes} bytes of weights in flash beside the code"
        )


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


def _places(signatures: Sequence[Signature]) -> list[int]:
    ends = [0]
    for _, dt, shape in signatures:
        ends.append(ends[-1] + _aligned(prod(shape) * DTYPES[dt].bytes))
    return ends


def _word(name: str) -> str:
    """A name as part of one of C's macros."""
    return re.sub(r"\W", "_", name).upper()


def header(program: Program) -> str:
    """model.h."""
    s = program.schedule
    lines: list[str] = []
    for what, signatures, ends in (
        ("INPUT", s.inputs, program.inputs), ("OUTPUT", s.outputs, program.outputs)
    ):  # fmt: skip
        lines.append(f"#define MODEL_{what}_BYTES {ends[-1]}")
        for n, (name, dt, shape) in enumerate(signatures):
            lines += [
                f"/* {_comment(name)}: {dt}{list(shape)} */",
                f"#define MODEL_{what}_{_word(name)} {ends[n]}",
                f"#define MODEL_{what}_{_word(name)}_BYTES {prod(shape) * DTYPES[dt].bytes}",
            ]
    rows = "\n".join(lines)
    return f"""\
/* {_comment(program.name)}, for Cortex-{program.core.name.upper()}: a static program without a heap. */
#ifndef MODEL_H
#define MODEL_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of all inputs and of all outputs, and where each begins among them. */
{rows}

#define MODEL_ARENA_BYTES {program.arena_bytes}
#define MODEL_WEIGHT_BYTES {program.weight_bytes}

/* Where the inputs go before each run. */
void *model_input(void);

/* Run, and give the outputs, which lie there until the next run; NULL after a fault, such as an
   index out of range, whose number model_fault() gives. */
const void *model_run(void);

int64_t model_fault(void);

#endif
"""  # noqa: E501


def _comment(text: str) -> str:
    """What cannot end a comment."""
    return text.replace("*/", "* /").replace("\n", " ")


def source(program: Program) -> str:
    """model.c."""
    s, memory = program.schedule, program.memory
    body = "\n".join(f"  {line}" for line in _Writer(program).steps(s.main, 0))
    used = sorted({program.symbols[x.kernel] for x in launches(s.main)})
    kernels = "\n".join(
        f"void {k}(int32_t, int32_t, void *const *, const int32_t *, void *);" for k in used
    )
    tables = [_table("packed", program.packed)]
    tables += [_table(f"constant_{n}", a) for n, a in program.constants.items()]
    zeros = "\n".join(f"  error[{n}] = 0;" for n in range(ERROR_BYTES // 8))
    return f"""\
#include "model.h"

{chr(10).join(tables)}

static __attribute__((aligned({ALIGN}))) uint8_t memory[MODEL_ARENA_BYTES];

{kernels}

void *model_input(void) {{ return memory + {memory["inputs"]}; }}

int64_t model_fault(void) {{ return ((int64_t *)(void *)(memory + {memory["error"]}))[1]; }}

const void *model_run(void) {{
  int64_t *error = (int64_t *)(void *)(memory + {memory["error"]});
{zeros}
{body}
  return error[0] ? NULL : memory + {memory["outputs"]};
}}
"""


def _table(name: str, a: Array) -> str:
    """Bytes in flash, as words."""
    data = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    data = np.pad(data, (0, _aligned(len(data) + SLACK) - len(data)))
    words = [hex(v) for v in data.view("<u4").tolist()]
    lines = [", ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
    text = ",\n    ".join(lines)
    kind = f"static const __attribute__((aligned({ALIGN}), unused)) uint32_t"
    return f"{kind} {name}[{len(words)}] = {{\n    {text}}};"


class _Writer:
    """Steps as lines of C."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def steps(self, steps: Iterable[Step[Place]], depth: int) -> Iterator[str]:
        """The lines of steps that stand inside ``depth`` loops."""
        for step in steps:
            if isinstance(step, Launch):
                yield from self.launch(step)
            elif isinstance(step, If):
                yield f"if (*(const uint8_t *){self.place(step.flag)}) {{"
                yield from self.steps(step.then, depth)
                yield "} else {"
                yield from self.steps(step.otherwise, depth)
                yield "}"
            elif isinstance(step, For):
                yield f"for (int32_t n{depth} = 0; n{depth} < {step.rounds}; n{depth}++) {{"
                number = f"{int(step.rounds) - 1} - n{depth}" if step.reverse else f"n{depth}"
                yield f"int32_t round{depth} = {number};"
                if step.counter is not None:
                    yield f"*(int64_t *){self.place(step.counter)} = round{depth};"
                yield f"(void)round{depth};"
                yield from self.steps(step.body, depth + 1)
                yield "}"
            elif isinstance(step, While):
                yield from self.loop(step, depth)
            else:
                raise UnsupportedError(
                    f"cortexm: {self.program.name!r} has a {type(step).__name__.lower()}, and a"
                    " program of a microcontroller has kernels, branches and loops alone"
                )

    def loop(self, step: While[Place], depth: int) -> Iterator[str]:
        """A loop of as many rounds as it takes."""
        yield f"for (int64_t n{depth} = 0;; n{depth}++) {{"
        yield from self.steps(step.test, depth)
        yield f"if (!*(const uint8_t *){self.place(step.flag)}) break;"
        if int(step.limit) >= 0:
            yield f"if (n{depth} >= {step.limit}) {{"
            yield f"error[0] = {_ROUNDS_OVER}, error[1] = {step.site};"
            yield "return NULL;"
            yield "}"
        yield from self.steps(step.body, depth)
        yield "}"

    def launch(self, step: Launch[Place]) -> Iterator[str]:
        """A call of a kernel on its whole range."""
        moves = any(p.moves for p in step.places)
        buffers = ", ".join(map(self.place, step.places)) or "0"
        kind = "void *const" if moves else "static void *const"
        sizes = ", ".join(str(int(v)) for v in step.sizes) or "0"
        at = self.program.memory["scratch"]
        yield "{"
        yield f"{kind} buffers[] = {{{buffers}}};"
        yield f"static const int32_t sizes[] = {{{sizes}}};"
        yield (
            f"{self.program.symbols[step.kernel]}(0, {step.grid[0]}, buffers, sizes,"
            f" memory + {at});"
        )
        yield "}"

    def place(self, place: Place) -> str:
        """The address of a place."""
        own, memory = self.program, self.program.memory
        role, n = own.schedule.memories[place.base]
        name, at = "memory", int(place.offset)
        if role == "packed":
            name = "packed"
        elif role in ("param", "constant"):
            name = f"constant_{place.base}"
        elif role == "input":
            at += memory["inputs"] + own.inputs[n]
        elif role == "output":
            at += memory["outputs"] + own.outputs[n]
        else:
            at += memory[role]
        rounds = "".join(f" + round{depth} * {step}" for depth, step in place.moves)
        return f"(void *)((uint8_t *){name} + {at}{rounds})"
