"""Code for many sizes, and the executables that it is bound to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.executable import Executable, LoadedCode
from rlx.runtime.launches import launches_of
from rlx.runtime.weights import Weights

if TYPE_CHECKING:
    from rlx.schedule.plan import Signature

__all__ = ["SizedCode"]


class SizedCode(LoadedCode):
    """An artifact for many sizes in memory, which ``sizes`` evaluates. As ``LoadedCode``."""

    def __init__(
        self,
        artifact: Artifact,
        sizes: _native.SizeProgram,
        report: Any,
        shared: Sequence[Weights],
        donate: Sequence[tuple[int, int]],
    ) -> None:
        self._sizes = sizes
        super().__init__(artifact, report, shared, donate)

    def _load(self, shared: Sequence[Weights]) -> None:
        super()._load(shared)
        self._schedule = _native.SizedSchedule(
            sizes=self._sizes,
            inputs=_ranked(self.artifact.inputs),
            outputs=_ranked(self.artifact.outputs),
            main=self.variant.main_words,
            **self._parts,
        )

    def bound(self, sizes: tuple[int, ...]) -> Executable | None:
        """The executable for sizes by the order of names; None where they do not meet its guards.
        ``_native.Error`` where they are too large."""
        program = self._schedule.bind(sizes)
        if program is None:
            return None
        return _Bound(self, program, lambda: self._words(sizes))

    def _words(self, sizes: Sequence[int]) -> tuple[bytes, int]:
        """The words of its steps for sizes, and the bytes of the arena."""
        bound = self._sizes.bind(sizes)
        assert bound is not None, "it serves them"
        words, (arena, *_) = bound
        return words, arena


def _ranked(signatures: Sequence[Signature]) -> list[Signature]:
    """Signatures with shapes of the same ranks, whose sizes are to come."""
    return [(name, dt, (0,) * len(shape)) for name, dt, shape in signatures]


class _Bound(Executable):
    """Code that is bound to sizes: ``program`` is its schedule for them, and ``words`` give its
    steps, and the bytes of its arena, for who looks at them."""

    def __init__(
        self, code: SizedCode, program: _native.Program, words: Callable[[], tuple[bytes, int]]
    ) -> None:
        self.__dict__.update(code.__dict__)
        del self.__dict__["artifact"], self.__dict__["variant"]
        self._of, self.program = code, program
        self._variant = variant = cache(partial(_at, code.variant, words))
        self._all_launches = cache(lambda: launches_of(variant()))
        self._register()

    @cached_property
    def variant(self) -> Variant:
        """The variant with the words for these sizes."""
        return self._variant()

    @cached_property
    def artifact(self) -> Artifact:
        """The artifact with these sizes."""
        inputs, outputs = list(self.program.inputs), list(self.program.outputs)
        return replace(self._of.artifact, inputs=inputs, outputs=outputs, variants=(self.variant,))


def _at(variant: Variant, words: Callable[[], tuple[bytes, int]]) -> Variant:
    main, arena = words()
    return replace(variant, arena_bytes=arena, main_words=main, sizes=None)
