"""A model in several variants, such as prefill and decode, each compiled when it is first asked
for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from rlx.base.digest import digest
from rlx.base.frozen import frozen
from rlx.compat.compile_cache import CompileCache, settings
from rlx.compiler.aot import compile_artifact
from rlx.errors import GraphError, shown
from rlx.ir.builders import public
from rlx.ir.graph import Graph
from rlx.runtime.session import CompiledGraph, Session
from rlx.text import graph_text

__all__ = ["CompilationMode", "ModelComponent", "ModelPhase", "ModelVariant"]


class ModelPhase(StrEnum):
    """What a variant is for; a phase of one's own is any text."""

    PREFILL = "prefill"
    DECODE = "decode"
    ENCODER = "encoder"
    TRAINING = "training"


class CompilationMode(StrEnum):
    """When a variant is compiled: EAGER at once for its sizes, LAZY for those of each call, AOT to
    an artifact, which is then loaded."""

    EAGER = "eager"
    LAZY = "lazy"
    AOT = "aot"


@public
@frozen
class ModelVariant:
    """One form of a model: its phase, and the sizes of its symbolic dims."""

    phase: str = ModelPhase.PREFILL
    dims: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)


@public
class ModelComponent:
    """A model by the function that builds its graph for a variant. Each variant is compiled once
    for a session; variants of equal graphs share a compile."""

    def __init__(self, name: str, build: Callable[[ModelVariant], Graph]) -> None:
        self.name, self.build = name, build
        self._cache = CompileCache()

    def graph(self, variant: ModelVariant) -> Graph:
        """The graph of a variant, its dims not bound yet; GraphError if the function gives none."""
        found = self.build(variant)
        if not isinstance(found, Graph):
            raise GraphError(f"component {self.name!r} built {shown(found)}, expected a Graph")
        return found

    def cache_key(self, variant: ModelVariant) -> str:
        """What tells variants apart: the graph with its constants and values, the phase and the
        sizes; the same in every process."""
        text = graph_text(self.graph(variant), places=False)
        said = repr((self.name, str(variant.phase), sorted(variant.dims.items())))
        return digest(said.encode(), text.encode())

    def compile(
        self,
        session: Session,
        variant: ModelVariant,
        mode: CompilationMode | str = CompilationMode.EAGER,
        **options: Any,
    ) -> CompiledGraph:
        """The compiled graph of a variant; GraphError for another mode, and what a compile
        raises."""
        known = [m.value for m in CompilationMode]
        if mode not in known:
            raise GraphError(f"a mode is one of {', '.join(known)}, found {shown(mode)}")
        key = (self.cache_key(variant), *settings(session), str(mode), *sorted(options.items()))

        def made() -> CompiledGraph:
            graph = self.graph(variant)
            if mode == CompilationMode.LAZY:
                return session.compile(graph, **options)
            if mode == CompilationMode.EAGER:
                return session.compile(graph, dims=variant.dims or None, **options)
            bound = graph.bind(variant.dims) if variant.dims else graph
            return session.load(compile_artifact(bound, [session.device], **options))

        return self._cache.get_or_compile(key, made)
