"""The progress bar: when it is drawn, and that it leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from rlx.models.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO, show: bool | None, steps: int = 4) -> str:
    with Progress("work", steps, show, stream) as bar:
        for _ in range(steps):
            bar.advance()
    return stream.getvalue()


def test_short_work_and_files_see_nothing() -> None:
    assert run(Terminal(), None) == ""
    assert run(io.StringIO(), None) == ""
    assert run(Terminal(), False) == ""


def test_long_work_on_a_terminal_draws_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("rlx.models.progress.time.monotonic", lambda: float(next(clock)))
    text = run(Terminal(), None)
    assert "work [######" in text and "4/4" in text and text.endswith("\r\x1b[K")


def test_the_line_is_cleared_after_an_error() -> None:
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), Progress("work", 2, True, stream) as bar:
        bar.advance()
        raise ZeroDivisionError
    assert stream.getvalue().endswith("\r\x1b[K")
