"""Pages of keys and values, which sequences share one memory by, and what goes into a step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rlx.base.frozen import record
from rlx.errors import GraphError
from rlx.ir.builders import public

__all__ = [
    "BatchConstructor",
    "BatchEntry",
    "BatchKind",
    "KvBlockTable",
    "KvPageDescriptor",
    "KvPagePool",
]


class KvPageDescriptor(NamedTuple):
    """Where a page lies in the memory of its pool, in bytes, and how many tokens it has."""

    page: int
    offset: int
    nbytes: int
    tokens: int


@public
class KvPagePool:
    """Which of the pages of a memory are in use. A page may have several holders, such as the
    sequences that begin alike; it is free again once all have freed it."""

    def __init__(self, num_pages: int, bytes_per_page: int, tokens_per_page: int) -> None:
        for name, n in (
            ("num_pages", num_pages),
            ("bytes_per_page", bytes_per_page),
            ("tokens_per_page", tokens_per_page),
        ):
            _positive("KvPagePool", name, n)
        self.capacity, self.bytes_per_page = num_pages, bytes_per_page
        self.tokens_per_page = tokens_per_page
        self._free = list(range(num_pages))
        self._holders: Counter[int] = Counter()

    @property
    def free_count(self) -> int:
        """How many pages nobody holds."""
        return len(self._free)

    @property
    def used_count(self) -> int:
        """How many pages somebody holds."""
        return self.capacity - len(self._free)

    def alloc(self) -> int | None:
        """The free page with the lowest number, which is the caller's now; None if there is
        none."""
        if not self._free:
            return None
        page = heappop(self._free)
        self._holders[page] = 1
        return page

    def share(self, page: int) -> None:
        """One holder more for a page in use."""
        self._held(page)
        self._holders[page] += 1

    def free(self, page: int) -> None:
        """One holder less for a page in use."""
        self._held(page)
        self._holders[page] -= 1
        if not self._holders[page]:
            del self._holders[page]
            heappush(self._free, page)

    def holders(self, page: int) -> int:
        """How many hold a page; 0 if it is free."""
        return self._holders.get(page, 0)

    def descriptor(self, page: int) -> KvPageDescriptor:
        """Where a page lies; it may be free."""
        if not 0 <= page < self.capacity:
            raise GraphError(f"the pool has pages 0 to {self.capacity - 1}, found {page}")
        size = self.bytes_per_page
        return KvPageDescriptor(page, page * size, size, self.tokens_per_page)

    def reset(self) -> None:
        """Take all pages from all holders."""
        self._holders.clear()
        self._free = list(range(self.capacity))
        heapify(self._free)

    def _held(self, page: int) -> None:
        if page not in self._holders:
            raise GraphError(f"page {page} is not in use: it was freed, or never allocated")


@public
class KvBlockTable:
    """The pages of a sequence, in the order of its tokens."""

    def __init__(self, tokens_per_page: int, pages: Iterable[int] = ()) -> None:
        _positive("KvBlockTable", "tokens_per_page", tokens_per_page)
        self.tokens_per_page, self.pages = tokens_per_page, list(pages)

    @property
    def tokens(self) -> int:
        """For how many tokens there are pages."""
        return len(self.pages) * self.tokens_per_page

    def push_page(self, page: int) -> None:
        """One page more, for the tokens behind those of the others."""
        self.pages.append(page)

    def page_for_token(self, token: int) -> int:
        """The page of a token, counted from the sequence's first."""
        if not 0 <= token < self.tokens:
            raise GraphError(f"token {token} has no page: there are pages for {self.tokens}")
        return self.pages[token // self.tokens_per_page]

    def reserve(self, tokens: int, pool: KvPagePool) -> bool:
        """Take pages of a pool until there are enough for so many tokens; whether it had enough.
        If not, nothing is taken."""
        missing = max(0, -(-tokens // self.tokens_per_page) - len(self.pages))
        if missing > pool.free_count:
            return False
        for _ in range(missing):
            page = pool.alloc()
            assert page is not None
            self.pages.append(page)
        return True

    def release(self, pool: KvPagePool) -> None:
        """Give all pages back, the last first."""
        while self.pages:
            pool.free(self.pages.pop())


class BatchKind(Enum):
    """Whether an entry reads a part of a prompt, or continues what it has read."""

    PREFILL = "prefill"
    DECODE = "decode"


@record
class BatchEntry:
    """What one sequence puts into a step: ``input_tokens``, which follow ``cached_len`` tokens
    whose keys and values are in its pages."""

    seq_id: int
    kind: BatchKind
    input_tokens: Sequence[int]
    cached_len: int = 0


@public
class BatchConstructor:
    """Chooses what goes into a step: at most ``max_tokens`` rows of ``max_entries`` sequences."""

    def __init__(self, max_tokens: int, max_entries: int) -> None:
        _positive("BatchConstructor", "max_tokens", max_tokens)
        _positive("BatchConstructor", "max_entries", max_entries)
        self.max_tokens, self.max_entries = max_tokens, max_entries

    def build(self, decode_q: deque[BatchEntry], prefill_q: deque[BatchEntry]) -> list[BatchEntry]:
        """The entries of the next step, which are taken from the front of the queues.

        Decodes come first, up to the first that is beyond the budget; then prefills. The last of
        those is cut to what is left, and its rest goes back to the front of ``prefill_q`` with
        ``cached_len`` advanced.
        """
        found: list[BatchEntry] = []
        left = self.max_tokens
        while decode_q and len(found) < self.max_entries:
            if len(decode_q[0].input_tokens) > left:
                break
            found.append(decode_q.popleft())
            left -= len(found[-1].input_tokens)
        while prefill_q and left and len(found) < self.max_entries:
            entry = prefill_q.popleft()
            tokens = entry.input_tokens
            if len(tokens) > left:
                cached = entry.cached_len + left
                prefill_q.appendleft(BatchEntry(entry.seq_id, entry.kind, tokens[left:], cached))
                entry = BatchEntry(entry.seq_id, entry.kind, tokens[:left], entry.cached_len)
            found.append(entry)
            left -= len(entry.input_tokens)
        return found


def _positive(what: str, name: str, n: int) -> None:
    if n < 1:
        raise GraphError(f"{what}: {name} is 1 or more, found {n}")
