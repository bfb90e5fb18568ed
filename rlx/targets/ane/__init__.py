"""Apple's neural engine: mir to Core ML's ML programs, as .mlpackage folders.

``features.py`` has the systems, ``words.py`` what MIL says, ``emit.py`` the stages,
``compress.py`` weights in few bits, ``residency.py`` what would leave the engine by Apple's
guidance, ``launch.py`` the device of a Mac.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.targets.ane.features import DEFAULT, LACKS, AneFeatures, preset
from rlx.targets.base import Target

__all__ = ["make_target", "target_with"]


def make_target(features: str = "") -> Target:
    """The target of the features of a name."""
    return target_with(preset(features or DEFAULT), {}, "")


def target_with(features: AneFeatures, values: Mapping[str, Any], weights: str) -> Target:
    """The target whose packages hold the values of params, in few bits if ``weights`` says so."""
    from rlx.targets.ane.emit import STAGES, Ane
    from rlx.targets.graph.system import whole_target

    system = Ane(features, values, weights)
    return whole_target("ane", features, system, STAGES, LACKS, index_bits=32)
