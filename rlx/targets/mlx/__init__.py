"""Apple's MLX: mir to functions of mlx.core, exported as .mlxfn files.

``features.py`` has the presets, ``words.py`` what mlx.core says, ``emit.py`` the stages and
``launch.py`` the device: the GPU of a Mac, and the processor elsewhere.
"""

from __future__ import annotations

from rlx.targets.base import Target
from rlx.targets.mlx.features import DEFAULT, LACKS, preset

__all__ = ["make_target"]


def make_target(features: str = "") -> Target:
    """The target of the features of a name."""
    from rlx.targets.graph.system import whole_target
    from rlx.targets.mlx.emit import STAGES, Mlx

    return whole_target("mlx", preset(features or DEFAULT), Mlx(), STAGES, LACKS)
