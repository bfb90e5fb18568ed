"""What every session has: a compile cache of its own, empty before each test, and notes of the
refusals that it provokes, which are judged at its end."""

import itertools
import os
import tempfile

import pytest

from support import raise_sites

TOO_LATE = raise_sites.install()

LAST = "test_every_refusal.py"

_folder = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Subprocesses have it too, and nothing is read from or left in the user's."""
    config.stash[_folder] = tempfile.TemporaryDirectory(prefix="rlx-test-cache-")
    _use_new_cache(config)


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


@pytest.fixture
def unwatched() -> list[str]:
    """Modules of the package that were imported before their refusals could be noted."""
    return TOO_LATE
