"""The count of a directory's bytes: never too small, and rarely taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlx.runtime.cache.entry import Entry
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.cache.store import Found, Store
from rlx.runtime.cache.usage import LINES, Noted, Usage


@pytest.fixture
def usage(tmp_path: Path) -> Usage:
    return Usage(tmp_path / "usage")


def put(store: Store, n: int, size: int = 1000) -> None:
    key = Key("thing", (Part("number", str(n)),))
    store.write((key, Entry.of(key, os.urandom(size))))


def total(usage: Usage, size: int = 0) -> int | None:
    return usage.written(size, usage.add(size))


def test_a_write_adds_to_what_was_counted(usage: Usage) -> None:
    usage.counted(1000)
    found = total(usage, 50)
    assert found == 1000 + 50 + usage.path.stat().st_size
    found = total(usage, 7)
    assert found == 1000 + 57 + usage.path.stat().st_size


GOOD = "1000 0123456789abcdef\n"


@pytest.mark.parametrize("text", ["", GOOD[:-1], "1000\n", f"-{GOOD}", f"{GOOD}many\n", "\n"])
def test_anything_else_has_to_be_counted(usage: Usage, text: str) -> None:
    usage.path.write_text(GOOD)
    assert total(usage, 50) is not None
    usage.path.write_text(text)
    assert total(usage, 50) is None


def test_no_file_has_to_be_counted(usage: Usage) -> None:
    assert usage.add(50) == Noted()
    assert usage.written(50, Noted()) is None


def test_many_writes_have_to_be_counted(usage: Usage) -> None:
    usage.counted(0)
    found = [total(usage, 1) for _ in range(LINES + 1)]
    assert None not in found[:LINES] and found[LINES] is None


def test_a_count_that_missed_a_write_learns_of_it(usage: Usage) -> None:
    usage.counted(0)
    noted = usage.add(50)
    usage.forget()  # somebody counts, before the file is there
    usage.counted(1000)
    found = usage.written(50, noted)
    assert found is not None and found >= 1050
    again = total(usage)
    assert again is not None and again >= 1050


def test_of_two_counts_the_first_to_end_stands(usage: Usage) -> None:
    usage.forget()
    usage.counted(1000)
    total(usage, 50)
    usage.counted(0)  # began before the write
    found = total(usage)
    assert found is not None and found >= 1050
    assert [p.name for p in usage.path.parent.iterdir()] == ["usage"]


def test_a_store_looks_at_its_files_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    files = Store._files

    def counting(self: Store) -> Iterator[Found]:
        looks.append(1)
        return files(self)

    monkeypatch.setattr(Store, "_files", counting)
    for n in range(40):
        put(Store(tmp_path / "cache", 1 << 20), n)  # as so many processes
    assert len(looks) == 1


def test_stores_see_each_others_bytes(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "cache", 20_000) for _ in range(4)]
    for n in range(200):
        put(stores[n % 4], n)
        kept: Any = (p.stat().st_size for p in stores[0].folder.rglob("*") if p.is_file())
        assert sum(kept) <= 20_000
