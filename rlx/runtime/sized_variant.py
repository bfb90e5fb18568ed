"""A variant of a graph with symbolic dims: an artifact and what binds it to sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx.errors import ShapeError
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.executable import BoundExecutable, Executable
from rlx.runtime.weights import Weights

if TYPE_CHECKING:
    from rlx.base.dim_atoms import Symbol
    from rlx.lowering.compilation import CompileReport
    from rlx.schedule.plan import Signature
    from rlx.schedule.sizes import SizeProgram

__all__ = [
    "ArtifactVariants", "SizedVariant", "SizedVariants", "check_sizes", "conditions_of",
    "first_serving", "listed", "without_ranges",
]  # fmt: skip


_RANGE = re.compile(r"(?<=\w)\[\d+\.\.\d*\]")
"""What tells a symbol with a range from one without, which people need not see."""


def conditions_of(program: SizeProgram) -> str:
    """The conditions on sizes under which a program is right, for people."""
    return without_ranges(", ".join(program.conditions)) or "all sizes"


def without_ranges(text: str) -> str:
    """The text of dims without the ranges of symbols."""
    return _RANGE.sub("", text)


class SizedVariant:
    """A variant: an artifact for some sizes, with what binds it to others, and its report. It is
    loaded when it first serves a call."""

    def __init__(self, artifact: Artifact, report: CompileReport | None = None) -> None:
        self.artifact, self.report = artifact, report
        (variant,) = artifact.variants
        assert isinstance(variant, Variant) and variant.sizes, "it was compiled for many sizes"
        self._variant, self.conditions = variant, conditions_of(variant.sizes)
        parts: dict[str, Any] = {**variant.sizes.parts}
        self.general = report is not None and report.general
        self._sizes = _native.SizeProgram(sizes=len(artifact.symbols), **parts)
        self._schedule: _native.SizedSchedule | None = None
        self.executable: Executable | None = None

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether sizes, by the order of names, meet its guards."""
        return self._sizes.serves(sizes)

    def bound(self, sizes: tuple[int, ...]) -> Executable | None:
        """The executable for sizes by the order of names; None if it was not loaded yet, or they do
        not meet its guards."""
        if self._schedule is None:
            return None
        assert self.executable is not None, "it was loaded"
        program = self._schedule.bind(sizes)
        if program is None:
            return None
        return BoundExecutable(self.executable, program, lambda: self._words(sizes))

    def load(
        self,
        sizes: tuple[int, ...],
        shared: Sequence[Weights],
        donate: Sequence[tuple[int, int]],
    ) -> None:
        """Load it, with sizes that meet its guards. ``shared`` are weights to use if they fit."""
        bound = self._sizes.bind(sizes)
        assert bound is not None, "it serves them"
        words, (arena, *dims) = bound
        whole = self.artifact
        inputs, left = _shaped(whole.inputs, dims)
        outputs, left = _shaped(whole.outputs, left)
        assert not left, "the results are the dims of the signatures"
        variant = replace(self._variant, arena_bytes=arena, main_words=words, sizes=None)
        found = replace(whole, inputs=inputs, outputs=outputs, variants=(variant,))
        executable = Executable(found, self.report, shared, donate)
        self._schedule = executable.for_sizes(self._sizes, self._variant.main_words)
        self.executable = executable

    def _words(self, sizes: Sequence[int]) -> tuple[bytes, int]:
        """The words of its steps for sizes, and the bytes of the arena."""
        bound = self._sizes.bind(sizes)
        assert bound is not None, "it serves them"
        words, (arena, *_) = bound
        return words, arena


def _shaped(
    signatures: Sequence[Signature], dims: Sequence[int]
) -> tuple[list[Signature], Sequence[int]]:
    """Signatures with shapes of the dims that come first, and the other dims."""
    found: list[Signature] = []
    for name, dt, shape in signatures:
        found.append((name, dt, tuple(dims[: len(shape)])))
        dims = dims[len(shape) :]
    return found, dims


def listed(sizes: Mapping[str, int]) -> str:
    """Sizes by name, for messages."""
    return ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def check_sizes(symbols: Iterable[Symbol], sizes: Mapping[str, int]) -> None:
    """ShapeError for a size outside its symbol's range."""
    for symbol in symbols:
        symbol.checked(sizes[symbol.name])


def first_serving(
    variants: Iterable[SizedVariant],
    sizes: Mapping[str, int],
    shared: Sequence[Weights],
    what: str,
    donate: Sequence[tuple[int, int]] = (),
) -> Executable | None:
    """The executable for sizes, of the first variant that serves them; None if none does.
    ShapeError for sizes that no memory holds, of ``what``."""
    key = tuple([sizes[name] for name in sorted(sizes)])
    try:
        for variant in variants:
            if variant.serves(key):
                if variant.executable is None:
                    variant.load(key, shared, donate)
                return variant.bound(key)
    except _native.Error as e:
        raise ShapeError(f"{what} at {listed(sizes)}: {e}") from None
    return None


class SizedVariants:
    """Variants for sizes of ``symbols``, by name. To be used by one thread at a time.

    ``found`` are those that there are, in the order in which they are asked; ``changes`` counts
    those that came before a general one, for which they take over.
    """

    def __init__(self, symbols: Iterable[Symbol]) -> None:
        self.symbols = sorted(symbols, key=lambda s: s.name)
        self.found: list[SizedVariant] = []
        self.changes = 0

    @property
    def conditions(self) -> list[str]:
        """Of each variant the conditions on sizes under which it serves them."""
        return [v.conditions for v in self.found]

    @property
    def loaded(self) -> list[Executable]:
        """The executables of the variants that have served a call."""
        return [v.executable for v in self.found if v.executable is not None]

    def bound(self, sizes: tuple[int, ...]) -> Executable | None:
        """The executable for sizes by the order of names, where a variant that has served others
        serves them. It is the one that ``executable`` gives."""
        if not all(s.admits(n) for s, n in zip(self.symbols, sizes, strict=True)):
            return None
        for variant in self.found:
            try:
                found = variant.bound(sizes)
            except _native.Error:  # ``executable`` says what is wrong
                return None
            if found is not None:
                self._served(variant, sizes)
                return found
            if variant.executable is None and variant.serves(sizes):
                return None
        return None

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Make what serves sizes, where it can still be made."""

    def _served(self, variant: SizedVariant, sizes: tuple[int, ...]) -> None:
        """Take note that a variant serves sizes that it did not serve before."""


class ArtifactVariants(SizedVariants):
    """The variants of an artifact for many sizes, those that run on this machine."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact.symbols)
        fitting = artifact.all_fitting()
        self.found = [SizedVariant(replace(artifact, variants=(v,))) for v in fitting]

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable:
        """The executable for sizes. ``shared`` are weights for a new one to use if they fit.

        ShapeError for sizes that the artifact is not for, and for sizes that no memory holds.
        """
        check_sizes(self.symbols, sizes)
        found = first_serving(self.found, sizes, shared, "the artifact")
        if found is None:
            raise ShapeError(
                f"the artifact has no variant for {listed(sizes)}, but for"
                f" {'; or '.join(self.conditions)}; compile it for these sizes too",
                caller(),
            )
        return found
