"""Which sequences take part in a step, and with how many tokens.

Functions over plain data: they know no clock, no thread and no model, so that a trace of calls can
be made up and checked. A ``Schedule`` is what there is; ``submit`` and ``cancel`` change who takes
part; ``next_step`` says what the engine does next, and ``commit`` what came of it.

- Each sequence that is through its prompt takes one row of every step; what is left of the step's
  budget goes to prompts, in parts. Where there is not room for all, those who waited longest go
  first, and prompts that wait keep a part of the budget.
- Who is let in next is decided between clients by the tokens that each has been served (Y. Sheng et
  al., Fairness in serving large language models, 2024), within a client by arrival.
- Drafts, tokens that a sequence may go on with, take rows and pages that nobody else wants. Those
  that turn out wrong are taken back, with their pages.
- A sequence takes pages as it grows. If none is left, pages of the prefix cache are dropped, then
  the sequence that was let in last gives its pages back, and computes them anew later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rlx.base.frozen import field, frozen, record
from rlx.errors import GraphError, NameError, ShapeError
from rlx.llm.batching.prefix import ROOT, PrefixCache
from rlx.llm.pages import KvPagePool

__all__ = [
    "Entry", "Limits", "Running", "Schedule", "cancel", "commit", "next_step", "submit",
]  # fmt: skip

EMPTY: Mapping[int, Sequence[int]] = MappingProxyType({})


@frozen
class Limits:
    """Of a step: at most ``max_tokens`` rows of ``max_sequences`` sequences. ``context`` is the
    most tokens of a sequence. ``prompt_share`` is the part of the rows that prompts get if they
    wait, whatever else there is."""

    max_tokens: int
    max_sequences: int
    context: int
    prompt_share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_sequences", "context"):
            if getattr(self, name) < 1:
                raise GraphError(f"{name} is 1 or more, found {getattr(self, name)}")


@record
class Running:
    """A sequence: its tokens, those of the prompt first, of which ``cached`` have keys and values
    in its ``pages``; ``node`` is the last of its pages that the prefix cache knows, which keeps the
    pages of each ``adapter`` apart. ``state`` is the slot of its states, of models that have such.
    ``reached`` is
    the most that ``cached`` has been, and ``hit`` how many of these others alone computed: pages
    that it gave back and finds again are its own."""

    name: int
    tokens: list[int]
    prompt: int
    client: str = ""
    arrival: int = 0
    admitted: int = -1
    pages: list[int] = field(default_factory=list[int])
    cached: int = 0
    node: int = ROOT
    known: int = 0
    served: int = -1
    reached: int = 0
    hit: int = 0
    adapter: int = 0
    state: int = 0

    @property
    def missing(self) -> int:
        """How many tokens have no keys and values yet: 1 if it is through its prompt."""
        return len(self.tokens) - self.cached


@frozen
class Entry:
    """A sequence's part of a step: ``tokens``, which follow ``cached`` others, and its pages.
    ``last`` says that they reach the sequence's end, so that the next token is to be drawn; as many
    tokens as ``drafted`` stand behind that end, to be judged by what is drawn after each."""

    name: int
    tokens: tuple[int, ...]
    cached: int
    pages: tuple[int, ...]
    last: bool
    drafted: int = 0
    adapter: int = 0
    state: int = 0


@record
class Schedule:
    """All that is scheduled: the pool and its prefix cache, the slots of ``states`` where a model
    has such, the sequences that wait and that run, and what each client has been served. Of a model
    with states no prefix is kept: its states are gone once other tokens were read."""

    pool: KvPagePool
    limits: Limits
    prefix: PrefixCache
    states: KvPagePool | None = None
    waiting: dict[int, Running] = field(default_factory=dict[int, Running])
    running: dict[int, Running] = field(default_factory=dict[int, Running])
    served: dict[str, float] = field(default_factory=dict[str, float])
    clock: int = 0
    preemptions: int = 0

    @staticmethod
    def of(pool: KvPagePool, limits: Limits, states: KvPagePool | None = None) -> Schedule:
        """A schedule with nothing in it."""
        return Schedule(pool, limits, PrefixCache(pool), states)


def submit(
    schedule: Schedule,
    name: int,
    prompt: Sequence[int],
    longest: int,
    client: str = "",
    adapter: int = 0,
) -> None:
    """Let a sequence wait, with the adapter of a number, 0 for none. It may grow to ``longest``
    tokens; ShapeError if that is beyond the context or all pages."""
    pool, limits = schedule.pool, schedule.limits
    if not prompt:
        raise ShapeError("a prompt has one token or more")
    if name in schedule.waiting or name in schedule.running:
        raise NameError(f"there is a sequence {name} already")
    most = min(limits.context, pool.capacity * pool.tokens_per_page)
    if max(longest, len(prompt)) > most:
        raise ShapeError(
            f"{len(prompt)} tokens of prompt and an answer make up to {max(longest, len(prompt))};"
            f" there is room for {most}"
        )
    active = {s.client for s in _everyone(schedule)}
    if client not in active:
        # Who comes back has no credit from the time it was away.
        least = min((schedule.served.get(c, 0.0) for c in active), default=0.0)
        own = schedule.served.get(client, 0.0) if active else 0.0
        schedule.served = {c: schedule.served.get(c, 0.0) for c in active}
        schedule.served[client] = max(own, least)
    schedule.clock += 1
    schedule.waiting[name] = Running(
        name, list(prompt), len(prompt), client, arrival=schedule.clock, adapter=adapter
    )


def cancel(schedule: Schedule, name: int) -> bool:
    """End a sequence, whose pages are free at once; whether it was there."""
    if schedule.waiting.pop(name, None) is not None:
        return True
    found = schedule.running.pop(name, None)
    if found is not None:
        _give_back(schedule, found)
    return found is not None


def next_step(schedule: Schedule, drafts: Mapping[int, Sequence[int]] = EMPTY) -> list[Entry]:
    """What the engine does next; nothing if nobody waits. Sequences that take part have pages for
    all of it. ``drafts`` are tokens that those which decode may go on with, as many as fit within
    the context."""
    most = schedule.limits.max_tokens
    chosen: dict[int, int] = {}
    kept = int(most * schedule.limits.prompt_share) if _prompts_wait(schedule) else 0
    for s in _by_turn(schedule, decoding=True):
        if chosen and sum(chosen.values()) >= most - kept:
            break
        if s.name in schedule.running and _room_for(schedule, s, 1, chosen):
            chosen[s.name] = 1
    for s in _by_turn(schedule, decoding=False):
        count = min(most - sum(chosen.values()), s.missing)
        if count and s.name in schedule.running and _room_for(schedule, s, count, chosen):
            chosen[s.name] = count
    while schedule.waiting and len(schedule.running) < schedule.limits.max_sequences:
        left = most - sum(chosen.values())
        s = _next_client(schedule)
        if not left or not _admit(schedule, s):
            break
        chosen[s.name] = min(left, s.missing)
    drafts = _drafts_with_room(schedule, chosen, drafts)
    schedule.clock += 1
    return [
        _entry(schedule, schedule.running[name], n, drafts.get(name, ()))
        for name, n in chosen.items()
    ]


def commit(schedule: Schedule, step: Sequence[Entry], drawn: Mapping[int, Sequence[int]]) -> None:
    """What came of a step: keys and values of its entries are in their pages, and ``drawn`` has the
    next tokens of those that were ``last``: the drafts that were drawn, and one token more. Of the
    other drafts nothing is left."""
    for entry in step:
        s = schedule.running.get(entry.name)
        if s is None:  # cancelled meanwhile
            continue
        found = drawn.get(s.name, ()) if entry.last else ()
        count = len(entry.tokens) - entry.drafted + max(0, len(found) - 1)
        s.tokens += found
        s.hit += max(0, entry.cached - s.reached)
        s.cached += count
        s.reached = max(s.reached, s.cached)
        schedule.served[s.client] = schedule.served.get(s.client, 0.0) + count
        _make_known(schedule, s)
        if entry.drafted:
            _shrink(schedule, s)


# -- who is next ---------------------------------------------------------------------------


def _everyone(schedule: Schedule) -> list[Running]:
    return [*schedule.waiting.values(), *schedule.running.values()]


def _by_turn(schedule: Schedule, *, decoding: bool) -> list[Running]:
    """Those that run and decode, or read their prompt, the longest unserved first."""
    found = [s for s in schedule.running.values() if (s.missing == 1) == decoding]
    return sorted(found, key=lambda s: (s.served, s.admitted))


def _prompts_wait(schedule: Schedule) -> bool:
    return bool(schedule.waiting) or any(s.missing > 1 for s in schedule.running.values())


def _next_client(schedule: Schedule) -> Running:
    return min(
        schedule.waiting.values(), key=lambda s: (schedule.served.get(s.client, 0.0), s.arrival)
    )


# -- pages ---------------------------------------------------------------------------------


def _pages_missing(schedule: Schedule, s: Running, count: int) -> int:
    size = schedule.pool.tokens_per_page
    return max(0, -(-(s.cached + count) // size) - len(s.pages))


def _take(schedule: Schedule, s: Running, count: int) -> bool:
    """Take free pages for ``count`` more tokens, dropping what only the prefix cache holds."""
    missing = _pages_missing(schedule, s, count)
    pool = schedule.pool
    if missing > pool.free_count:
        schedule.prefix.evict(missing - pool.free_count)
    if missing > pool.free_count:
        return False
    for _ in range(missing):
        page = pool.alloc()
        assert page is not None
        s.pages.append(page)
    return True


def _room_for(schedule: Schedule, s: Running, count: int, chosen: dict[int, int]) -> bool:
    """Make room for ``count`` tokens of a sequence; others that came in later give way to it, and
    if there is none, it gives way itself."""
    while not _take(schedule, s, count):
        last = max(schedule.running.values(), key=lambda other: other.admitted)
        chosen.pop(last.name, None)
        _preempt(schedule, last)
        if last is s:
            return False
    return True


def _preempt(schedule: Schedule, s: Running) -> None:
    del schedule.running[s.name]
    _give_back(schedule, s)
    schedule.waiting[s.name] = s
    schedule.preemptions += 1


def _give_back(schedule: Schedule, s: Running) -> None:
    schedule.prefix.release(s.node)
    for page in reversed(s.pages):
        schedule.pool.free(page)
    if schedule.states is not None:
        schedule.states.free(s.state)
    s.pages, s.cached, s.node, s.known, s.admitted = [], 0, ROOT - s.adapter, 0, -1


def _admit(schedule: Schedule, s: Running) -> bool:
    """Let a sequence in, with the pages of its beginning that are known; not if what is left of its
    tokens has no room beside the others."""
    if schedule.states is None:
        node, pages = schedule.prefix.match(s.tokens, len(s.tokens) - 1, ROOT - s.adapter)
    else:
        state = schedule.states.alloc()
        if state is None:
            return False
        node, pages, s.state = ROOT - s.adapter, list[int](), state
    size = schedule.pool.tokens_per_page
    s.node, s.pages, s.known = node, pages, len(pages)
    s.cached = len(pages) * size
    free = schedule.pool.free_count + schedule.prefix.idle
    if _pages_missing(schedule, s, s.missing) > free or not _take(schedule, s, s.missing):
        _give_back(schedule, s)
        return False
    del schedule.waiting[s.name]
    schedule.clock += 1
    s.admitted = schedule.clock
    schedule.running[s.name] = s
    return True


def _make_known(schedule: Schedule, s: Running) -> None:
    """Tell the prefix cache of the pages that are full now."""
    if schedule.states is not None:
        return
    size = schedule.pool.tokens_per_page
    while (s.known + 1) * size <= s.cached:
        tokens = s.tokens[s.known * size : (s.known + 1) * size]
        s.node, s.pages[s.known] = schedule.prefix.insert(s.node, tokens, s.pages[s.known])
        s.known += 1


def _drafts_with_room(
    schedule: Schedule, chosen: Mapping[int, int], drafts: Mapping[int, Sequence[int]]
) -> dict[int, Sequence[int]]:
    """What a step has room for of drafts: nobody gives way to them."""
    found: dict[int, Sequence[int]] = {}
    left = schedule.limits.max_tokens - sum(chosen.values())
    for name in chosen:
        s = schedule.running[name]
        draft = drafts.get(name, ())[:left] if s.missing == 1 else ()
        if draft and not _take(schedule, s, 1 + len(draft)):
            draft = draft[: len(s.pages) * schedule.pool.tokens_per_page - len(s.tokens)]
        if draft:
            found[name] = draft
            left -= len(draft)
    return found


def _shrink(schedule: Schedule, s: Running) -> None:
    """Give back the pages behind a sequence's tokens, which drafts had."""
    while len(s.pages) > -(-len(s.tokens) // schedule.pool.tokens_per_page):
        schedule.pool.free(s.pages.pop())


def _entry(schedule: Schedule, s: Running, count: int, draft: Sequence[int]) -> Entry:
    s.served = schedule.clock
    tokens = (*s.tokens[s.cached : s.cached + count], *draft)
    last = s.cached + count == len(s.tokens)
    return Entry(s.name, tokens, s.cached, tuple(s.pages), last, len(draft), s.adapter, s.state)
