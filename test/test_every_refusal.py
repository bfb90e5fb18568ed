"""Every refusal in the code is provoked by some test of the session, which this test ends.

What it lists, no test has seen: an error with a message that nobody has read. ``raise_sites`` says
what counts, and how a site that cannot be reached is marked.
"""

import linecache
from pathlib import Path

import pytest

from rlx.targets import triton
from rlx.targets.gpu import drivers
from support import raise_sites
from support.drivers import SOFTWARE


@pytest.mark.whole_session
def test_every_refusal_was_provoked(request: pytest.FixtureRequest, unwatched: list[str]) -> None:
    assert not unwatched
    if request.session.testsfailed:
        pytest.skip("tests failed, and what they did not reach says nothing")
    away = files_of_absent_drivers()
    missed = sorted(s for s in set(raise_sites.all_sites()) - raise_sites.seen if s[0] not in away)
    lines = [
        f"{file}:{n}: {linecache.getline(str(raise_sites.PACKAGE.parent / file), n).strip()}"
        for file, n in missed
    ]
    assert not missed, "no test provokes\n" + "\n".join(lines)


def files_of_absent_drivers() -> set[str]:
    """The files of drivers that find no device here, and have no stand-in, and of Triton's compiler
    where it is not installed: nothing reaches them."""
    away: set[str] = set()
    if not triton.usable(triton.installed()):
        away |= {f"rlx/targets/triton/{name}.py" for name in ("compile", "process")}
    for api in SOFTWARE:
        if not drivers.probe(api).found:
            module, _, _ = drivers.DRIVERS[api].partition(":")
            folder = raise_sites.PACKAGE.parent / Path(*module.split(".")).parent
            own = [folder / name for name in ("api.py", "launch.py", "device.py")]
            away |= {str(p.relative_to(raise_sites.PACKAGE.parent)) for p in own}
    return away
