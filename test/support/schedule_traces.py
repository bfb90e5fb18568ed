"""Made-up traces of requests through the scheduler, with an engine that remembers what it wrote.

The engine keeps for each slot of each page the tokens whose keys and values it holds, from the
first of the sequence on: who reads a page that is not the own text's, or writes one that others
read, is found at once.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from rlx.llm.batching.scheduler import Entry, Limits, Schedule, cancel, commit, next_step, submit
from rlx.llm.pages import KvPagePool

__all__ = ["Trace", "run_trace"]


@dataclass
class Trace:
    """A trace as it runs: what is scheduled, what the pages hold, and what each sequence wants."""

    schedule: Schedule
    rng: random.Random
    memory: dict[tuple[int, int], int] = field(default_factory=dict)
    wanted: dict[int, int] = field(default_factory=dict)
    longest: dict[int, int] = field(default_factory=dict)
    found: dict[int, dict[int, bool]] = field(default_factory=dict)
    """Of each sequence, which of its tokens were in a page when it first needed them."""
    waited: Counter[int] = field(default_factory=Counter)
    drafting: bool = False
    done: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0

    def step(self) -> list[Entry]:
        """One step: plan, check, run, commit."""
        s = self.schedule
        before = {r.name for r in s.running.values() if r.missing == 1}
        drafts = {name: self.draft(self.wanted[name] - 1) for name in s.running}
        entries = next_step(s, drafts)
        self.check_step(entries)
        drawn: dict[int, list[int]] = {}
        for e in entries:
            self.run(e)
            assert not e.drafted or e.tokens[-e.drafted :] == tuple(drafts[e.name][: e.drafted])
            if e.last:
                drawn[e.name] = self.draw(e)
                self.wanted[e.name] -= len(drawn[e.name])
                self.drafted += e.drafted
                self.accepted += len(drawn[e.name]) - 1
        ended = [e.name for e in entries if e.last and not self.wanted[e.name]]
        commit(s, entries, drawn)
        for r in (s.running[e.name] for e in entries if e.last):
            assert len(r.pages) <= -(-len(r.tokens) // s.pool.tokens_per_page), "drafts keep pages"
        for r in (s.running[e.name] for e in entries if e.last):
            assert r.hit == sum(self.found[r.name].values()), "hits are on pages of its own"
        for name in ended:
            assert cancel(s, name)
            self.done += 1
        self.check_waits(before, {e.name for e in entries})
        self.check_pages()
        self.steps += 1
        return entries

    def draft(self, most: int) -> list[int]:
        """Tokens that a sequence may go on with."""
        count = self.rng.randint(0, min(most, 5)) if self.drafting else 0
        return [self.rng.randrange(3) for _ in range(count)]

    def draw(self, e: Entry) -> list[int]:
        """What a sequence goes on with: some of its draft, and one token more."""
        draft = e.tokens[len(e.tokens) - e.drafted :]
        return [*draft[: self.rng.randint(0, e.drafted)], self.rng.randrange(3)]

    def run(self, e: Entry) -> None:
        """What an engine does with an entry."""
        tokens = [*self.schedule.running[e.name].tokens, *e.tokens[len(e.tokens) - e.drafted :]]
        size, adapter = self.schedule.pool.tokens_per_page, self.schedule.running[e.name].adapter
        found = self.found.setdefault(e.name, {})
        for at in range(e.cached):
            found.setdefault(at, True)
            held = self.memory.get((e.pages[at // size], at % size))
            assert held == hash((adapter, *tokens[: at + 1])), "a page holds another text"
        for at in range(e.cached, e.cached + len(e.tokens)):
            page = e.pages[at // size]
            assert self.schedule.pool.holders(page) == 1, "a page that others hold is written"
            found.setdefault(at, False)
            self.memory[page, at % size] = hash((adapter, *tokens[: at + 1]))
        assert e.tokens == tuple(tokens[e.cached : e.cached + len(e.tokens)])
        assert e.adapter == adapter
        assert e.last == (e.cached + len(e.tokens) == len(tokens))

    def check_step(self, entries: list[Entry]) -> None:
        """Budgets, and that a step is not empty while somebody waits."""
        s, limits = self.schedule, self.schedule.limits
        assert sum(len(e.tokens) for e in entries) <= limits.max_tokens
        assert len(entries) <= limits.max_sequences and len(s.running) <= limits.max_sequences
        assert len({e.name for e in entries}) == len(entries)
        assert entries or not (s.waiting or s.running), "nothing is done while somebody waits"
        for e in entries:
            assert e.tokens and e.cached + len(e.tokens) <= len(e.pages) * s.pool.tokens_per_page

    def check_pages(self) -> None:
        """Every page has the holders that it should: no page is lost or freed too early."""
        s = self.schedule
        held = Counter(page for r in s.running.values() for page in r.pages)
        known = Counter(node.page for node in s.prefix.nodes.values())
        assert not known or max(known.values()) == 1, "two nodes have one page"
        for page in range(s.pool.capacity):
            assert s.pool.holders(page) == held[page] + known[page], "holders are counted wrongly"
        assert not any(r.pages for r in s.waiting.values())
        users = Counter[int]()
        for r in s.running.values():
            node = r.node
            while node > 0:
                users[node] += 1
                node = s.prefix.nodes[node].parent
        assert all(n.users == users[k] for k, n in s.prefix.nodes.items())
        assert s.prefix.idle == sum(not n.users for n in s.prefix.nodes.values())

    def check_waits(self, decoding: set[int], served: set[int]) -> None:
        """A sequence that decodes takes part again within the steps that one round of all takes."""
        limits, running = self.schedule.limits, self.schedule.running
        rows = max(1, limits.max_tokens - int(limits.max_tokens * limits.prompt_share))
        for name in list(self.waited):
            if name not in running:
                del self.waited[name]
        for name in decoding & set(running):
            self.waited[name] = 0 if name in served else self.waited[name] + 1
            assert self.waited[name] <= -(-limits.max_sequences // rows) + 1, "a stream starves"


def run_trace(seed: int) -> Trace:
    """A trace with sizes, prompts (which often begin alike), cancellations and clients by seed; it
    ends when all are done, with no page in use that the prefix cache does not hold."""
    rng = random.Random(seed)
    size, capacity = rng.choice([1, 2, 4, 8]), rng.randint(2, 24)
    context = rng.randint(1, size * capacity)
    limits = Limits(
        rng.randint(1, 24), rng.randint(1, 8), context, prompt_share=rng.choice([0.0, 0.25, 0.5])
    )
    trace = Trace(Schedule.of(KvPagePool(capacity, 1, size), limits), rng)
    trace.drafting = rng.random() < 0.5
    stems = [[rng.randrange(3) for _ in range(context)] for _ in range(3)]
    coming = rng.randint(1, 16)
    name = 0
    while coming or trace.schedule.waiting or trace.schedule.running:
        while coming and rng.random() < 0.4:
            coming, name = coming - 1, name + 1
            prompt = rng.choice(stems)[: rng.randint(1, context)]
            if rng.random() < 0.5:
                prompt = [*prompt[:-1], rng.randrange(3)]
            trace.wanted[name] = rng.randint(1, max(1, context - len(prompt)))
            longest = min(len(prompt) + trace.wanted[name], context)
            adapter = rng.choice([0, 0, 1, 2])
            submit(trace.schedule, name, prompt, longest, rng.choice("ab"), adapter)
        everyone = [*trace.schedule.running, *trace.schedule.waiting]
        if everyone and rng.random() < 0.05:
            assert cancel(trace.schedule, rng.choice(everyone))
            trace.check_pages()
        trace.step()
        assert trace.steps < 20_000, "the trace does not come to an end"
    pool, prefix = trace.schedule.pool, trace.schedule.prefix
    assert pool.used_count == len(prefix.nodes) == prefix.idle
    prefix.evict(pool.capacity)
    assert pool.used_count == 0 and not prefix.nodes
    return trace
