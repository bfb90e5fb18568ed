"""Artifacts for ranges of sizes: the dims that are bound, those with a range, and the variants."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx.base.dim_atoms import Symbol
from rlx.base.dims import SymDim
from rlx.errors import ShapeError, shown
from rlx.ir.clone import rebuild
from rlx.ir.graph import Graph, symbols_of
from rlx.ir.op import caller
from rlx.lowering.compilation import Options
from rlx.runtime.artifact import Artifact
from rlx.runtime.encoding import places_of
from rlx.runtime.sized import Variants

if TYPE_CHECKING:
    from rlx.runtime.sized_variant import SizedVariant, SizedVariants
    from rlx.targets.base import Target

__all__ = ["for_sizes", "prepared", "probed", "ranged", "within"]

_PROBES = 1024
"""The most sizes of several dims at once for which a variant is looked for."""
_LARGE = 1 << 20
"""A size for a dim without a limit that is larger than those of most calls."""


def ranged(graph: Graph, dims: Mapping[str, Any]) -> Graph:
    """The graph with the dims of a compile: an int binds one, a pair is the least and the most.

    Raises NameError for an unknown dim, ShapeError for what is neither.
    """
    found = graph.bind({name: d for name, d in dims.items() if not isinstance(d, tuple)})
    known = _known(graph, {name: d for name, d in dims.items() if isinstance(d, tuple)})
    return rebuild(found, lambda t: t.bind(known), known) if known else found


def _known(graph: Graph, dims: Mapping[str, Any]) -> dict[str, SymDim]:
    known: dict[str, SymDim] = {}
    for name, d in dims.items():
        if not isinstance(d, tuple) or len(d) != 2:
            raise ShapeError(f"the dim {name!r} is a size, or (least, most), found {shown(d)}")
        for size in d:  # within the range that it has
            graph.check_size(name, size)
        known[name] = SymDim.symbol(name, *d)
    return known


def within(graph: Graph, dims: Mapping[str, Any]) -> list[Symbol]:
    """The symbols of a graph, with the ranges or sizes of ``dims``. Raises as ``ranged`` does."""
    spans = {name: (d, d) if isinstance(d, int) else d for name, d in dims.items()}
    known = _known(graph, spans)
    leaves = symbols_of(v.type for v in (*graph.inputs, *graph.params))
    return [known[s.name].lone or s if s.name in known else s for s in leaves]


def for_sizes(graph: Graph, target: Target, options: Options) -> Artifact:
    """The artifact of a graph with symbolic dims, for one target and all sizes of their ranges. Its
    last variants are general: they serve what was not thought of.

    Raises ShapeError for a dim whose size no input tells.
    """
    inputs: list[Any] = [(str(v.name), v.dtype.name, v.type.shape) for v in graph.inputs]
    leaves = symbols_of(v.type for v in (*graph.inputs, *graph.params))
    told = places_of(inputs)
    if untold := [s.name for s in leaves if s not in told]:
        raise ShapeError(
            f"no input of graph {graph.name!r} tells the size of {', '.join(untold)}; give"
            f" dims={{{untold[0]!r}: 1, ...}}",
            caller(),
        )
    variants = Variants(graph, (target.name, target.features.name), lambda: target, options)
    prepared(variants, leaves)
    first = variants.found[0].artifact
    return replace(first, variants=tuple(v.artifact.variants[0] for v in variants.found))


def prepared(variants: SizedVariants, symbols: Iterable[Symbol]) -> list[SizedVariant]:
    """The variants that serve sizes of all ranges of symbols, made where they can be. Sizes that do
    not fit are passed over, such as those that no memory holds.

    ShapeError where none fit, for the reason that is found last; raises as the compiles do.
    """
    found: dict[SizedVariant, None] = {}
    refused: ShapeError | None = None
    symbols = list(symbols)
    alone = all(s.least == s.most for s in symbols)
    for sizes in probed(symbols):
        try:
            variant = variants.prepare(sizes, alone)
        except ShapeError as e:
            refused = e
            continue
        assert variant is not None, "it was made"
        found[variant] = None
    if refused is not None and not found:
        raise refused
    return list(found)


def probed(symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """Sizes in the ranges of symbols, the usual ones first: each with each where they are few."""
    sizes = [_sizes(s) for s in symbols]
    if len(many := list(itertools.islice(itertools.product(*sizes), _PROBES + 1))) > _PROBES:
        draw = random.Random(0)
        few = itertools.product(*([0, 1, *draw.choices(n, k=2)] for n in sizes))
        few = [f for f in few if all(n in known for n, known in zip(f, sizes, strict=True))]
        several = [tuple(map(draw.choice, sizes)) for _ in range(_PROBES)]
        many = [*zip(*sizes, strict=False), *few[:_PROBES], *several]
    for found in many:
        yield {s.name: n for s, n in zip(symbols, found, strict=True)}


def _sizes(symbol: Symbol) -> list[int]:
    """Sizes of a symbol at which variants differ: few, powers of two, and those beside them."""
    least, most = symbol.least, _LARGE if symbol.most is None else symbol.most
    powers = [1 << e for e in range(most.bit_length())]
    found = [
        *powers[3:],
        least,
        most,
        *powers[:3],
        *(n + d for n in powers[2:] for d in (1, -1)),
        0,
    ]
    return [n for n in dict.fromkeys(found) if least <= n <= most]
