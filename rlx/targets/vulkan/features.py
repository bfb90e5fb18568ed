"""Features of Vulkan devices that the emitted SPIR-V depends on."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.targets.gpu.profiles import BUFFERS, buffer_words, most_of
from rlx.targets.preset import check_extras, find_preset
from rlx.types import DType, bf16, f16, f64, i8, i16, i64, u8, u16, u64

__all__ = ["DEFAULT", "EXTRAS", "PRESETS", "Extra", "Features", "best", "preset"]


@frozen
class Extra:
    """A kind of type that Vulkan leaves optional: what SPIR-V needs to compute with it and to keep
    it in storage buffers, and the element types that RLX needs it for."""

    capabilities: tuple[str, ...]
    extensions: tuple[str, ...]
    dtypes: tuple[DType, ...]


_8BIT, _16BIT = ("SPV_KHR_8bit_storage",), ("SPV_KHR_16bit_storage",)

EXTRAS: dict[str, Extra] = {
    # Bools come under int8: in memory they are bytes.
    "int8": Extra(("Int8", "StorageBuffer8BitAccess"), _8BIT, (i8, u8)),
    # In memory a bf16 is the upper half of an f32, as an integer.
    "int16": Extra(("Int16", "StorageBuffer16BitAccess"), _16BIT, (i16, u16, bf16)),
    "int64": Extra(("Int64",), (), (i64, u64)),
    "float16": Extra(("Float16", "StorageBuffer16BitAccess"), _16BIT, (f16,)),
    "float64": Extra(("Float64",), (), (f64,)),
    # Without it a driver may take x * 0 for 0, which is nan where x is infinite or nan.
    "nans": Extra(("SignedZeroInfNanPreserve",), ("SPV_KHR_float_controls",), ()),
}
"""By the names that features go by: ``vulkan1.1+int64``. A device has ``int8`` if it has Vulkan's
shaderInt8 and storageBuffer8BitAccess, and so on."""


@frozen
class Features:
    """A version of Vulkan, and what a device has: extras, and words for its number of buffers."""

    isa: str
    has: frozenset[str]

    @property
    def name(self) -> str:
        """``vulkan1.1+int64``: the version and what goes beyond its preset."""
        beyond = self.has - PRESETS[self.isa].has
        most = [f"buffers{self.most_buffers}"] if beyond & BUFFERS.keys() else []
        return "+".join([self.isa, *most, *sorted(beyond - BUFFERS.keys())])

    @property
    def lacks(self) -> dict[DType, str]:
        """The element types that kernels must do without, and what would provide them."""
        return {
            dt: f"compile for a device that has it, as {self.name}+{name} does"
            for name, extra in EXTRAS.items()
            if name not in self.has
            for dt in extra.dtypes
        }

    @property
    def most_threads(self) -> int:
        """Invocations that a group may have: 128 are every device's, 256 those of Vulkan 1.2's."""
        return 128 if self.isa == "vulkan1.1" else 256

    @property
    def most_buffers(self) -> int:
        """Buffers that a kernel may bind. Vulkan asks for 4, with which few programs could do;
        WebGPU, and so every browser, asks for 8."""
        return most_of(self.has, 8)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The SPIR-V capabilities that code may use."""
        found = {c for name in self.has & EXTRAS.keys() for c in EXTRAS[name].capabilities}
        return ("Shader", *sorted(found))

    @property
    def extensions(self) -> tuple[str, ...]:
        """The SPIR-V extensions that code may use."""
        found = {e for name in self.has & EXTRAS.keys() for e in EXTRAS[name].extensions}
        return ("SPV_KHR_storage_buffer_storage_class", *sorted(found))


PRESETS: dict[str, Features] = {
    f.isa: f
    for f in (
        # What every device has; and what those of desktops, and software devices, mostly have.
        Features("vulkan1.1", frozenset()),
        Features("vulkan1.2", frozenset(EXTRAS) | buffer_words(16)),
    )
}

DEFAULT = "vulkan1.2"


def preset(name: str) -> Features:
    """The features called ``name``, such as ``vulkan1.2+buffers32`` or ``vulkan1.1+int64``.

    Raises DeviceError for an unknown version or extra.
    """
    isa, *extras = name.split("+")
    base = find_preset(PRESETS, isa, "device profile", "SPIR-V")
    check_extras(isa, extras, [*EXTRAS, *BUFFERS])
    words = buffer_words(most_of(frozenset(extras), 0))
    return Features(isa, base.has | set(extras) | words)


def best(found: frozenset[str]) -> Features:
    """The extras and the buffers among ``found``, which every version goes with."""
    isa = [f.isa for f in PRESETS.values() if f.has <= found][-1]
    return Features(isa, found & (EXTRAS.keys() | BUFFERS.keys()))
