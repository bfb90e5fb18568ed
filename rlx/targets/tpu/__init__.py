"""TPUs: mir to StableHLO, which the TPU's own compiler (libtpu) takes through PJRT.

``features.py`` has the generations, ``hlo.py`` the words of StableHLO, ``emit.py`` the stages,
``pjrt.py`` PJRT's C interface, and ``launch.py`` the device.
"""

from __future__ import annotations

from rlx.targets.base import Target
from rlx.targets.tpu.features import DEFAULT, LACKS, preset

__all__ = ["make_target"]


def make_target(features: str = "") -> Target:
    """The target for a generation of TPUs, by its name."""
    from rlx.targets.graph.system import whole_target
    from rlx.targets.tpu.emit import STAGES, Tpu

    found = preset(features or DEFAULT)
    return whole_target("tpu", found, Tpu(found), STAGES, LACKS)
