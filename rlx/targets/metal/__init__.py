"""Apple's GPUs: the Metal Shading Language, which the system compiles to the GPU's code.

    rlx-opt model.mlir --dispatch=common --emit=source --target=metal -o model.metal

How kernels are called is in ``rlx.targets.gpu.emit``. The target is the same on every machine; the
driver of ``launch`` needs a Mac.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["make_target"]


@cache
def make_target(features: str | None = None) -> Target:
    """The Metal target for a profile by name; by default metal2.4.

    Raises DeviceError for an unknown profile.
    """
    # Imported here: the driver needs nothing that compiles.
    from rlx.targets.gpu.emit import text_target
    from rlx.targets.gpu.languages.metal import METAL
    from rlx.targets.metal.features import DEFAULT, SHARED_BYTES, preset

    return text_target("metal", preset(features or DEFAULT), METAL, shared_bytes=SHARED_BYTES)
