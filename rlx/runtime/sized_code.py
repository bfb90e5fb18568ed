"""Code for many sizes, and the executables that it is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.executable import Executable, LoadedCode
from rlx.runtime.launches import LaunchInfo, launches_of, register
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
        return _Bound(self, program, sizes)

    def variant_at(self, sizes: Sequence[int]) -> Variant:
        """The variant with the words of its steps for sizes, the bytes of the arena, and what its
        launches do."""
        bound = self._sizes.bind(sizes)
        assert bound is not None, "it serves them"
        words, (arena, *rest) = bound
        shaped = (*self.artifact.inputs, *self.artifact.outputs)
        facts = rest[sum(len(shape) for _, _, shape in shaped) :]
        launches = self.variant.launches
        first = len(launches) - len(facts) // 2  # those of the prologue are for all sizes
        main = zip(launches[first:], facts[::2], facts[1::2], strict=True)
        sized = [
            *launches[:first],
            *((*places, flops, moved) for (*places, _, _), flops, moved in main),
        ]
        return replace(
            self.variant, arena_bytes=arena, main_words=words, sizes=None, launches=sized
        )


def _ranked(signatures: Sequence[Signature]) -> list[Signature]:
    """Signatures with shapes of the same ranks, whose sizes are to come."""
    return [(name, dt, (0,) * len(shape)) for name, dt, shape in signatures]


class _Bound(Executable):
    """Code that is bound to sizes: ``program`` is its schedule for them. What calls need is here,
    and the rest is the code's: after other work each attribute is read from memory anew."""

    def __init__(self, code: SizedCode, program: _native.Program, sizes: tuple[int, ...]) -> None:
        self._of, self.program, self._sizes = code, program, sizes
        self._direct = code._direct
        # What is registered is no reference to the executable, which would live on by it.
        register(self, program.first_launch, partial(_launches_at, code, sizes))

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(self.__dict__["_of"], name)
        return found

    @property
    def held_bytes(self) -> int:
        """See ``Executable``: the steps, and a few objects of Python's."""
        return 2 * len(self._of.variant.main_words) + 4096

    @property
    def launches(self) -> list[LaunchInfo]:
        """See ``Executable``."""
        return _launches_at(self._of, self._sizes)

    @cached_property
    def variant(self) -> Variant:
        """The variant with the words for these sizes."""
        return self._of.variant_at(self._sizes)

    @cached_property
    def artifact(self) -> Artifact:
        """The artifact with these sizes."""
        inputs, outputs = list(self.program.inputs), list(self.program.outputs)
        return replace(self._of.artifact, inputs=inputs, outputs=outputs, variants=(self.variant,))


def _launches_at(code: SizedCode, sizes: tuple[int, ...]) -> list[LaunchInfo]:
    return launches_of(code.variant_at(sizes))[1]
