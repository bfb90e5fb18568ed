"""A network as a project of C, its build, and its run on a board that QEMU emulates."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ToolchainError
from rlx.ir.attrs import to_array
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.targets.cortexm.features import DEFAULT, Core, preset
from rlx.targets.cortexm.project import COMPILER, EMULATOR, LINK, OPTIONS, QEMU, project
from rlx.targets.cortexm.source import plan
from rlx.targets.integer.network import Network
from rlx.targets.integer.read import read_network

__all__ = ["Built", "Firmware", "Ran", "export_cortexm", "network"]

Array = np.ndarray[Any, Any]

UNITS = ("model", "startup", "main")


@frozen
class Built:
    """Bytes of flash (code, and constants) and RAM (the arena) that the model takes, and of flash
    that the whole image does, with its start and its example."""

    flash: int
    ram: int
    image: int


@frozen
class Ran:
    """Results [B, elements] as integers, and instructions an image."""

    results: Array
    instructions: float


@public
@frozen
class Firmware:
    """What ``export_cortexm`` has written: the network, the core and the folder."""

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
        gcc = _tool(COMPILER, "gcc-arm-none-eabi")
        for unit in UNITS:
            words = [gcc, *self.core.flags, *OPTIONS, "-c", f"{unit}.c", "-o", f"{unit}.o"]
            run(words, self.folder, COMPILER)
        objects = [f"{unit}.o" for unit in UNITS]
        words = [gcc, *self.core.flags, *LINK, *objects, "-lgcc", "-o", "firmware.elf"]
        run(words, self.folder, COMPILER)
        size = _tool(COMPILER, "gcc-arm-none-eabi").removesuffix("gcc") + "size"
        text = run([size, "model.o", "firmware.elf"], self.folder, "size")
        model, image = ([int(n) for n in line.split()[:3]] for line in text.splitlines()[1:])
        return Built(model[0] + model[1], model[1] + model[2], image[0] + image[1])

    def run(self, codes: Any) -> Ran:
        """Build it, and run i8 codes (``network.codes(images)``) on the board that QEMU emulates,
        an image at a time. ToolchainError without arm-none-eabi-gcc or qemu-system-arm, or if
        one of them fails."""
        given = np.ascontiguousarray(to_array(codes, "run"), np.int8)
        emulator = _tool(EMULATOR, "qemu-system-arm")
        self.build()
        (self.folder / "codes.bin").write_bytes(given.tobytes())
        words = [emulator, "-M", self.core.board, "-kernel", "firmware.elf", *QEMU]
        text = run(words, self.folder, EMULATOR)
        found = text.split()
        images, ticks = int(found[found.index("images") + 1]), int(found[found.index("ticks") + 1])
        assert images == len(given), text
        last = self.network.layers[-1]
        out = np.fromfile(self.folder / "results.bin", f"<i{last.bits // 8}")
        # With -icount shift=0 an instruction takes one nanosecond.
        instructions = ticks * 1e9 / self.core.hertz / max(images, 1)
        return Ran(out.astype(np.int64).reshape(images, -1), instructions)


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
    gave: dense layers and convolutions (depthwise ones too), their biases, batch norms and relus,
    max and mean pools, flattenings, and an argmax at the end.

    Requantization is by multipliers of 31 bits and a shift, TensorFlow Lite's. Results are of 16
    bits, or the class. UnsupportedError names an op that is no layer, and says how to quantise a
    product of floats; GraphError is for scales and biases that do not fit, and ShapeError for
    images of unknown sizes.
    """
    return read_network(graph, params or {})


@located
def export_cortexm(
    graph: Graph | Network,
    folder: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    target: str = "cortexm:m4",
) -> Firmware:
    """Write a project of C for a network, or for a graph that ``network`` takes, into a folder,
    which is made: ``model.h`` and ``model.c``, the kernels, and a start, an example and a link
    script for a board of QEMU's.

    ``target`` is a core: "cortexm:m0", "m3", "m4", "m7", "m33" or "m55". DeviceError for another
    target, and what ``network`` raises.
    """
    core = preset(DEFAULT if target == "cortexm" else target.removeprefix("cortexm:"))
    found = graph if isinstance(graph, Network) else network(graph, params)
    at = Path(folder)
    at.mkdir(parents=True, exist_ok=True)
    for name, text in project(found, core).items():
        (at / name).write_text(text)
    return Firmware(found, core, at)
