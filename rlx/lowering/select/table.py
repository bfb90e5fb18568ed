"""How each kernel family claims a region and lowers it: a file per family.

A claim gives None, or the reason why the family cannot run the region. Nothing here is guessed
from a fused region's kind: the claim reads the body.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx.errors import UnsupportedError
from rlx.lowering.region import Region
from rlx.lowering.select import attention, fft
from rlx.lowering.select.conv import pool
from rlx.lowering.select.conv import select as conv
from rlx.lowering.select.conv import weights_grad as conv_weights
from rlx.lowering.select.elementwise import copy
from rlx.lowering.select.elementwise import select as elementwise
from rlx.lowering.select.fallback import foreign as custom
from rlx.lowering.select.fallback import select as common
from rlx.lowering.select.index import gather, scatter
from rlx.lowering.select.matmul import blocked as contraction
from rlx.lowering.select.reduce import select as reduce
from rlx.lowering.select.rowwise import select as rowwise
from rlx.lowering.select.selector import Selector, spread_source
from rlx.ops.movement.movement import Expand

__all__ = ["SELECTORS", "buffers_of", "claim", "not_native", "select"]

SELECTORS: dict[str, Selector] = {
    "fft": fft.SELECTOR,
    "custom": custom.SELECTOR,
    "contraction": contraction.SELECTOR,
    "integer_contraction": contraction.INTEGERS,
    "conv": conv.SELECTOR,
    "conv_weights": conv_weights.SELECTOR,
    "attention": attention.SELECTOR,
    "attention_grad": attention.GRAD,
    "rowwise": rowwise.SELECTOR,
    "elementwise": elementwise.SELECTOR,
    "copy": copy.SELECTOR,
    "gather": gather.SELECTOR,
    "scatter": scatter.SELECTOR,
    "reduce": reduce.SELECTOR,
    "pool": pool.SELECTOR,
    "common": common.SELECTOR,
}
"""In the order in which they are asked."""


def claim(family: str, region: Region) -> str | None:
    """None if the family runs the region, else why not."""
    return region.body.fact(f"{family} claims", lambda: SELECTORS[family].claim(region))


def buffers_of(region: Region) -> int:
    """The buffers that the kernel of a fused region binds: what it reads, and its results. An
    operand that is read in two shapes is two of them."""

    def count() -> int:
        read = (v for n in region.nodes if not isinstance(n, Expand) for v in n.present)
        return len({v for v in read if spread_source(v) in region.leaves} | {*region.outs})

    return region.body.fact("buffers", count)


def not_native(
    op: str, target: str, reasons: Mapping[str, str], place: tuple[str, int]
) -> UnsupportedError:
    """The error of an op of ``Options.force_native`` that no family claims."""
    listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    return UnsupportedError(
        f"force_native names {op}, which no kernel family of {target} runs here"
        f" ({listed or 'it has none for it'}); leave it out, or change what is said",
        place,
    )


def select(region: Region, families: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The first of ``families``, and last the common way, that claims a region; the refusals."""
    reasons: dict[str, str] = {}
    for family in SELECTORS:
        if family != "common" and family not in families:
            continue
        reason = claim(family, region)
        if reason is None:
            return family, reasons
        reasons[family] = reason
    return None, reasons
