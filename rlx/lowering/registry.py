"""The passes of the pipeline by name, in its order. Importing this loads none of them, nor MLIR."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rlx.errors import PassError, did_you_mean

if TYPE_CHECKING:
    from rlx.lowering.pass_base import Pass

__all__ = ["PASSES", "pass_class"]

PASSES = {
    "hir-to-mir": "rlx.lowering.passes.hir_to_mir:HirToMir",
    "legalize": "rlx.lowering.passes.legalize:Legalize",
    "simplify": "rlx.lowering.passes.simplify:Simplify",
    "share-inputs": "rlx.lowering.passes.share_inputs:ShareInputs",
    "hoist": "rlx.lowering.passes.hoist:Hoist",
    "fuse": "rlx.lowering.passes.fuse:Fuse",
    "reorder": "rlx.lowering.passes.reorder:Reorder",
    "mir-to-lir": "rlx.lowering.passes.mir_to_lir:MirToLir",
}
"""The module and class of each pass."""


def pass_class(name: str) -> type[Pass]:
    """The class of a pass, loading it; PassError with a suggestion if there is none."""
    if name not in PASSES:
        raise PassError(
            f"no pass is called {name!r}{did_you_mean(name, PASSES)}; there are {', '.join(PASSES)}"
        )
    module, _, cls = PASSES[name].partition(":")
    return getattr(importlib.import_module(module), cls)
