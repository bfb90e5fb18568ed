"""Programs in C, where a case has one."""

from __future__ import annotations

from pathlib import Path

from bench.case import Case, Run


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The call of the case's own library."""
    return case.own["c"](case, threads)
