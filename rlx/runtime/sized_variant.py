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
from rlx.runtime.executable import Executable
from rlx.runtime.weights import Weights

if TYPE_CHECKING:
    from rlx.base.dim_atoms import Symbol
    from rlx.lowering.compilation import CompileReport
    from rlx.schedule.plan import Signature
    from rlx.schedule.sizes import SizeProgram

__all__ = [
    "ArtifactVariants", "SizedVariant", "check_sizes", "conditions_of", "first_serving", "listed",
    "without_ranges",
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
        self._native = _native.SizeProgram(sizes=len(artifact.symbols), **parts)
        self.executable: Executable | None = None

    def bind(self, sizes: Sequence[int]) -> tuple[bytes, tuple[int, ...]] | None:
        """The words of its steps and the results of its program for sizes, by the order of names;
        None if they do not meet the guards."""
        return self._native.bind(sizes)

    def at(
        self,
        bound: tuple[bytes, tuple[int, ...]],
        shared: Sequence[Weights],
        donate: Sequence[tuple[int, int]],
    ) -> Executable:
        """The executable for what ``bind`` gave. ``shared`` are weights to use if they fit."""
        words, (arena, *dims) = bound
        whole = self.artifact
        inputs, left = _shaped(whole.inputs, dims)
        outputs, left = _shaped(whole.outputs, left)
        assert not left, "the results are the dims of the signatures"
        variant = replace(self._variant, arena_bytes=arena, main_words=words, sizes=None)
        found = replace(whole, inputs=inputs, outputs=outputs, variants=(variant,))
        if self.executable is None:
            self.executable = Executable(found, self.report, shared, donate)
            return self.executable
        return self.executable.of_words(found, variant)


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
    key = [sizes[name] for name in sorted(sizes)]
    for variant in variants:
        try:
            bound = variant.bind(key)
            if bound is not None:
                return variant.at(bound, shared, donate)
        except _native.Error as e:
            raise ShapeError(f"{what} at {listed(sizes)}: {e}") from None
    return None


class ArtifactVariants:
    """The variants of an artifact for many sizes, those that run on this machine. To be used by one
    thread at a time."""

    def __init__(self, artifact: Artifact) -> None:
        self._symbols = artifact.symbols
        fitting = artifact.all_fitting()
        self.found = [SizedVariant(replace(artifact, variants=(v,))) for v in fitting]

    @property
    def conditions(self) -> list[str]:
        """Of each variant the conditions on sizes under which it serves them."""
        return [v.conditions for v in self.found]

    @property
    def loaded(self) -> list[Executable]:
        """The executables of the variants that have served a call."""
        return [v.executable for v in self.found if v.executable is not None]

    def executable(self, sizes: Mapping[str, int], shared: Sequence[Weights]) -> Executable:
        """The executable for sizes. ``shared`` are weights for a new one to use if they fit.

        ShapeError for sizes that the artifact is not for, and for sizes that no memory holds.
        """
        check_sizes(self._symbols, sizes)
        found = first_serving(self.found, sizes, shared, "the artifact")
        if found is None:
            raise ShapeError(
                f"the artifact has no variant for {listed(sizes)}, but for"
                f" {'; or '.join(self.conditions)}; compile it for these sizes too",
                caller(),
            )
        return found
