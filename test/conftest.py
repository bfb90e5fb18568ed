"""What every session has: a compile cache of its own, empty before each test."""

import itertools
import os
import tempfile

import pytest

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
