"""The garbage collector during imports and compiles."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import pytest

from rlx.base.gc_pause import importing, paused


class Thing:
    """Something that the collector walks over."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    gc.unfreeze()
    gc.enable() if was_on else gc.disable()


@pytest.fixture(autouse=True, scope="module")
def _frozen_again() -> Iterator[None]:
    """What a session has frozen, its collections need not look at afterwards either."""
    frozen = gc.get_freeze_count()
    yield
    if frozen:
        gc.freeze()


def _oldest(thing: Thing) -> bool:
    return any(o is thing for o in gc.get_objects(generation=2))


@pytest.mark.parametrize("pause", [paused, importing])
@pytest.mark.parametrize("on", [True, False])
def test_it_rests_in_the_block_alone(pause: Any, on: bool) -> None:
    (gc.enable if on else gc.disable)()
    with pause():
        assert not gc.isenabled()
        with pause():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() == on
    block: AbstractContextManager[None] = pause()
    with pytest.raises(ValueError, match="from the block"), block:
        raise ValueError("from the block")
    assert gc.isenabled() == on


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What an import does to the list of modules."""
    names = (f"a_module_of_this_test_{i}" for i in itertools.count())
    return lambda: monkeypatch.setitem(sys.modules, next(names), ModuleType("new"))


def test_what_imports_make_is_old_at_once(new: Callable[[], None]) -> None:
    gc.enable()
    with importing():
        new()
        kept = Thing()
    assert _oldest(kept)
    for pause in (importing, paused):  # nothing was imported, or it is none of imports
        with pause():
            made = Thing()
        assert not _oldest(made)


def test_what_the_user_froze_stays_frozen(new: Callable[[], None]) -> None:
    gc.enable()
    kept = Thing()
    gc.freeze()
    with importing():
        new()
    assert all(o is not kept for o in gc.get_objects())  # which has all but what is frozen


def test_garbage_of_imports_is_collected_in_the_end(new: Callable[[], None]) -> None:
    gc.enable()
    gc.collect()  # so that none is due of itself
    with importing():
        new()
        Thing()
    before = sum(type(o) is Thing for o in gc.get_objects())
    gc.collect()
    assert before >= 1
    assert not any(type(o) is Thing for o in gc.get_objects())


SCRIPT = """
import gc
found = []
gc.callbacks.append(lambda *_: found.append(1))
import rlx
{}
print(len(found))
"""


def test_loading_names_of_rlx_collects_nothing() -> None:
    names = "rlx.Graph, rlx.Session, rlx.models.Embed, rlx.grad"

    def collections(text: str) -> int:
        command = [sys.executable, "-c", SCRIPT.format(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout)

    # Some run as the interpreter starts, and one at the end may be due.
    assert collections(names) <= collections("") + 2
