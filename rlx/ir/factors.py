"""How an op is cut over ranks: which dims of its operands and results belong together.

A dim is made of *factors*, which have names: in ``ik,kj->ij`` those of a product. A rank that has a
block of a factor computes the op on the parts that have it. Of a factor that is summed over, each
rank gets a part of the sum. The words are those of Shardy, "A Guide to Shardy" (OpenXLA, 2024).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.base.dims import exact_quotient, is_known
from rlx.errors import ShapeError
from rlx.types import Dim, Shape

if TYPE_CHECKING:
    from rlx.ir.op import Op
    from rlx.ir.value import Value

__all__ = ["Factor", "Factors", "Parts", "broadcast", "lines", "split"]

Factor = int | str
"""The name of a factor within an op."""

Labels = tuple[tuple[Factor, ...], ...]
"""The factors of each dim of a tensor, the major one first."""

Given = Sequence[Factor | tuple[Factor, ...] | None]


class Factors:
    """The rule of an op: the factors of the dims of each operand (None for one that is missing) and
    result.

    ``sums`` are summed over, ``folds`` are combined by "prod", "min" or "max" where a result has
    them not, and an op needs the ``whole`` of others. A dim of no factor is not cut. ``sizes`` are
    told for factors that are never a dim by themselves.
    """

    def __init__(
        self,
        op: Op,
        operands: Sequence[Given | None],
        results: Sequence[Given],
        *,
        sums: Iterable[Factor] = (),
        folds: Mapping[Factor, str] | None = None,
        whole: Iterable[Factor] = (),
        sizes: Mapping[Factor, Dim] | None = None,
    ) -> None:
        self.operands = tuple([None if d is None else _labels(d) for d in operands])
        self.results = tuple([_labels(d) for d in results])
        self.sums, self.folds, self.whole = frozenset(sums), dict(folds or {}), frozenset(whole)
        self.sizes: dict[Factor, Dim] = dict(sizes or {})
        values = zip((*op.operands, *op.results), (*self.operands, *self.results), strict=True)
        for v, dims in values:
            if v is None or dims is None:
                continue
            assert len(dims) == len(v.shape), f"{op.name}: {dims} for {v.type}"
            for d, names in zip(v.shape, dims, strict=True):
                if len(names) == 1:
                    self.sizes.setdefault(names[0], d)

    @cached_property
    def free(self) -> frozenset[Factor]:
        """The factors along which the op may be cut: of a dim of several the major one alone, since
        parts are blocks of a dim."""
        minor = {
            name
            for dims in (*self.operands, *self.results)
            for names in dims or ()
            for name in names
            if name != self.major(names)
        }
        named = {n for dims in (*self.operands, *self.results) for d in dims or () for n in d}
        return frozenset(named - minor - self.whole)

    @cached_property
    def multiplies(self) -> bool:
        """Whether the op is a product: it sums over a factor that two operands share."""
        having = [{n for d in dims or () for n in d} for dims in self.operands]
        return any(sum(name in names for names in having) > 1 for name in self.sums)

    def major(self, names: Sequence[Factor]) -> Factor | None:
        """The first factor of a dim that has more than one element."""
        return next((n for n in names if self.sizes[n] != 1), None)

    def dim_of(self, factor: Factor, labels: Labels | None) -> int | None:
        """The dim of a tensor of which a factor is the major one."""
        for dim, names in enumerate(labels or ()):
            if factor in names and self.major(names) == factor:
                return dim
        return None

    def divides(self, factor: Factor, ranks: int) -> bool:
        """Whether a factor has as many elements on each of so many ranks."""
        size = self.sizes[factor]
        if is_known(size):
            return size % ranks == 0 and size > 0
        try:
            exact_quotient(size, ranks)
        except ShapeError:
            return False
        return True


class Parts:
    """An op that is cut: what ``Op.on_parts`` is told. ``cut`` has for factors the number of ranks
    over which each is cut."""

    def __init__(self, op: Op, factors: Factors, cut: Mapping[Factor, int]) -> None:
        self.op, self.factors, self.cut = op, factors, cut

    def length(self, factor: Factor) -> Dim:
        """The elements of a factor on a rank."""
        return exact_quotient(self.factors.sizes[factor], self.cut.get(factor, 1))

    def shape(self, number: int = 0) -> Shape:
        """The shape of a result on a rank."""
        shape = self.op.results[number].shape
        return self._on_rank(shape, self.factors.results[number])

    def _on_rank(self, shape: Shape, labels: Labels) -> Shape:
        cuts = [self.cut.get(m, 1) if (m := self.factors.major(n)) is not None else 1
                for n in labels]  # fmt: skip
        return tuple([exact_quotient(d, n) for d, n in zip(shape, cuts, strict=True)])

    def start(self, factor: Factor) -> Value:
        """The first element of a factor on this rank, an i64."""
        raise AssertionError(f"nothing says where {factor} begins")


def _labels(dims: Given) -> Labels:
    return tuple([() if d is None else d if isinstance(d, tuple) else (d,) for d in dims])


def broadcast(op: Op) -> Factors:
    """The rule of an op whose operands broadcast to its results."""
    shape = op.results[0].shape

    def aligned(v: Value) -> list[int | None]:
        behind = len(shape) - len(v.shape)
        return [i if d == shape[i] else None for i, d in enumerate(v.shape, behind)]

    given = [None if v is None else aligned(v) for v in op.operands]
    return Factors(op, given, [aligned(r) for r in op.results])


def lines(op: Op, *axes: int) -> Factors:
    """The rule of an op that needs its operands and results whole along some axes, and treats what
    lies along the others alike. Vectors lie along the first axis; axes may change their length."""
    rank = op.results[0].type.rank
    values = [v for v in (*op.operands, *op.results) if v is not None and v.type.rank == rank]
    apart = len({v.shape for v in values}) > 1

    def labels(v: Value, at: int) -> list[Factor]:
        if v.type.rank < rank:
            return [axes[0]] * v.type.rank
        return [f"{i} of {at}" if apart and i in axes else i for i in range(rank)]

    operands = [None if v is None else labels(v, i) for i, v in enumerate(op.operands)]
    results = [labels(v, -1 - i) for i, v in enumerate(op.results)]
    whole = {n for d in (*operands, *results) for n in d or () if isinstance(n, str)}
    return Factors(op, operands, results, whole={*whole, *axes})


def split(before: Shape, after: Shape) -> tuple[Labels, Labels, dict[Factor, Dim]]:
    """The factors of a reshape: those of its dims before and after, and their sizes.

    Dims are taken apart from the left as far as one divides the other. What is left over has none,
    and neither have tensors without elements.
    """
    left, right = _Side(before), _Side(after)
    sizes: dict[Factor, Dim] = {}
    empty = any(d == 0 for d in (*before, *after))
    while not empty and (a := left.rest()) is not None and (b := right.rest()) is not None:
        shared = _common(a, b)
        if shared is None:
            break
        name = len(sizes)
        sizes[name] = shared
        left.take(name, shared)
        right.take(name, shared)
    partly = left.partly() | right.partly()
    return left.labels(partly), right.labels(partly), sizes


def _common(a: Dim, b: Dim) -> Dim | None:
    if a == b:
        return a
    for whole, part in ((a, b), (b, a)):
        try:
            exact_quotient(whole, part)
        except ShapeError:
            continue
        return part
    return None


class _Side:
    """A shape that is taken apart into factors from the left."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.at = shape, 0
        self.names: list[list[Factor]] = [[] for _ in shape]
        self.left: list[Any] = list(shape)

    def rest(self) -> Dim | None:
        """What is left of the first dim that is not taken; None after the last."""
        while self.at < len(self.shape) and self.left[self.at] == 1:
            self.at += 1
        return self.left[self.at] if self.at < len(self.shape) else None

    def take(self, name: Factor, size: Dim) -> None:
        self.names[self.at].append(name)
        self.left[self.at] = exact_quotient(self.left[self.at], size)

    def partly(self) -> set[Factor]:
        """The factors of dims that are not taken to the end."""
        pairs = zip(self.names, self.left, strict=True)
        return {name for names, rest in pairs if rest != 1 for name in names}

    def labels(self, without: set[Factor]) -> Labels:
        """The factors of each dim."""
        return tuple([tuple([n for n in names if n not in without]) for names in self.names])
