"""Apple's neural engine: mir to Core ML's ML programs, as .mlpackage folders.

``features.py`` has the systems, ``words.py`` what MIL says, ``emit.py`` the stages,
``residency.py`` what would leave the engine by Apple's guidance, ``launch.py`` the device of a Mac.
"""

from __future__ import annotations

from rlx.targets.ane.features import DEFAULT, LACKS, preset
from rlx.targets.base import Target

__all__ = ["make_target"]


def make_target(features: str = "") -> Target:
    """The target of the features of a name."""
    from rlx.targets.ane.emit import STAGES, Ane
    from rlx.targets.graph.system import whole_target

    found = preset(features or DEFAULT)
    return whole_target("ane", found, Ane(found), STAGES, LACKS, index_bits=32)
