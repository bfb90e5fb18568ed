"""The directory: whole entries or none, its limit, who may use it, and how it fails."""

from __future__ import annotations

import os
import stat
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlx import knobs
from rlx.runtime.cache import shared
from rlx.runtime.cache import store as stores
from rlx.runtime.cache.entry import Damaged, Entry, key_of, pack, unpack
from rlx.runtime.cache.explain import nearest
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.cache.memory import Memory
from rlx.runtime.cache.store import Store, load, manifest_of


def key(n: int = 0, kind: str = "thing") -> Key:
    return Key(kind, (Part("number", str(n)), Part("shape", "round")))


def put(store: Store, n: int, size: int = 1000) -> Path:
    store.write((key(n), Entry.of(key(n), os.urandom(size))))
    return store.folder / "thing" / key(n).digest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1 << 20)


def test_what_is_written_is_read_by_every_store_of_the_folder(store: Store) -> None:
    assert store.read(key()) is None
    assert store.why(key()) == "there is no such entry"
    store.write((key(), Entry.of(key(), b"payload", {"made": "today"})))
    entry = Store(store.folder.parent, 1 << 20).read(key())
    assert entry is not None
    assert (entry.payload, entry.note) == (b"payload", {"made": "today"})
    assert key_of(entry.manifest) == key()
    assert Store(store.folder.parent, 1 << 20).read(key(1)) is None


def test_everything_is_private_to_the_user(store: Store) -> None:
    before = os.umask(0)
    try:
        store.write((key(), Entry.of(key(), b"payload")))
        store.miss(key(1))
    finally:
        os.umask(before)
    root = store.folder.parent
    modes = {stat.S_IMODE(p.stat().st_mode) for p in (root, *root.rglob("*")) if p.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(p.stat().st_mode) for p in root.rglob("*") if p.is_file()} == {0o600}


# -- damage ------------------------------------------------------------------------------------


def test_no_byte_of_an_entry_can_be_cut_changed_or_added() -> None:
    data = pack(key(), Entry.of(key(), b"the payload", "a note"))
    whole = unpack(data, "thing", key().digest)
    assert whole.payload == b"the payload"
    changed = [data[:n] for n in range(len(data))] + [data + b"\0", b"\n" + data, b"", b"\n"]
    for n in range(len(data)):
        for bit in (1, 0x20, 0x80):
            changed.append(data[:n] + bytes([data[n] ^ bit]) + data[n + 1 :])
    for other in changed:
        with pytest.raises(Damaged):
            unpack(other, "thing", key().digest)


def test_the_entry_of_another_key_is_not_taken(store: Store) -> None:
    one, two = put(store, 1), put(store, 2)
    os.replace(one, two)
    assert store.read(key(2)) is None
    assert "another key" in store.why(key(2))


def test_a_damaged_entry_is_no_entry_and_is_replaced(store: Store) -> None:
    path = put(store, 1)
    path.write_bytes(path.read_bytes()[:-1])
    assert store.read(key(1)) is None
    assert "damaged" in store.why(key(1))
    put(store, 1)
    assert store.read(key(1)) is not None


@pytest.mark.parametrize("what", ["symlink", "folder", "pipe", "unreadable", "empty"])
def test_what_is_no_plain_file_is_no_entry(store: Store, what: str, tmp_path: Path) -> None:
    path = put(store, 1)
    data = path.read_bytes()
    path.unlink()
    if what == "symlink":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()
    else:
        path.write_bytes(data)
        path.chmod(0)
        if os.geteuid() == 0:
            pytest.skip("root reads everything")
    assert store.read(key(1)) is None
    assert "damaged" in store.why(key(1))
    for read in (load, manifest_of):
        with pytest.raises(Damaged):
            read(path)
    if what != "folder":
        put(store, 1)
        assert store.read(key(1)) is not None


def test_a_file_that_is_not_there_is_no_entry(tmp_path: Path) -> None:
    for read in (load, manifest_of):
        with pytest.raises(Damaged, match="No such file"):
            read(tmp_path / "none")


def test_a_manifest_that_is_none_is_damage(store: Store) -> None:
    path = put(store, 1)
    path.write_bytes(pack(key(1), Entry(b"payload", b"no manifest")))
    with pytest.raises(Damaged, match="manifest"):
        load(path)
    path.write_bytes(pack(key(1), Entry(b"payload", Entry.of(key(2), b"").packed)))
    with pytest.raises(Damaged, match="another key"):
        load(path)


