"""A variant of a graph with symbolic dims: an artifact and what binds it to sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rlx.base.dim_text import without_ranges
from rlx.errors import ShapeError
from rlx.ir.op import caller
from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.executable import well_formed
from rlx.runtime.sized_code import SizedCode
from rlx.schedule.sizes import in_order

if TYPE_CHECKING:
    from rlx.base.dim_atoms import Symbol
    from rlx.lowering.compilation import CompileReport
    from rlx.runtime.devices.gpu_program import DeviceVariant
    from rlx.schedule.sizes import SizeProgram

__all__ = [
    "ArtifactVariants", "Code", "MakeCode", "SizedVariant", "SizedVariants", "bound_for",
    "conditions_of", "key_of", "listed",
]  # fmt: skip

MOST_SIZE = 1 << 60
"""The native runtime counts no further."""


def conditions_of(program: SizeProgram) -> str:
    """The conditions on sizes under which a program is right, for people."""
    return without_ranges(", ".join(program.conditions)) or "all sizes"


class Code(Protocol):
    """The code of a variant in the memory of its device."""

    report: Any

    @property
    def weights(self) -> Any:
        """What holds the params of its executables (``rlx.runtime.backend.Weights``)."""
        ...

    def bound(self, sizes: tuple[int, ...]) -> Any:
        """The executable for sizes by the order of names; None where they do not meet the guards.
        ``_native.Error`` where they are too large."""
        ...


MakeCode: TypeAlias = Callable[
    [Artifact, _native.SizeProgram, Any, Sequence[Any], Sequence[tuple[int, int]]], Code
]
"""Loads the artifact of one variant. Given are what binds it to sizes, its report, weights to use
if they fit, and what is donated."""


class SizedVariant:
    """A variant: an artifact for some sizes, with what binds it to others, and its report. It is
    loaded when it first serves a call. ``general`` is one that serves as many sizes as it can,
    ``hasty`` one of these that was made soon and not as fast as it could be, ``pinned`` one that is
    for one size of a dim. It takes ``bytes``, and those of ``objects``, which other variants may
    have too.

    ArtifactError for one whose words are malformed.
    """

    def __init__(
        self,
        artifact: Artifact,
        report: CompileReport | None = None,
        make_code: MakeCode = SizedCode,
    ) -> None:
        self.artifact, self.report, self._make_code = artifact, report, make_code
        (variant,) = artifact.variants
        assert variant.sizes, "it was compiled for many sizes"
        self.conditions = conditions_of(variant.sizes)
        parts: dict[str, Any] = {**variant.sizes.parts}
        self.general = report is not None and report.general
        self.hasty = report is not None and report.hasty
        with well_formed():
            self._sizes = _native.SizeProgram(sizes=len(artifact.symbols), **parts)
        self.pinned = variant.sizes.pins
        self.code: Code | None = None
        self.last = 0  # the number of the sizes that it served last
        self.objects, self.bytes = variant.objects, sum(map(len, parts.values()))

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether sizes, by the order of names, meet its guards."""
        return self._sizes.serves(sizes)

    def bound(self, sizes: tuple[int, ...]) -> Any:
        """The executable for sizes by the order of names; None if it was not loaded yet, or they do
        not meet its guards."""
        return None if self.code is None else self.code.bound(sizes)

    def load(self, shared: Sequence[Any], donate: Sequence[tuple[int, int]]) -> None:
        """Load it. ``shared`` are weights to use if they fit."""
        self.code = self._make_code(self.artifact, self._sizes, self.report, shared, donate)


