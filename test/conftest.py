"""What every session has: the refusals that it provokes are noted, and judged at its end."""

import pytest

from support import raise_sites

TOO_LATE = raise_sites.install()

LAST = "test_every_refusal.py"


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