@pytest.mark.parametrize(
    "text",
    [
        b"[1]",
        b"[" * 100_000,
        b'{"kind": "thing", "parts": [], "note": null}',
        b'{"kind": "thing", "parts": [], "note": null, "created": "today"}',
        b'{"kind": "thing", "parts": [["name"]], "note": null, "created": 1}',
    ],
    ids=["list", "deep", "no time", "no number", "half a part"],
)
def test_what_is_no_manifest_is_damage(store: Store, text: bytes) -> None:
    path = put(store, 1)
    path.write_bytes(pack(key(1), Entry(b"payload", zlib.compress(text))))
    for read in (load, manifest_of):
        with pytest.raises(Damaged, match="manifest is malformed"):
            read(path)


@pytest.mark.parametrize("size", [10**6, 10**15, 10**100])
def test_a_size_that_lies_is_damage(store: Store, size: int) -> None:
    path = put(store, 1)
    words = path.read_bytes().split(b" ", 5)
    path.write_bytes(b" ".join([*words[:4], b"%d" % size, words[5]]))
    for read in (load, manifest_of):
        with pytest.raises(Damaged, match="first line does not fit"):
            read(path)
    assert store.read(key(1)) is None


# -- the limit ---------------------------------------------------------------------------------


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def total(store: Store) -> int:
    return sum(p.stat().st_size for p in store.folder.rglob("*") if p.is_file())


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 10_000)
    for n in range(6):
        age(put(store, n), 100 - n)
    assert store.read(key(0)) is not None  # it is the one used last now
    for n in range(6, 9):
        put(store, n)
    assert total(store) <= 10_000
    kept = [n for n in range(9) if store.read(key(n)) is not None]
    assert kept[0] == 0 and kept[-1] == 8 and 1 not in kept
    assert kept[1:] == list(range(kept[1], 9))


def test_more_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 500)
    put(store, 1)
    assert store.read(key(1)) is None
    assert total(store) == 0


def test_what_a_dead_writer_left_is_removed_in_time(store: Store) -> None:
    put(store, 1)
    left, fresh = store.folder / "staging" / "1-dead", store.folder / "staging" / "2-alive"
    left.write_bytes(b"half an entr")
    fresh.write_bytes(b"half an entr")
    age(left, stores.STALE_SECONDS + 1)
    store.trim()
    put(store, 2)
    assert not left.exists() and fresh.exists()
    assert store.clear() == 2 and fresh.exists()
    age(fresh, stores.STALE_SECONDS + 1)
    assert store.clear() == 1
    assert [p for p in store.folder.rglob("*") if p.is_file()] == []


def test_staged_files_count_towards_the_limit(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 3000)
    put(store, 1, 100)
    for n in range(5):
        (store.folder / "staging" / f"{n}-dead").write_bytes(bytes(1000))
    store.trim()
    put(store, 2, 100)
    assert total(store) <= 3000


def test_clear_lets_writers_go_on(store: Store) -> None:
    put(store, 1)
    store.clear()
    assert store.read(key(1)) is None
    put(store, 1)
    assert store.read(key(1)) is not None


def test_a_folder_that_vanishes_is_made_again(store: Store) -> None:
    import shutil

    put(store, 1)
    shutil.rmtree(store.folder.parent)
    assert store.read(key(1)) is None
    put(store, 1)
    assert store.read(key(1)) is not None
    shutil.rmtree(store.folder / "thing")
    put(store, 1)
    assert store.read(key(1)) is not None


# -- failures ----------------------------------------------------------------------------------


@pytest.fixture
def one_warning() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
        assert len(found) == 1, [str(w.message) for w in found]
        assert "RLX_CACHE_DIR" in str(found[0].message)


def use(store: Store) -> None:
    for n in range(3):
        assert store.read(key(n)) is None
        store.write((key(n), Entry.of(key(n), b"payload")))
        store.miss(key(n))


@pytest.mark.parametrize("below", [False, True])
def test_a_file_in_the_place_of_the_folder(
    tmp_path: Path, below: bool, one_warning: list[warnings.WarningMessage]
) -> None:
    (tmp_path / "cache").write_text("a file")
    use(Store(tmp_path / "cache" / "below" if below else tmp_path / "cache", 1 << 20))


