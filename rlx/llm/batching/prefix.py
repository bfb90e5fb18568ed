"""Pages of keys and values that sequences which begin alike share.

A full page is known by its tokens and by the page before it, so that a prompt is looked up a page
at a time. The cache is a holder of its pages, beside the sequences that use them; a page that no
sequence uses stays until memory is needed, and goes the least recently used first.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from rlx.base.frozen import record
from rlx.llm.pages import KvPagePool

__all__ = ["ROOT", "Node", "PrefixCache"]

ROOT = 0
"""The node before the first page. Texts of adapters, which have other keys and values for the same
tokens, have roots of their own, of lower numbers."""


@record
class Node:
    """A page of the cache: ``users`` are the sequences whose beginning it is, ``children`` how many
    pages follow it, ``used`` when it was last asked for."""

    parent: int
    tokens: tuple[int, ...]
    page: int
    users: int = 0
    children: int = 0
    used: int = 0


class PrefixCache:
    """A tree of pages, each below the one that stands before it."""

    def __init__(self, pool: KvPagePool) -> None:
        self.pool = pool
        self.nodes: dict[int, Node] = {}
        self.idle = 0
        self.hits = self.lookups = 0
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._next, self._clock = ROOT + 1, 0
        self._oldest: list[tuple[int, int]] = []

    def match(self, tokens: Sequence[int], most: int, root: int = ROOT) -> tuple[int, list[int]]:
        """The node and the pages of the longest beginning that is here, of at most ``most`` tokens.
        The caller is one more holder and user of each; it calls ``release`` with the node once."""
        size = self.pool.tokens_per_page
        node, pages = root, list[int]()
        self.lookups += most // size
        for at in range(0, most - size + 1, size):
            below = self._numbers.get((node, tuple(tokens[at : at + size])))
            if below is None:
                break
            node = below
            pages.append(self._use(node))
        self.hits += len(pages)
        return node, pages

    def insert(self, parent: int, tokens: Sequence[int], page: int) -> tuple[int, int]:
        """Make a sequence's full page known behind ``parent``, which it uses. Returns the node, and
        the page that the sequence holds from now on: that of an equal node, if there is one."""
        key = (parent, tuple(tokens))
        known = self._numbers.get(key)
        if known is not None:
            shared = self._use(known)
            self.pool.free(page)
            return known, shared
        number, self._next = self._next, self._next + 1
        self._numbers[key] = number
        self.nodes[number] = Node(parent, key[1], page, users=1, used=self._tick())
        if parent > ROOT:
            self.nodes[parent].children += 1
        self.pool.share(page)
        return number, page

    def release(self, node: int) -> None:
        """A sequence whose last node this is uses the path to it no more. It frees its pages
        itself."""
        now = self._tick()
        while node > ROOT:
            found = self.nodes[node]
            found.users -= 1
            found.used = now
            if not found.users:
                self.idle += 1
                heappush(self._oldest, (now, node))
            node = found.parent

    def evict(self, count: int) -> int:
        """Free up to ``count`` pages that no sequence uses; returns how many there were."""
        freed = 0
        while freed < count and self._oldest:
            used, number = heappop(self._oldest)
            node = self.nodes.get(number)
            if node is None or node.used != used or node.users or node.children:
                continue
            del self.nodes[number], self._numbers[node.parent, node.tokens]
            self.pool.free(node.page)
            self.idle -= 1
            freed += 1
            if node.parent > ROOT:
                above = self.nodes[node.parent]
                above.children -= 1
                if not above.users and not above.children:
                    heappush(self._oldest, (above.used, node.parent))
        return freed

    def _use(self, number: int) -> int:
        node = self.nodes[number]
        if not node.users:
            self.idle -= 1
        node.users += 1
        node.used = self._tick()
        self.pool.share(node.page)
        return node.page

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
