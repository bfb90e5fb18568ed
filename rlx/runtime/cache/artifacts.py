"""Compiled graphs: an artifact is compiled once for all graphs of one structure.

A hit needs neither MLIR nor LLVM: they are imported where something has to be compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx import knobs
from rlx.base.clock import Tick
from rlx.errors import ArtifactError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.lowering.compilation import CompileReport, Options, Record
from rlx.lowering.locations import Places
from rlx.lowering.report import (
    DispatchReport,
    FusionReport,
    MissedFusion,
    MissReason,
    print_reports,
)
from rlx.ops import load_all
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache import shared
from rlx.runtime.cache.entry import Damaged, Entry
from rlx.runtime.cache.fingerprint import foreign_ops
from rlx.runtime.cache.key import Key, artifact_parts
from rlx.runtime.cache.memory import Memory
from rlx.runtime.cache.shipped import Archive, archive_of
from rlx.runtime.cache.store import Store

if TYPE_CHECKING:
    from rlx.schedule.plan import LaunchInfo
    from rlx.targets.base import Target

__all__ = ["compiled", "find_or_compile", "in_memory", "key_of_graph", "placed", "read_kept", "why"]

LIMIT = 64 << 20
"""Bytes of artifacts that a process keeps."""

in_memory: Memory[Entry] = Memory(LIMIT)
"""The entries that this process has made or read, by their files."""


def placed(artifact: Artifact, places: Places) -> Artifact:
    """An artifact whose launches and faults name the user's lines instead of numbers."""

    def launch(info: LaunchInfo) -> LaunchInfo:
        ops, file, line, flops, moved = info
        place = (file, line)
        return (places.named(ops, place), *places.of(place), flops, moved)

    variants = tuple(
        v.with_facts(list(map(launch, v.launches)), places.sites(v.sites))
        for v in artifact.variants
    )
    return replace(artifact, variants=variants)


def key_of_graph(
    graph: Graph, target: str, features: str, options: Options, store: Store
) -> Key | str:
    """The key of a compiled graph, or why it can have none. That of a graph with symbolic dims is
    the part that the keys of its variants share."""
    if foreign := foreign_ops(graph):
        return f"{', '.join(foreign)} is no op of RLX, and its code no part of a key"
    tools = shared.tools(store)
    if tools is None:
        return "RLX's own files have changed since it was loaded"
    try:
        return Key("artifact", artifact_parts(graph, target, features, options, tools))
    except UnsupportedError as e:
        return e.message


def find_or_compile(
    graph: Graph,
    target: tuple[str, str],
    options: Options,
    make_target: Callable[[], Target],
) -> tuple[Artifact, CompileReport]:
    """The artifact of a graph whose dims are all bound: from the cache, or else compiled and kept.

    ``target`` is the name and the features of what ``make_target`` makes.
    """
    if knobs.ir_dump.get():
        from rlx.compiler.driver import show_levels

        show_levels(graph, make_target(), options)
    artifact, report = _found_or_compiled(graph, target, options, make_target)
    assert artifact.variants[0].features == target[1], "make_target made another target"
    places = Places(graph)
    report.compilation.fusion = places.fusion(report.compilation.fusion)
    report.compilation.check_clean()
    print_reports(graph.name, ":".join(target), report.compilation)
    return placed(artifact, places), report


def _found_or_compiled(
    graph: Graph,
    target: tuple[str, str],
    options: Options,
    make_target: Callable[[], Target],
) -> tuple[Artifact, CompileReport]:
    """An artifact and a report with numbers for the user's lines."""
    start = Tick.now()
    store = shared.store()
    if store is None:
        return compiled(graph, options, make_target, None, "off")
    key = key_of_graph(graph, *target, options, store)
    if isinstance(key, str):
        shared.log(f"{graph.name!r}: not used: {key}")
        return compiled(graph, options, make_target, None, f"not used: {key}")
    keyed = Tick.now()
    found = read_kept(store, key, options)
    if found is not None:
        _, report = found
        seconds = {"key": keyed.seconds_since(start), "cache": Tick.now().seconds_since(keyed)}
        report.compilation.seconds.update(seconds)
        shared.log(f"{graph.name!r} {key.digest[:12]}: {report.cache}")
        return found
    missed = f"miss ({why(store, key)})"
    shared.log(f"{graph.name!r} {key.digest[:12]}: {missed}")
    store.miss(key)
    return compiled(graph, options, make_target, (store, key), missed)


def why(store: Store, key: Key) -> str:
    """Why an artifact was not there; compared with what is, if anybody wants to know."""
    if not shared.logged():
        return store.why(key)
    from rlx.runtime.cache.explain import nearest

    near = nearest(store, key)
    return f"{store.why(key)}; {near}" if near else store.why(key)


