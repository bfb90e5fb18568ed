"""Browsers: the WGSL of the target ``gpu``, for programs that ``rlx.runtime.web`` writes.

rlx export-web model.rlx.mlir -o site
"""

from __future__ import annotations

from functools import partial

from rlx.targets.gpu import source_target

__all__ = ["make_target"]

make_target = partial(source_target, "webgpu", "wgsl:WGSL")
