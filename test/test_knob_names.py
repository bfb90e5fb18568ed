"""Variables that look like RLX's and are none: a warning, once a process, with the nearest name."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from rlx import knobs
from rlx.errors import KnobWarning

CODE = """
import rlx
rlx.Session("cpu")
rlx.Session("cpu")
"""


def said(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """The warnings of a process with these variables and no others of RLX's."""
    for name in [n for n in os.environ if n.startswith("RLX_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        knobs.check_names.__wrapped__()
    assert all(w.category is KnobWarning for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RLX_TRACE_PERFETTO", "did you mean 'RLX_TRACE'?"),
        ("RLX_VERBOSE", "did you mean 'RLX_LOG'?"),
        ("RLX_WORKERS", "did you mean 'RLX_NUM_THREADS'?"),
        ("RLX_DEVISE", "did you mean 'RLX_DEVICE'?"),
        ("RLX_QQQQQ", "docs/knobs.md lists those that are"),
    ],
)
def test_an_unknown_name_is_told(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (message,) = said(monkeypatch, **{name: "1"})
    assert message == f"environment variable {name} is not read by RLX; {hint}"


def test_names_of_ours_and_of_the_tests_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: "" for name in knobs.KNOBS}
    names |= {"RLX_TEST_ANYTHING": "1", "RLX_BUILD_TESTS": "ON", "RLX_SANITIZE": "none"}
    assert said(monkeypatch, **names) == []


@pytest.mark.parametrize("program", [["-c", CODE], ["-m", "rlx.tools.cli", "devices"]])
def test_a_process_says_it_once_on_standard_error(program: list[str]) -> None:
    env = {n: v for n, v in os.environ.items() if not n.startswith("RLX_")}
    found = subprocess.run(
        [sys.executable, *program],
        env={**env, "RLX_DEVISE": "cpu"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stderr.count("KnobWarning: environment variable RLX_DEVISE") == 1


def test_an_import_looks_at_nothing() -> None:
    code = "import rlx, sys; assert 'rlx.knobs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "RLX_QQ": "1"})
