"""Compiling ahead of time: a graph to an artifact. Importing this loads no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx.compiler.packed import packed
from rlx.compiler.project import project_of
from rlx.compiler.ranges import for_sizes, ranged
from rlx.errors import DeviceError, UnsupportedError
from rlx.ir.arrays import fixed
from rlx.ir.builders import located
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Options
from rlx.precision import check_precision, types_of
from rlx.precision.rewrite import with_precision
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache.artifacts import find_or_compile
from rlx.targets import default_target, find_project, find_target, rank

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.lowering.compilation import OptionArgs
    from rlx.targets.base import Target

__all__ = ["compile_artifact"]


@located
def compile_artifact(
    graph: Graph,
    target: str | Sequence[str] | None = None,
    *,
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    params: Mapping[str, Any] | None = None,
    precision: str = "f32",
    **options: Unpack[OptionArgs],
) -> Artifact:
    """Compile a graph to an artifact, which is saved to a file and runs without a compiler.

    ``target`` is "cpu" (this machine's CPU), a CPU such as "cpu:x86-64-v3", a GPU's API as it is or
    for some device ("vulkan", "cuda:sm_90"), which need not be here, or a list of one kind: where
    the artifact is loaded, the best that fits the machine is taken. Without one it is RLX_DEVICE,
    else "cpu". ``dims`` binds symbolic dims to sizes (8), or to ranges of sizes ((1, 512)); of
    those that it leaves out the artifact is for all sizes that they may have. The artifact carries
    ``params`` (arrays by name, beside the values that the graph has); the others are set where it
    is run. It holds them packed, as its kernels read them, where this machine runs the code and
    they do not grow by it. ``precision`` is as for ``Session`` and ``options`` are as for
    ``Session.compile``.

    For "cortexm:m4" and "fpga:ecp5" (``rlx.cortexm``, ``rlx.fpga``) it takes a graph of integers,
    the first one of floats too, and gives a folder of sources, which ``save(folder)`` writes and no
    device of RLX runs.

    Raises ShapeError for a dim whose size no input tells, DeviceError for an unknown target,
    NameError, DTypeError and ShapeError for params that do not fit.
    """
    chosen = located(check_precision)(precision)
    bound = ranged(graph, dims) if dims else graph
    given = param_arrays(bound, {**bound.param_values, **(params or {})})
    values = {name: fixed(a) for name, a in given.items()}
    if options.get("donate"):
        raise UnsupportedError(
            "an artifact has no donated inputs: whoever loads it could not know; compile with"
            " Session.compile, or leave donate out"
        )
    chosen_options = Options.of(options)
    wanted = default_target() if target is None else target
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    found = find_project(names[0]) if len(names) == 1 else None
    if found is not None:
        if types_of(chosen, frozenset()).changes:
            raise UnsupportedError(
                f"programs for {names[0]!r} have the types of the graph, and no precision"
                f" {precision!r}"
            )
        return project_of(bound, values, *found)
    order = _ordered(names)

    def compiled(t: Target) -> Artifact:
        types = types_of(chosen, t.features.has)
        rewritten = with_precision(bound, types)[0] if types.changes else bound
        if rewritten.symbols:
            return for_sizes(rewritten, t, chosen_options)
        key = (t.name, t.features.name)
        return find_or_compile(rewritten, key, chosen_options, lambda: t)[0]

    whole = _together(order, [compiled(t) for t in order])
    return packed(replace(whole, values=values))


def _together(order: Sequence[Target], made: Sequence[Artifact]) -> Artifact:
    """One artifact of those of targets in their order, with what their systems make ahead."""
    first, *others = made
    variants = (*first.variants, *(v for other in others for v in other.variants))
    extras = {
        f"{v.features}/{name}": data
        for t, v in zip(order, variants, strict=False)
        if t.system is not None
        for code in v.objects.values()
        for name, data in t.system.ahead(code).items()
    }
    return replace(first, variants=variants, extras={**first.extras, **extras})


def _ordered(names: Sequence[str]) -> list[Target]:
    """The targets of an artifact, the best first."""
    targets = {(t.name, t.features.name): t for t in map(find_target, names)}
    kinds = sorted({t.name for t in targets.values()})
    if len(kinds) != 1:
        found = f", found {', '.join(kinds)}; compile one artifact for each" if kinds else ""
        raise DeviceError(f"an artifact is for one kind of target, such as 'cpu'{found}")
    return sorted(targets.values(), key=lambda t: rank(t.name, t.features), reverse=True)
