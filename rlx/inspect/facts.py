"""What a model is, as plain data, and that data as lines for people."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.dim_text import without_ranges
from rlx.base.units import bytes_text, counted
from rlx.inspect.listing import by_count
from rlx.ir.graph import Graph, names_of_outputs, symbols_of
from rlx.runtime.encoding import places_of
from rlx.runtime.sized_variant import conditions_of
from rlx.types import DTYPES, TensorType, dtype

if TYPE_CHECKING:
    from rlx.base.dim_atoms import Symbol
    from rlx.models.safetensors import SafeTensors
    from rlx.runtime.artifact import Artifact

__all__ = [
    "facts_of_artifact",
    "facts_of_graph",
    "facts_of_safetensors",
    "lines_of",
    "size_of",
    "typed",
]

Facts = dict[str, Any]


def size_of(path: str) -> int:
    """The bytes of a file, or of the files right in a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(e.stat().st_size for e in os.scandir(path) if e.is_file())


def facts_of_graph(graph: Graph) -> Facts:
    """The signature, the dims, the params and the ops of a graph."""
    names = names_of_outputs(graph)
    leaves = [*graph.inputs, *graph.params]
    nodes = graph.nodes()
    facts: Facts = {
        "inputs": [_tensor(str(v.name), v.type) for v in graph.inputs],
        "outputs": [_tensor(n, v.type) for n, v in zip(names, graph.outputs, strict=True)],
        "dims": {s.name: _range(s) for s in symbols_of(v.type for v in leaves)},
        "params": _weights((str(v.name), v.type) for v in graph.params),
        "without_value": [str(v.name) for v in graph.params if v.name not in graph.param_values],
        "ops": dict(by_count(Counter(node.short for node in nodes))),
    }
    if not graph.symbols:
        costs = [node.cost() for node in nodes]
        facts["flops"] = sum(c.flops for c in costs)
    return facts


def facts_of_artifact(artifact: Artifact) -> Facts:
    """The signature, the dims, and the variants with their guards, of an artifact."""
    types = {name: _type(dt, shape) for name, dt, shape in artifact.params}
    return {
        "device": artifact.target,
        "inputs": [_tensor(name, _type(dt, shape)) for name, dt, shape in artifact.inputs],
        "outputs": [_tensor(name, _type(dt, shape)) for name, dt, shape in artifact.outputs],
        "dims": {s.name: said for s, said in _told(artifact)},
        "params": _weights(types.items()),
        "without_value": artifact.without_value,
        "variants": [_variant(v) for v in artifact.variants],
    }


def facts_of_safetensors(file: SafeTensors) -> Facts:
    """The metadata and the tensors of a file."""
    types = {n: TensorType(a.shape, dtype(a.dtype)) for n, a in file.items()}
    return {"metadata": dict(file.metadata), "params": _weights(types.items())}


def _type(dt: str, shape: Sequence[Any]) -> TensorType:
    return TensorType(tuple(shape), DTYPES[dt])


def typed(name: str, t: TensorType) -> str:
    """A name with its type, such as ``x: f32[batch, 4]``."""
    return _text(_tensor(name, t))


def _tensor(name: str, t: TensorType) -> Facts:
    dims = [d if isinstance(d, int) else without_ranges(str(d)) for d in t.shape]
    return {"name": name, "dtype": t.dtype.name, "shape": dims}


def _weights(tensors: Iterable[tuple[str, TensorType]]) -> Facts:
    """How many tensors there are, their elements and bytes, in all and by element type."""
    named = list(tensors)
    known = [t for _, t in named if t.is_static]
    return {
        "count": len(named),
        "elements": sum(int(t.size) for t in known),
        "bytes": sum(int(t.nbytes) for t in known),
        "dtypes": dict(by_count(Counter(t.dtype.name for _, t in named))),
        "tensors": [_tensor(name, t) for name, t in named],
    }


def _range(symbol: Symbol) -> str:
    return f"{symbol.least} or more" if symbol.most is None else f"{symbol.least} to {symbol.most}"


def _told(artifact: Artifact) -> Iterator[tuple[Symbol, str]]:
    """The dims with their ranges, and which input tells each."""
    for symbol, (at, axis, factor, number) in places_of(artifact.inputs).items():
        told = f"that of axis {axis} of {artifact.inputs[at][0]}"
        if (factor, number) != (1, 0):
            told += f", which is {factor} * {symbol.name} + {number}"
        yield symbol, f"{_range(symbol)}, {told}"


def _variant(v: Any) -> Facts:
    facts: Facts = {"for": v.features, "machine": v.machine}
    if v.sizes is not None:
        facts["guards"] = conditions_of(v.sizes)
    facts["kernels"] = len(getattr(v, "program", v).kernels)
    facts["code_bytes"] = sum(map(len, v.objects.values()))
    if v.sizes is None:
        facts["arena_bytes"] = _arena_bytes(v)
    return facts


def _arena_bytes(v: Any) -> int:
    if hasattr(v, "arena_bytes"):
        return v.arena_bytes
    return sum(m.nbytes for m in v.program.memories if m.role == "arena")


# -- for people ----------------------------------------------------------------------------


def lines_of(facts: Mapping[str, Any], tensors: bool) -> Iterator[str]:
    """The lines of ``rlx inspect``; with ``tensors`` one for each of the params too."""
    if "device" in facts:
        yield f"  device {facts['device']}"
    for kind in ("input", "output"):
        for t in facts.get(f"{kind}s", ()):
            yield f"  {kind} {_text(t)}"
    for name, said in facts.get("dims", {}).items():
        yield f"  dim {name}: {said}"
    for key, value in facts.get("metadata", {}).items():
        yield f"  {key}: {value}"
    yield from _weight_lines(facts, tensors)
    if "ops" in facts:
        counted = ", ".join(f"{name} {n}" for name, n in facts["ops"].items())
        yield f"  {sum(facts['ops'].values())} ops: {counted}"
    if facts.get("flops"):
        yield f"  work: {facts['flops'] / 1e9:.3g} GFLOP a run"
    for n, v in enumerate(facts.get("variants", ())):
        yield f"  variant {n}: {v['for']}: {_code(v)}"


def _weight_lines(facts: Mapping[str, Any], tensors: bool) -> Iterator[str]:
    w = facts["params"]
    if not w["count"]:
        return
    kinds = ", ".join(f"{n} {dt}" for dt, n in w["dtypes"].items())
    params = counted(w["count"], "param")
    yield f"  {params} ({kinds}): {w['elements']:,} elements, {bytes_text(w['bytes'])}"
    left = facts.get("without_value", [])
    if left:
        shown = ", ".join(left[:8]) + (", ..." if len(left) > 8 else "")
        yield f"  {len(left)} of them have no value: {shown}"
    if tensors:
        yield from (f"    {_text(t)}" for t in w["tensors"])


def _text(t: Mapping[str, Any]) -> str:
    return f"{t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]"


def _code(v: Mapping[str, Any]) -> str:
    text = f"{v['kernels']} kernels, {bytes_text(v['code_bytes'])} of code"
    if "guards" in v:
        return f"{text}, for {v['guards']}"
    return f"{text}, {bytes_text(v['arena_bytes'])} between kernels"
