"""The selectors: each kernel family claims regions and lowers them, a file per family.

A claim gives None, or the reason why the family cannot run the region. Nothing here is guessed
from a fused region's kind: the claim reads the body.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from rlx.errors import UnsupportedError
from rlx.kernels.registry import FAMILIES
from rlx.lowering.region import Region
from rlx.lowering.select.selector import Selector, Several, spread_source
from rlx.ops.movement.movement import Expand

__all__ = ["SELECTORS", "buffers_of", "claim", "not_native", "select"]


class _Selectors(Mapping[str, Selector]):
    """The selectors by family, each imported as it is asked for: a CPU needs no code of GPUs."""

    def __init__(self) -> None:
        self._places = {row.name: row.selector for row in FAMILIES.values() if row.selector}
        self._known: dict[str, Selector] = {}

    def __getitem__(self, family: str) -> Selector:
        if family not in self._known:
            module, _, name = self._places[family].partition(":")
            found = importlib.import_module(f"rlx.lowering.select.{module}")
            self._known[family] = getattr(found, name)
        return self._known[family]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


SELECTORS = _Selectors()
"""In the order in which they are asked."""


def claim(family: str, region: Region) -> str | None:
    """None if the family runs the region, else why not."""
    row = FAMILIES[family]
    if region.body.joint and not row.joint:
        return Several(f"it has {len(region.outs)} results, and a kernel of this family one")
    if row.ops and not any(n.name in row.ops for n in region.nodes):
        return f"it holds no {' or '.join(name.partition('.')[2] for name in row.ops)}"
    return region.body.fact(("claim", family), lambda: SELECTORS[family].claim(region))


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

    def first() -> tuple[str | None, dict[str, str]]:
        reasons: dict[str, str] = {}
        for family in SELECTORS:
            if family != "common" and family not in families:
                continue
            reason = claim(family, region)
            if reason is None:
                return family, reasons
            reasons[family] = reason
        return None, reasons

    return region.body.fact(("selected", families), first)
