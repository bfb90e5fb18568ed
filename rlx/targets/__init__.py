"""Targets by name: a directory each, with the same files.

``features.py`` says what machines there are, and imports nothing that compiles: ``PRESETS`` by
name, from the least to the best, the ``DEFAULT``, ``preset(name)``, and ``best(found)``, the
features to compile for where a device has ``found``. Features have a ``name``, the ``isa``, which
is the preset that they are built on, and ``has``: what code for them needs of a device, in the
words of its driver's ``features``. A compile takes what ``make_target(features)`` of the package
itself makes.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from rlx import knobs
from rlx.errors import DeviceError, did_you_mean

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = [
    "PROJECTS", "TARGETS", "Features", "best_features", "default_target", "features_of",
    "find_project", "find_target", "parse_target", "presets", "rank",
]  # fmt: skip

TARGETS = {
    "cpu": "rlx.targets.cpu",
    "cuda": "rlx.targets.cuda",
    "rocm": "rlx.targets.rocm",
    "vulkan": "rlx.targets.vulkan",
    "gpu": "rlx.targets.gpu",
    "opencl": "rlx.targets.opencl",
    "metal": "rlx.targets.metal",
    "opengl": "rlx.targets.opengl",
    "directx": "rlx.targets.directx",
    "webgpu": "rlx.targets.webgpu",
    "wasm": "rlx.targets.wasm",
    "tpu": "rlx.targets.tpu",
    "mlx": "rlx.targets.mlx",
    "ane": "rlx.targets.ane",
}
"""The package of each target."""


PROJECTS = {"cortexm": "rlx.targets.cortexm", "fpga": "rlx.targets.fpga"}
"""The package of each target whose programs are folders of sources for other tools, of whole
networks: no device of RLX runs them. Beside ``features`` it has ``project``, with ``STAGES``, the
names of files by what ``rlx-opt --emit`` calls them, and ``files(graph, params, features)``, which
gives all files by name, and a line that says what they take."""


class Features(Protocol):
    """What a machine has, as far as the code for it depends on it."""

    @property
    def name(self) -> str:
        """What it is called: the preset, and what goes beyond it."""
        ...

    @property
    def isa(self) -> str:
        """The preset."""
        ...

    @property
    def has(self) -> frozenset[str]:
        """What code for it needs of a device."""
        ...


def parse_target(text: str) -> tuple[str, Features]:
    """The target and the features that ``"cuda"`` or ``"cuda:sm_90"`` name, by any name of the
    device ("nvidia:sm_90", "Vulkan"); DeviceError lists those that there are. Nothing that compiles
    is imported."""
    if not isinstance(text, str):
        raise DeviceError(
            f"a target is text such as 'cpu' or 'cuda:sm_90', found {text!r}; there are"
            f" {', '.join(TARGETS)}"
        )
    given, _, wanted = text.partition(":")
    name = given if given in TARGETS else _renamed(given)
    module = features_of(name)
    return name, module.preset(wanted or module.DEFAULT)


def find_project(text: Any) -> tuple[str, Any, Any] | None:
    """The target, its module ``project`` and the features that text such as "cortexm:m4" names;
    None for what is no target of ``PROJECTS``, DeviceError for features that there are not."""
    name, _, wanted = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in PROJECTS:
        return None
    own = importlib.import_module(f"{PROJECTS[name]}.features")
    features = own.preset(wanted or own.DEFAULT)
    return name, importlib.import_module(f"{PROJECTS[name]}.project"), features


def default_target() -> str:
    """The target where none is asked for: that of RLX_DEVICE, else "cpu". DeviceError, which says
    which variable, for what is none."""
    wanted = knobs.device.get() or "cpu"
    with knobs.device.blamed():
        parse_target(wanted)
    return wanted


def _renamed(given: str) -> str:
    """The device of another name of it, or what was given if that is none."""
    from rlx.base.device_names import NAMES

    return NAMES.get(given.strip().lower(), given)


def presets(name: str) -> tuple[str, ...]:
    """The features of a target that have a name of their own; DeviceError for no target."""
    return tuple(features_of(name).PRESETS)


def rank(name: str, features: Features) -> tuple[int, int]:
    """Larger for the better of two features of a target."""
    return presets(name).index(features.isa), len(features.has)


def best_features(name: str, found: Collection[str]) -> Features:
    """The features to compile for, where a device has what ``found`` names; DeviceError if RLX has
    none for it."""
    return features_of(name).best(frozenset(found))


def find_target(text: str) -> Target:
    """The target that ``"cpu"`` or ``"cpu:x86-64-v4"`` names, by any name of the device;
    DeviceError if there is none."""
    name, features = parse_target(text)
    return importlib.import_module(TARGETS[name]).make_target(features.name)


def features_of(name: str) -> Any:
    """The module ``features`` of a target; DeviceError if there is no such target."""
    if name in PROJECTS:
        raise DeviceError(
            f"no device of RLX runs {name!r}: its programs are folders of sources, which"
            f" rlx.compile_artifact(graph, {name!r}) and rlx compile --target {name} -o FOLDER make"
        )
    if name not in TARGETS:
        raise DeviceError(
            f"no target is called {name!r}{did_you_mean(name, TARGETS)}; "
            f"there are {', '.join(TARGETS)}"
        )
    return importlib.import_module(f"{TARGETS[name]}.features")
