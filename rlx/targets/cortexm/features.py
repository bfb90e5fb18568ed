"""The cores of microcontrollers that programs are written for, and the boards that QEMU has with
them."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.targets.llvm.machine import Machine
from rlx.targets.preset import find_preset

__all__ = ["DEFAULT", "PRESETS", "Core", "preset"]


@frozen
class Core:
    """A core: ``flags`` of compilers that take GCC's, and ``group``, how many elements of a row its
    products read at once. ``board`` is QEMU's name of a machine with it, whose flash and RAM begin
    at ``flash`` and ``ram`` and have so many bytes; its SysTick counts ``hertz``.

    ``machine`` is what LLVM is told of it, for kernels of floats: ``floats`` says that it has
    instructions for f32, a multiply-add of one rounding among them."""

    name: str
    flags: tuple[str, ...]
    group: int
    board: str
    hertz: int
    flash: int
    flash_bytes: int
    ram: int
    ram_bytes: int
    machine: Machine
    floats: bool

    @property
    def vector_bytes(self) -> int:
        """Of a register of Helium, or of one number."""
        return 16 if self.group == 16 else 4


def _core(
    name: str, flags: str, board: str, hertz: int = 25_000_000, group: int = 4, flash: int = 0,
    flash_bytes: int = 4 << 20, ram: int = 0x20000000, ram_bytes: int = 1 << 20,
) -> Core:  # fmt: skip
    words = ("-mthumb", *(f"-m{f}" for f in flags.split()))
    floats = "float-abi=hard" in flags
    abi = "eabihf" if floats else "eabi"
    triple = f"{_ARCHITECTURES[name]}-unknown-none-{abi}"
    machine = Machine("arm", triple, f"cortex-{name}", reloc="static")
    return Core(
        name, words, group, board, hertz, flash, flash_bytes, ram, ram_bytes, machine, floats
    )


_ARCHITECTURES = {
    "m0": "thumbv6m", "m3": "thumbv7m", "m4": "thumbv7em", "m7": "thumbv7em",
    "m33": "thumbv8m.main", "m55": "thumbv8.1m.main",
}  # fmt: skip
"""As LLVM's triples spell them."""


PRESETS = {
    c.name: c
    for c in (
        _core("m0", "cpu=cortex-m0 float-abi=soft", "microbit", 16_000_000,
              flash_bytes=256 << 10, ram_bytes=16 << 10),
        _core("m3", "cpu=cortex-m3 float-abi=soft", "mps2-an385"),
        _core("m4", "cpu=cortex-m4 fpu=fpv4-sp-d16 float-abi=hard", "mps2-an386"),
        _core("m7", "cpu=cortex-m7 fpu=fpv5-sp-d16 float-abi=hard", "mps2-an500"),
        _core("m33", "cpu=cortex-m33 fpu=fpv5-sp-d16 float-abi=hard", "mps2-an505", 20_000_000,
              flash=0x10000000, ram=0x38000000),
        _core("m55", "cpu=cortex-m55 float-abi=hard", "mps3-an547", 32_000_000, group=16,
              flash_bytes=512 << 10, ram_bytes=512 << 10),
    )
}  # fmt: skip
"""Cortex-M0 to M55, from the least to the best."""

DEFAULT = "m4"


def preset(name: str) -> Core:
    """The core of a name; DeviceError for none."""
    return find_preset(PRESETS, name, "Cortex-M core", "programs")
