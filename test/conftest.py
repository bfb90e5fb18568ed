"""What every session has: a compile cache of its own, empty before each test, and notes of the
refusals that it provokes, which are judged at its end."""

import itertools
import os
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import raise_sites

TOO_LATE = raise_sites.install()

LAST = "test_every_refusal.py"

# A session tries the same examples as the one before, however slow the machine is: it fails for a
# change, not by chance. `--hypothesis-profile=search` tries new ones.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")

_folder = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Subprocesses have it too, and nothing is read from or left in the user's."""
    config.stash[_folder] = tempfile.TemporaryDirectory(prefix="rlx-test-cache-")
    _use_new_cache(config)
    # What a target emits is the same whether or not there is a Triton, but in the tests of that and
    # on the GPUs that a run of the tests is for.
    if not {"cuda", "rocm"} & {*os.environ.get("RLX_TEST_DEVICES", "").replace(",", " ").split()}:
        os.environ.setdefault("RLX_TRITON", "off")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_folder].cleanup()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A test that changes the compiler must not meet what another test has compiled.
    _use_new_cache(item.config)


def _use_new_cache(config: pytest.Config) -> None:
    os.environ["RLX_CACHE_DIR"] = f"{config.stash[_folder].name}/{next(_numbers)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The test of what all the others provoked comes last; a part of the tests cannot be judged."""
    items.sort(key=lambda item: item.path.name == LAST)
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    narrowed = config.getoption("keyword") or config.getoption("deselect")
    if not whole or narrowed:
        skip = pytest.mark.skip(reason="only a whole session can be judged")
        for item in items:
            if item.get_closest_marker("whole_session"):
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each part of the tests took, beside its share of a session."""
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


@pytest.fixture
def unwatched() -> list[str]:
    """Modules of the package that were imported before their refusals could be noted."""
    return TOO_LATE
