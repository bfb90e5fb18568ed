"""Every refusal in the code is provoked by some test of the session, which this test ends.

What it lists, no test has seen: an error with a message that nobody has read. ``raise_sites`` says
what counts, and how a site that cannot be reached is marked.
"""

import linecache

import pytest

from support import raise_sites


@pytest.mark.whole_session
def test_every_refusal_was_provoked(request: pytest.FixtureRequest, unwatched: list[str]) -> None:
    assert not unwatched
    if request.session.testsfailed:
        pytest.skip("tests failed, and what they did not reach says nothing")
    missed = sorted(set(raise_sites.all_sites()) - raise_sites.seen)
    lines = [
        f"{file}:{n}: {linecache.getline(str(raise_sites.PACKAGE.parent / file), n).strip()}"
        for file, n in missed
    ]
    assert not missed, "no test provokes\n" + "\n".join(lines)
