"""Wrong arguments to everything that users call, made from signatures (``support.wrong_calls``)."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from support.wrong_calls import Entry, calls, judge, surface

ENTRIES = surface()
NAMES = [e.label for e in ENTRIES]

SHARE = 8
"""One call in so many is made here; ``test_every_wrong_argument`` makes all."""


def wrong(entry: Entry, share: int) -> dict[str, str]:
    """What is wrong with the answers to the calls of an entry, or to a part of them."""
    chosen = (c for c in calls(entry) if not zlib.crc32(c.label.encode()) % share)
    return {c.label: why for c in chosen if (why := judge(c))}


def test_the_surface_is_all_there() -> None:
    assert len(set(NAMES)) == len(NAMES) > 700
    some = ["fit", "Session.compile", "optim.Adam", "Graph.input", "CompiledGraph.run", "scan"]
    assert {*(f"rlx.{name}" for name in some), "g.conv2d", "gelu (mir.gelu)"} <= set(NAMES)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_wrong_arguments(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some are paths
    assert not wrong(entry, SHARE)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_every_wrong_argument(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not wrong(entry, 1)