def key_of(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes by the order of their names."""
    return tuple([sizes[name] for name in in_order(sizes)])


def listed(sizes: Mapping[str, int]) -> str:
    """Sizes by name, for messages."""
    return ", ".join(f"{name}={sizes[name]}" for name in in_order(sizes))


@contextmanager
def bound_for(what: str, sizes: Mapping[str, int]) -> Generator[None]:
    """ShapeError where the native runtime finds sizes too large in a block about ``what``."""
    try:
        yield
    except _native.Error as e:
        raise ShapeError(f"{what} at {listed(sizes)}: {e}", caller()) from None


class SizedVariants:
    """Variants of ``what``, for sizes of ``symbols``; ``code`` loads them, ``donate`` as of
    ``Executable``.

    ``found`` are those that there are, in the order in which they are asked; ``changes`` counts
    those that came before a general one, for which they take over. Several threads may ask for a
    variant at once (``provide``, ``prepare``), and one at a time for executables.
    """

    def __init__(
        self,
        symbols: Iterable[Symbol],
        what: str,
        code: MakeCode,
        donate: Sequence[tuple[int, int]] = (),
    ) -> None:
        by_name = {s.name: s for s in symbols}
        self.symbols = [by_name[name] for name in in_order(by_name)]
        self._what, self._code, self._donate = what, code, donate
        self.short = code is SizedCode  # its executables are of the class Executable
        self.found: list[SizedVariant] = []
        self.changes = 0

    @property
    def conditions(self) -> list[str]:
        """Of each variant the conditions on sizes under which it serves them."""
        return [v.conditions for v in self.found]

    @property
    def loaded(self) -> list[Code]:
        """The code of the variants that have served a call."""
        return [v.code for v in self.found if v.code is not None]

    def provide(self, sizes: Mapping[str, int]) -> SizedVariant | None:
        """The first variant that serves sizes. ShapeError for a size outside its dim's range, and
        for sizes that no memory holds."""
        self._check(sizes)
        key = key_of(sizes)
        with bound_for(self._what, sizes):
            return next((v for v in self.found if v.serves(key)), None)

    def prepare(self, sizes: Mapping[str, int], alone: bool = False) -> SizedVariant | None:
        """As ``provide``; where variants can be made, also those that calls would have made later.
        ``alone`` says that sizes are no sample of others."""
        return self.provide(sizes)

    def load(self, variant: SizedVariant, shared: Sequence[Any]) -> Any:
        """The weights of a variant's code, which is loaded if it is not yet. ``shared`` are weights
        to use if they fit."""
        if variant.code is None:
            variant.load(shared, self._donate)
        assert variant.code is not None, "it is loaded"
        return variant.code.weights

    def executable(self, variant: SizedVariant, sizes: Mapping[str, int]) -> Any:
        """The executable of a variant that is loaded, for sizes that it serves. ShapeError for
        sizes that no memory holds."""
        key = key_of(sizes)
        with bound_for(self._what, sizes):
            found = variant.bound(key)
        assert found is not None, "it is loaded, and serves them"
        self._served(variant, key)
        return found

    def bound(self, sizes: tuple[int, ...]) -> Any:
        """The executable for sizes by the order of names, where a variant that has served others
        serves them. It is the one that ``executable`` gives."""
        if not all(s.admits(n) for s, n in zip(self.symbols, sizes, strict=True)):
            return None
        for variant in self.found:
            try:
                found = variant.bound(sizes)
                if variant.code is None and variant.serves(sizes):
                    return None
            except _native.Error:  # ``executable`` says what is wrong
                return None
            if found is not None:
                self._served(variant, sizes)
                return found
        return None

    def _check(self, sizes: Mapping[str, int]) -> None:
        for symbol in self.symbols:
            if symbol.checked(sizes[symbol.name]) > MOST_SIZE:
                raise ShapeError(
                    f"the dim {symbol.name!r} is at most 2**60, found {sizes[symbol.name]}",
                    caller(),
                )

    def _served(self, variant: SizedVariant, sizes: tuple[int, ...]) -> None:
        """Take note that a variant serves sizes that it did not serve before."""


class ArtifactVariants(SizedVariants):
    """The variants of an artifact for many sizes, those of its that are ``fitting``."""

    def __init__(
        self,
        artifact: Artifact,
        fitting: Sequence[Variant | DeviceVariant],
        code: MakeCode = SizedCode,
    ) -> None:
        super().__init__(artifact.symbols, "the artifact", code)
        alone: list[Any] = [(v,) for v in fitting]
        self.found = [SizedVariant(replace(artifact, variants=v), make_code=code) for v in alone]

    def provide(self, sizes: Mapping[str, int]) -> SizedVariant:
        """As of ``SizedVariants``, and ShapeError for sizes that the artifact is not for."""
        found = super().provide(sizes)
        if found is None:
            raise ShapeError(
                f"the artifact has no variant for {listed(sizes)}, but for"
                f" {'; or '.join(self.conditions)}; compile it for these sizes too",
                caller(),
            )
        return found