def compiled(
    graph: Graph,
    options: Options,
    make_target: Callable[[], Target],
    keep: tuple[Store, Key] | None,
    cache: str,
    sizes: Mapping[str, int] | None = None,
    general: bool = False,
    hasty: bool = False,
) -> tuple[Artifact, CompileReport]:
    """A graph compiled now, with numbers for the user's lines, and kept under a key. ``cache`` is
    what the report says of the cache. With ``sizes``, those at hand of a graph with symbolic dims,
    the artifact is a variant (``rlx.runtime.cache.variants``), ``general`` and ``hasty`` as of
    ``compile_symbolic``.
    """
    from rlx.base.preload import preload

    preload("torch_mlir")
    target = make_target()
    # What does not need the library is imported while it is being loaded.
    from rlx.kernels.registry import FAMILIES, load_families
    from rlx.runtime.cache.objects import Shelf

    load_all()
    load_families(f for f in target.families if FAMILIES[f].selector and not FAMILIES[f].ops)
    from rlx.compiler.driver import compile_structure

    start = Tick.now()
    shelf = Shelf(keep[0], keep[1].tools, _shipped(target, keep[0])) if keep else None
    with Places(graph).errors():
        if sizes is None:
            artifact, report = compile_structure(graph, target, options, shelf)
        else:
            from rlx.compiler.symbolic import compile_symbolic

            given = graph, sizes, target, options, shelf
            artifact, report = compile_symbolic(*given, general, hasty)
    if any(v.functions for v in artifact.variants):
        keep, cache = None, "not used: it has kernels in Python"
    report.cache = cache
    if keep is not None:
        store, key = keep
        with report.compilation.timed("cache"):
            note = _note(report, Tick.now().seconds_since(start))
            entry = Entry.of(key, bytes(artifact), note)
            _remember(store, key, entry)
            if shared.unchanged():
                store.write((key, entry))
    return artifact, report


def _shipped(target: Target, store: Store) -> Archive | None:
    """The kernels that RLX was installed with for a target."""
    tools = shared.tools_of_kernels(store) if target.name == "cpu" else None
    return archive_of(target.features.isa, tools) if tools else None


def read_kept(store: Store, key: Key, options: Options) -> tuple[Artifact, CompileReport] | None:
    """What is kept under a key, with numbers for the user's lines, and a report that says so."""
    entry, where = in_memory.get(_name(store, key)), "in memory"
    if entry is None:
        entry, where = store.read(key), "on disk"
    if entry is None:
        return None
    try:
        artifact = Artifact.from_bytes(entry.payload)
        record, (general, hasty), seconds = _noted(entry.note, options)
    except (ArtifactError, Damaged) as e:
        store.reject(key, str(e))
        return None
    _remember(store, key, entry)
    made = len(artifact.variants[0].objects)
    report = CompileReport(record, 0, made, general=general, hasty=hasty)
    report.cache = f"hit ({where}; compiling took {seconds * 1e3:.0f} ms)"
    return artifact, report


def _name(store: Store, key: Key) -> str:
    return f"{store.root}/{key.digest}"


def _remember(store: Store, key: Key, entry: Entry) -> None:
    in_memory.put(_name(store, key), entry, len(entry.payload) + len(entry.packed))


# -- what an entry tells of its compile --------------------------------------------------------


def _note(report: CompileReport, seconds: float) -> dict[str, Any]:
    record = report.compilation
    ways = record.dispatch
    return {
        "seconds": seconds,
        "general": report.general,
        "hasty": report.hasty,
        "fused": record.fusion.fused,
        "missed": record.fusion.missed,
        "ops": [record.fusion.before, record.fusion.after],
        "dispatch": [ways.native, ways.common, ways.rewritten, ways.triton],
        "decoded": ways.decoded,
    }


def _noted(note: Any, options: Options) -> tuple[Record, tuple[bool, bool], float]:
    """What ``_note`` noted: a record, whether it is of a general variant, and of a hasty one, and
    the seconds; Damaged if it is no note."""
    try:
        missed = [
            MissedFusion(pattern, op, (str(file), int(line)), reason, hint, MissReason(kind))
            for pattern, op, (file, line), reason, hint, kind in note["missed"]
        ]
        dispatch = DispatchReport(*map(Counter, note["dispatch"]), decoded=Counter(note["decoded"]))
        before, after = map(Counter, note["ops"])
        fusion = FusionReport(Counter(note["fused"]), missed, before=before, after=after)
        record = Record(options, fusion, dispatch)
        kind = bool(note["general"]), bool(note["hasty"])
        return record, kind, float(note["seconds"])
    except (KeyError, TypeError, ValueError) as e:
        raise Damaged(f"its note is malformed: {e}") from None
