"""Variants of a graph with symbolic dims in the compile cache.

They are kept under keys that differ in a number alone, from 0 in the order in which they were
compiled. Who needs a variant reads those that others have made, one after the other, before it
compiles one more. Of a graph that needs one for each size no more than ``MOST`` are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rlx.base.gc_pause import paused
from rlx.ir.graph import Graph
from rlx.lowering.compilation import CompileReport, Options
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache import shared
from rlx.runtime.cache.artifacts import compiled, key_of_graph, read_kept, why
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.cache.store import Store

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["VariantSource"]

MOST = 64
"""Variants of one graph that are kept."""


class VariantSource:
    """Gives the variants of one graph, each once: those of the cache, and those that it compiles.
    They have numbers in the place of the user's lines.

    ``target`` is the name and the features of what ``make_target`` makes. To be used by one thread
    at a time.
    """

    def __init__(
        self,
        graph: Graph,
        target: tuple[str, str],
        options: Options,
        make_target: Callable[[], Target],
    ) -> None:
        self._graph, self._target, self._options = graph, target, options
        self._make_target = make_target
        self._given = 0
        self._whole: tuple[Store, Key] | str | None = None

    def read(self) -> tuple[Artifact, CompileReport] | None:
        """The next variant that the cache has."""
        keyed = self._keyed()
        if isinstance(keyed, str):
            return None
        with paused():
            found = read_kept(*keyed, self._options)
        if found is not None:
            self._given += 1
            self._log(keyed[1], found[1].cache)
        return found

    def compile(
        self, sizes: Mapping[str, int], general: bool = False, hasty: bool = False
    ) -> tuple[Artifact, CompileReport]:
        """One variant more, which serves ``sizes``; ``general`` and ``hasty`` as of
        ``compile_symbolic``, and raises as that does."""
        keyed, keep = self._keyed(), None
        if isinstance(keyed, str):
            missed = keyed
        else:
            keep, (store, key) = keyed, keyed
            missed = f"miss ({why(store, key)})"
            self._log(key, missed)
            store.miss(key)
        given = self._graph, self._options, self._make_target, keep, missed
        with paused():
            made = compiled(*given, sizes, general, hasty)
        self._given += 1
        return made

    def _keyed(self) -> tuple[Store, Key] | str:
        """The store, and the key of the next variant; or why the cache is not used."""
        if self._whole is None:
            self._whole = self._key_of_all()
        if isinstance(self._whole, str):
            return self._whole
        if self._given >= MOST:
            return f"not used: {MOST} variants are kept"
        store, key = self._whole
        return store, Key("variant", (*key.parts, Part("variant", str(self._given))))

    def _key_of_all(self) -> tuple[Store, Key] | str:
        store = shared.store()
        if store is None:
            return "off"
        key = key_of_graph(self._graph, *self._target, self._options, store)
        if not isinstance(key, str):
            return store, key
        shared.log(f"{self._graph.name!r}: not used: {key}")
        return f"not used: {key}"

    def _log(self, key: Key, what: str) -> None:
        shared.log(f"{self._graph.name!r} {key.digest[:12]}: {what}")
