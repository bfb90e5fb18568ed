"""Pages of keys and values, and what goes into a step."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
from rlx.errors import GraphError
from rlx.llm.engine import StepRows
from rlx.llm.pages import BatchConstructor, BatchEntry, BatchKind, KvBlockTable, KvPagePool


def test_the_lowest_free_page_comes_first() -> None:
    pool = KvPagePool(4, 256, 16)
    assert [pool.alloc() for _ in range(5)] == [0, 1, 2, 3, None]
    pool.free(2)
    pool.free(1)
    assert (pool.free_count, pool.used_count, pool.capacity) == (2, 2, 4)
    assert pool.alloc() == 1
    assert pool.descriptor(3) == (3, 768, 256, 16)


def test_a_shared_page_is_free_once_all_have_freed_it() -> None:
    pool = KvPagePool(1, 8, 1)
    assert pool.alloc() == 0
    pool.share(0)
    pool.free(0)
    assert pool.holders(0) == 1
    assert pool.free_count == 0
    pool.free(0)
    assert pool.holders(0) == 0
    assert pool.alloc() == 0
    pool.reset()
    assert pool.free_count == 1


def test_a_table_has_the_page_of_a_token() -> None:
    pool, table = KvPagePool(3, 8, 4), KvBlockTable(4)
    assert table.reserve(5, pool)
    assert not table.reserve(13, pool)
    assert pool.used_count == 2
    table.push_page(2)
    assert [table.page_for_token(t) for t in (0, 3, 4, 11)] == [0, 0, 1, 2]
    table = KvBlockTable(4, table.pages[:2])
    table.release(pool)
    assert (table.pages, pool.used_count) == ([], 0)


@given(st.integers(0, 1 << 30))
def test_a_pool_is_a_set_of_pages(seed: int) -> None:
    r, pool = random.Random(seed), KvPagePool(5, 1, 1)
    held: list[int] = []
    for _ in range(60):
        what = r.choice(("alloc", "free", "share"))
        if what == "alloc":
            free = sorted({*range(5)} - {*held})
            assert pool.alloc() == (free[0] if free else None)
            held += free[:1]
        elif held:
            page = r.choice(held)
            if what == "free":
                held.remove(page)
                pool.free(page)
            else:
                held.append(page)
                pool.share(page)
        assert pool.used_count == len({*held})


def _entries(kind: BatchKind, *lengths: int) -> deque[BatchEntry]:
    return deque(BatchEntry(i, kind, [*range(n)], 7) for i, n in enumerate(lengths))


def test_decodes_go_first_and_the_last_prompt_is_cut() -> None:
    decodes, prompts = _entries(BatchKind.DECODE, 1, 2), _entries(BatchKind.PREFILL, 4, 5, 3)
    found = BatchConstructor(10, 8).build(decodes, prompts)
    assert [(e.kind.value, list(e.input_tokens)) for e in found] == [
        ("decode", [0]), ("decode", [0, 1]), ("prefill", [0, 1, 2, 3]), ("prefill", [0, 1, 2]),
    ]  # fmt: skip
    assert not decodes
    assert prompts[0] == BatchEntry(1, BatchKind.PREFILL, [3, 4], 10)
    assert len(prompts) == 2


def test_decodes_stop_at_the_first_beyond_the_budget() -> None:
    decodes = _entries(BatchKind.DECODE, 1, 3, 1)
    assert [e.seq_id for e in BatchConstructor(3, 8).build(decodes, deque())] == [0]
    assert [e.seq_id for e in decodes] == [1, 2]
    assert len(BatchConstructor(9, 1).build(decodes, _entries(BatchKind.PREFILL, 1))) == 1


def test_rows_of_entries() -> None:
    rows = StepRows.of([([5, 6], 3, [1]), ([7], 0, [2])])
    assert rows.ids.tolist() == [5, 6, 7]
    assert rows.positions.tolist() == [3, 4, 0]
    assert rows.sequence.tolist() == [0, 0, 1]
    assert rows.wanted.tolist() == [1, 2]
    assert StepRows.of([([5, 6], 3, [1])], every=True).wanted.tolist() == [0, 1]
    assert rows.ids.dtype == np.int32


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no pages": (lambda: KvPagePool(0, 1, 1), "num_pages is 1 or more, found 0"),
    "no tokens": (lambda: KvBlockTable(0), "tokens_per_page is 1 or more"),
    "no rows": (lambda: BatchConstructor(0, 1), "max_tokens is 1 or more"),
    "freed twice": (lambda: KvPagePool(1, 1, 1).free(0), "page 0 is not in use"),
    "no such page": (lambda: KvPagePool(2, 1, 1).descriptor(2), "pages 0 to 1, found 2"),
    "beyond": (lambda: KvBlockTable(4, [1]).page_for_token(4), "pages for 4"),
    "empty step": (lambda: StepRows.of([]), "at least one sequence"),
    "empty entry": (lambda: StepRows.of([([], 0, [])]), "at least one token"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    call, says = WRONG[name]
    with pytest.raises(GraphError, match=says):
        call()


def test_the_names_are_public() -> None:
    assert rlx.KvPagePool is KvPagePool
