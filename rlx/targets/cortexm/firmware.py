"""A network as a project of C, its build, and its run on a board that QEMU emulates."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import NameError, ShapeError, ToolchainError
from rlx.ir.attrs import to_array
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.targets.cortexm.features import Core
from rlx.targets.cortexm.program import Program
from rlx.targets.cortexm.project import COMPILER, EMULATOR, LINK, OPTIONS, QEMU
from rlx.targets.cortexm.source import plan
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import read_network
from rlx.types import DTYPES

__all__ = ["Built", "Firmware", "FloatFirmware", "FloatRan", "Ran", "network"]

Array = np.ndarray[Any, Any]


@frozen
class Built:
    """Bytes of flash (code, what it takes of libgcc, and constants) and RAM (the arena) that the
    model takes, and of flash that the whole image does, with its start and its example."""

    flash: int
    ram: int
    image: int


@frozen
class Ran:
    """Results [B, elements] as integers, and instructions an image."""

    results: Array
    instructions: float


@frozen
class FloatRan:
    """Outputs, each with the runs as its first axis, and instructions a run."""

    outputs: tuple[Array, ...]
    instructions: float


@public
@frozen
class Firmware:
    """What ``export_cortexm`` has written of a network: the network, the core and the folder."""

    network: Network
    core: Core
    folder: Path

    @property
    def arena_bytes(self) -> int:
        """RAM that activations take."""
        return plan(self.network, self.core).arena_bytes

    def build(self) -> Built:
        """Compile and link it as firmware.elf in its folder; ToolchainError without
        arm-none-eabi-gcc, or if it fails."""
        return _build(self.folder, self.core, ("model.c",))

    def run(self, codes: Any) -> Ran:
        """Build it, and run i8 codes (``network.codes(images)``) on the board that QEMU emulates,
        an image at a time. ToolchainError without arm-none-eabi-gcc or qemu-system-arm, or if
        one of them fails."""
        given = np.ascontiguousarray(to_array(codes, "run"), np.int8)
        last = self.network.layers[-1]
        data, instructions = _run(self.folder, self.core, given.tobytes(), len(given), self.build)
        out = np.frombuffer(data, f"<i{last.bits // 8}")
        return Ran(out.astype(np.int64).reshape(len(given), -1), instructions)


@public
@frozen
class FloatFirmware:
    """What ``export_cortexm`` has written of a graph of floats: its program, the core and the
    folder."""

    program: Program
    core: Core
    folder: Path

    @property
    def arena_bytes(self) -> int:
        """RAM that activations, inputs and outputs take."""
        return self.program.arena_bytes

    def build(self) -> Built:
        """As ``Firmware.build``."""
        return _build(self.folder, self.core, ("model.c", "floats.c"), ("kernels.o",))

    def run(self, inputs: Mapping[str, Any]) -> FloatRan:
        """Build it, and run it on the board that QEMU emulates. Arrays by the names of the inputs,
        with one more axis before theirs: the runs. NameError and ShapeError for arrays that do not
        fit, and what ``Firmware.run`` raises; a fault of the program, such as an index out of
        range, is a ToolchainError."""
        schedule, ends = self.program.schedule, self.program.inputs
        names = [name for name, _, _ in schedule.inputs]
        if {*names} != {*inputs}:
            raise NameError(f"run takes the inputs {', '.join(names)}, found {', '.join(inputs)}")
        arrays: list[Array] = []
        for name, dt, shape in schedule.inputs:
            a = np.ascontiguousarray(to_array(inputs[name], "run"), DTYPES[dt].numpy)
            if a.shape[1:] != tuple(shape):
                raise ShapeError(f"run: {name} has runs of {list(shape)}, found {list(a.shape)}")
            arrays.append(a)
        runs = len(arrays[0]) if arrays else 1
        if any(len(a) != runs for a in arrays):
            raise ShapeError(f"run: inputs have {sorted({len(a) for a in arrays})} runs")
        rows = np.zeros((runs, ends[-1]), np.uint8)
        for a, at in zip(arrays, ends, strict=False):
            own = a.reshape(runs, -1).view(np.uint8)
            rows[:, at : at + own.shape[1]] = own
        data, instructions = _run(self.folder, self.core, rows.tobytes(), runs, self.build)
        found = np.frombuffer(data, np.uint8).reshape(runs, self.program.outputs[-1])
        outputs = tuple(
            found[:, at : at + prod(shape) * DTYPES[dt].bytes].copy()
            .view(DTYPES[dt].numpy).reshape(runs, *shape)
            for (_, dt, shape), at in zip(schedule.outputs, self.program.outputs, strict=False)
        )  # fmt: skip
        return FloatRan(outputs, instructions)


def _build(folder: Path, core: Core, model: Sequence[str], made: Sequence[str] = ()) -> Built:
    gcc = _tool(COMPILER, "gcc-arm-none-eabi")
    objects = list(made)
    for unit in (*model, "startup.c", "main.c"):
        objects.append(unit[:-2] + ".o")
        words = [gcc, *core.flags, *OPTIONS, "-c", unit, "-o", objects[-1]]
        run(words, folder, COMPILER)
    words = [gcc, *core.flags, *LINK, *objects, "-lgcc", "-o", "firmware.elf"]
    run(words, folder, COMPILER)
    size = _tool(COMPILER, "gcc-arm-none-eabi").removesuffix("gcc") + "size"
    text = run([size, *objects, "firmware.elf"], folder, "size")
    rows = [[int(n) for n in line.split()[:3]] for line in text.splitlines()[1:]]
    image, around = rows[-1], rows[-3:-1]
    flash = sum(image[:2]) - sum(row[0] + row[1] for row in around)
    return Built(flash, sum(row[1] + row[2] for row in rows[:-3]), sum(image[:2]))


def _run(
    folder: Path, core: Core, data: bytes, images: int, build: Callable[[], Built]
) -> tuple[bytes, float]:
    """What an image writes of what it reads, and instructions a run."""
    emulator = _tool(EMULATOR, "qemu-system-arm")
    build()
    (folder / "codes.bin").write_bytes(data)
    words = [emulator, "-M", core.board, "-kernel", "firmware.elf", *QEMU]
    found = run(words, folder, EMULATOR).split()
    count, ticks = int(found[found.index("images") + 1]), int(found[found.index("ticks") + 1])
    assert count == images, found
    # With -icount shift=0 an instruction takes one nanosecond.
    return (folder / "results.bin").read_bytes(), ticks * 1e9 / core.hertz / max(images, 1)


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolchainError(f"{name} is not on the PATH: install {package} (Debian's package)")
    return found


def run(words: list[str], folder: Path, name: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(f"{name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


@located
def network(graph: Graph, params: Mapping[str, Any] | None = None) -> Network:
    """The integers of a graph that ``rlx.quant.quantize_graph(graph, params, "int8", calibration)``
    gave, or whose numbers go through ``quantize`` and ``dequantize``: dense layers and convolutions
    (depthwise ones too), their biases, batch norms and relus, max and mean pools, flattenings, and
    an argmax at the end.

    Requantization is by multipliers of 31 bits and a shift, TensorFlow Lite's. Results are of 16
    bits, or the class. UnsupportedError names an op that is no layer, and says how to quantise a
    product of floats; GraphError is for scales and biases that do not fit, and ShapeError for
    images of unknown sizes.
    """
    return read_network(graph, params or {})
