"""What every session has: a compile cache of its own, empty before each test, and notes of the
refusals that it provokes, which are judged at its end.

With ``-n 2`` (pytest-xdist) two processes share the tests. Each notes what it provokes; the process
that started them merges the notes and judges.
"""

import gc
import itertools
import os
import signal
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support import every_refusal, raise_sites

TOO_LATE = raise_sites.install()

# A session tries the same examples as the one before, however slow the machine is: it fails for a
# change, not by chance. `--hypothesis-profile=search` tries new ones.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")

_folder = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_missed = pytest.StashKey[list[str]]()
_heading = pytest.StashKey[str]()
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Subprocesses have it too, and nothing is read from or left in the user's."""
    config.stash[_folder] = tempfile.TemporaryDirectory(prefix="rlx-test-cache-")
    _use_new_cache(config)
    # What a shell starts in the background ignores Ctrl-C, and so do its subprocesses.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What a target emits is the same whether or not there is a Triton, but in the tests of that and
    # on the GPUs that a run of the tests is for.
    if not {"cuda", "rocm"} & {*os.environ.get("RLX_TEST_DEVICES", "").replace(",", " ").split()}:
        os.environ.setdefault("RLX_TRITON", "off")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_folder].cleanup()


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector need not look at them again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A test that changes the compiler must not meet what another test has compiled.
    _use_new_cache(item.config)


def _use_new_cache(config: pytest.Config) -> None:
    os.environ["RLX_CACHE_DIR"] = f"{config.stash[_folder].name}/{next(_numbers)}"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merges the notes of a process that shared the tests."""
    # A process that died has none, and its tests failed.
    unwatched, seen = getattr(node, "workeroutput", {}).get("refusals", ((), ()))
    TOO_LATE.extend(unwatched)
    raise_sites.seen.update((file, line) for file, line in seen)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["refusals"] = (TOO_LATE, sorted(raise_sites.seen))
    elif _is_whole(config) and session.testscollected:
        missed = every_refusal.missed(raise_sites.seen)
        config.stash[_missed] = [f"not watched: {module}" for module in TOO_LATE] + missed
        config.stash[_heading] = _heading_of(session)
        if config.stash[_missed] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _heading_of(session: pytest.Session) -> str:
    """What the list of refusals is, or may be, of a session as it ended."""
    heading = "refusals that no test provokes"
    if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return f"{heading}: not all tests ran, and those may provoke the rest"
    if session.testsfailed:
        return f"{heading}, but for what the {session.testsfailed} that failed would have"
    return heading


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for: a part of them cannot be judged."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    narrowed = any(config.getoption(o, None) for o in ("keyword", "deselect", "collectonly", "lf"))
    return whole and not narrowed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The refusals that no test provoked, and what each part of the tests took, beside its share of
    a session."""
    missed = terminalreporter.config.stash.get(_missed, [])
    if missed:
        terminalreporter.section(terminalreporter.config.stash[_heading], red=True)
        for line in missed:
            terminalreporter.write_line(line)
    budget = Path(__file__).with_name("budget.toml").read_text(encoding="utf-8")
    shares: dict[str, float] = tomllib.loads(budget)["minutes"]
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path = report.nodeid.partition("::")[0]
                part = max((p for p in shares if f"{path}/".startswith(p)), key=len, default="test")
                spent[part] += report.duration / 60
    if sum(spent.values()) < 1:
        return
    terminalreporter.section("minutes by part, and its share")
    for part, share in shares.items():
        over = "  more than its share" if spent[part] > share else ""
        terminalreporter.write_line(f"{spent[part]:6.1f}  {share:4.1f}  {part}{over}")