def test_a_folder_that_cannot_be_written_is_still_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, one_warning: list[warnings.WarningMessage]
) -> None:
    put(store, 7)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for n in range(3):
        put(store, n)
        store.miss(key(n))
    assert store.read(key(7)) is not None
    assert list((store.folder / "staging").iterdir()) == []
    assert "No space left" in str(one_warning[0].message)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission(
    tmp_path: Path, one_warning: list[warnings.WarningMessage]
) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    use(Store(tmp_path / "cache", 1 << 20))


def test_a_folder_that_others_can_write_to_is_not_used(
    store: Store, one_warning: list[warnings.WarningMessage]
) -> None:
    put(store, 1)
    store.folder.chmod(0o770)
    other = Store(store.folder.parent, 1 << 20)
    assert other.read(key(1)) is None
    assert other.why(key(1)) == "the directory cannot be used"
    use(other)
    assert "chmod 700" in str(one_warning[0].message)


def test_a_folder_of_another_user_is_not_used(
    store: Store, one_warning: list[warnings.WarningMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 1)
    owner = store.folder.stat()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    real = os.stat

    def stat_of_a_user(path: str, **kwargs: bool) -> os.stat_result:
        s = list(real(path, **kwargs))
        s[stat.ST_UID] = owner.st_uid or 999
        return os.stat_result(s)

    monkeypatch.setattr(os, "stat", stat_of_a_user)
    use(Store(store.folder.parent, 1 << 20))
    assert "another user" in str(one_warning[0].message)


# -- where it is -------------------------------------------------------------------------------


def test_knobs_say_where_and_whether(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RLX_CACHE_SIZE", "3MiB")
    found = shared.store()
    assert found is not None and found is shared.store()
    assert (found.folder.parent, found.limit) == (tmp_path, 3 << 20)
    monkeypatch.setenv("RLX_CACHE", "off")
    assert shared.store() is None


def test_by_default_it_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", "")
    monkeypatch.setenv("HOME", "/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert shared.folder() == Path("/elsewhere/rlx")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert shared.folder() == Path("/somebody/.cache/rlx")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert shared.folder() == Path("/somebody/.cache/rlx")


def test_a_user_without_a_home_is_told_once(
    monkeypatch: pytest.MonkeyPatch, one_warning: list[warnings.WarningMessage]
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", "~nobody-of-this-name/cache")
    shared._homeless.cache_clear()
    assert shared.store() is None
    assert shared.store() is None


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("3k", 3072), ("2MiB", 2 << 20), ("1g", 1 << 30)]
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_SIZE", text)
    assert knobs.cache_size.get() == size


@pytest.mark.parametrize(
    ("variable", "text"),
    [("RLX_CACHE_SIZE", t) for t in ("-1", "MiB", "3kk", "3 x", "1.5g", "ib")]
    + [("RLX_CACHE", "maybe"), ("RLX_LOG", "cash")],
)
def test_knobs_refuse(variable: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(knobs.KnobError, match=variable):
        knobs.KNOBS[variable].get()


# -- memory, and what is nearest ---------------------------------------------------------------


def test_memory_is_bounded_and_keeps_what_was_used_last() -> None:
    memory: Memory[int] = Memory(100)
    for n in range(10):
        memory.put(str(n), n, 10)
    assert memory.get("0") == 0
    memory.put("more", 1, 25)
    assert (memory.size, len(memory)) == (95, 8)
    assert memory.get("0") == 0 and memory.get("1") is None
    memory.put("0", 5, 20)
    assert memory.get("0") == 5 and memory.size <= 100
    memory.put("huge", 1, 101)
    assert (memory.size, len(memory)) == (0, 0)


def test_the_nearest_entry_has_the_fewest_other_parts(store: Store) -> None:
    def of(*texts: str, kind: str = "thing") -> Key:
        return Key(kind, tuple(Part(f"p{i}", text) for i, text in enumerate(texts)))

    assert nearest(store, of("a", "b", "c")) is None
    near = [of("a", "x", "c"), of("y", "x", "c"), of("a", "b", "c", kind="other")]
    store.write(*((k, Entry.of(k, b"")) for k in near))
    found = nearest(store, of("a", "b", "c"))
    assert found is not None and found.key == near[0]
    assert found.differences == ["p1 is 'b' here, and 'x' there"]
    assert near[0].digest[:12] in str(found)
    assert nearest(store, of("a", "b", "c"), before=0.0) is None
