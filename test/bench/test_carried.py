"""Programs that are compiled in one place and run in another, here on a software device. No time is
judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import carried  # noqa: E402
from bench.device import missing  # noqa: E402
from support.samples import cases  # noqa: E402


def tiny() -> Iterator[tuple[rlx.Graph, carried.Timed]]:
    yield carried.block_products("q4_k", 2, 256, 33, "f32")
    yield carried.paged(256, "f16")


def test_what_is_made_here_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := missing("opencl"):
        pytest.skip(reason)
    samples = [c for c in cases() if str(c) in ("mir.add-f32-0", "mir.lt-f32-0")]
    monkeypatch.setattr(carried, "programs", tiny)
    monkeypatch.setattr(carried, "CACHED", 1)
    monkeypatch.setattr(carried, "SECONDS", 0.0)
    monkeypatch.setattr(carried, "batches", lambda target: [samples])
    carried.make(tmp_path, "opencl", samples=True)
    assert carried.run(tmp_path, 60.0)
    said = capsys.readouterr().out
    assert "samples: 2 agree, 0 do not, 0 were left out" in said
    assert (
        "q4_k f32 2x256x33 x 2" in said and "paged f16 8x256 x 2" in said and "failed" not in said
    )
    index = json.loads((tmp_path / "index.json").read_text())
    index["checks"][0]["cases"].reverse()  # then they are not those of the program
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert not carried.run(tmp_path, 60.0)
    assert "WRONG mir.lt-f32-0" in capsys.readouterr().out


def test_what_is_timed_has_names_of_its_own() -> None:
    found = [what for _, what in carried.programs()]
    assert len({what.name for what in found}) == len({what.file for what in found}) == len(found)
    least = next(what for what in found if what.name == "q4_0 f32 1x4096x4096")
    assert least.moved == 4096 * 4096 // 32 * 18 + 2 * 4096 * 4
    assert least.count * least.moved > carried.CACHED
