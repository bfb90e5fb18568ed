"""Features of WebAssembly engines that the emitted code depends on."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rlx.errors import DeviceError
from rlx.targets.llvm.machine import Machine
from rlx.targets.preset import check_extras, find_preset

__all__ = ["DEFAULT", "PRESETS", "Features", "best", "preset"]


class Features(NamedTuple):
    """A kind of engine: ``has`` names the proposals beyond the first WebAssembly that code uses."""

    isa: str
    has: frozenset[str]

    @property
    def name(self) -> str:
        """The preset."""
        return self.isa

    @property
    def machine_name(self) -> str:
        """As artifacts spell it."""
        return "wasm"

    @property
    def machine(self) -> Machine:
        """The machine that LLVM emits code for."""
        features = ",".join(f"+{name}" for name in sorted(self.has))
        return Machine("wasm32", "wasm32-unknown-unknown", "generic", features, reloc="static")


DEFAULT = "simd128"

PRESETS = {
    DEFAULT: Features(
        DEFAULT,
        frozenset(["simd128", "bulk-memory", "nontrapping-fptoint", "sign-ext", "mutable-globals"]),
    )
}
"""WebAssembly 2.0, which browsers since 2023 and node since version 16 run."""


def preset(name: str) -> Features:
    """The features called ``name``; DeviceError for an unknown one."""
    isa, *extras = name.split("+")
    found = find_preset(PRESETS, isa, "WebAssembly profile", "modules")
    check_extras(isa, extras, ())
    return found


def best(found: Collection[str]) -> Features:
    """The features to compile for where an engine has ``found``; DeviceError if it lacks some."""
    wanted = PRESETS[DEFAULT]
    if missing := sorted(wanted.has - set(found)):
        raise DeviceError(f"this WebAssembly engine lacks {', '.join(missing)}")
    return wanted
