"""Which texts an encoder runs together, and at which length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rlx.errors import ShapeError

__all__ = ["Runs"]

TOKENS = 256
"""The most tokens for each thread in a run on a CPU: with more, what a layer makes of them leaves
the second level of its caches, and the same products take a tenth longer (Zen 4, 1 MiB)."""


class Runs:
    """Texts of up to ``max_tokens`` tokens in runs. ``pads`` makes texts of few lengths, for a
    runner to which each new size is dear; without it a run has texts of one length."""

    def __init__(self, max_tokens: int, *, pads: bool) -> None:
        self.max_tokens, self.pads = max_tokens, pads

    def of(self, lengths: Sequence[int], most: int) -> Iterator[tuple[int, list[int]]]:
        """The length of each run, and the numbers of the texts in it, ``most`` at the most."""
        if not isinstance(most, int) or most < 1:
            raise ShapeError(f"batch_size must be 1 or more, found {most!r}")
        groups: dict[int, list[int]] = {}
        for i, length in enumerate(lengths):
            groups.setdefault(self.padded(length), []).append(i)
        for length, members in sorted(groups.items()):
            for chunk in self._chunks(members, length, most):
                yield length, chunk

    def padded(self, tokens: int) -> int:
        """The length that a text is run at. It depends on nothing else; where texts are padded,
        few exist: steps of 16 up to 64, then of 32."""
        if not self.pads:
            return max(tokens, 1)
        step = 16 if tokens <= 64 else 32
        return min(-(-max(tokens, 1) // step) * step, self.max_tokens)

    def _chunks(self, members: list[int], length: int, most: int) -> Iterator[list[int]]:
        """The texts of a length in parts of at most so many, each of which is a run."""
        if self.pads:
            return _powers_of_two(members, most)
        from rlx.runtime import _native

        fitting = TOKENS * _native.num_threads() // length
        return _even(members, max(1, min(most, fitting)))


def _even(members: list[int], size: int) -> Iterator[list[int]]:
    """As few parts of at most ``size`` as there can be, whose lengths differ by one at most."""
    count = -(-len(members) // size)
    cuts = [n * len(members) // count for n in range(count + 1)]
    return (members[a:b] for a, b in pairwise(cuts))


def _powers_of_two(members: list[int], size: int) -> Iterator[list[int]]:
    """Parts of ``size``, then of powers of two: few shapes occur, and no row is padding."""
    at = 0
    while at < len(members):
        left = len(members) - at
        n = size if left >= size else 1 << (left.bit_length() - 1)
        yield members[at : at + n]
        at += n
