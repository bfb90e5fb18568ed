"""What pyproject.toml promises: extras that exist by every name that RLX or its pages say."""

from __future__ import annotations

import re
import tomllib

from rlx.base.device_names import KNOWN
from support.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NAMED = re.compile(r"(?:\brlx|/rlx|'\.)\[([a-z][a-z,-]*)\]")
OF_DEVELOPERS = {"test", "docs", "bench"}
OF_VENDORS = {"tpu", "mlx", "ane"}
"""Large packages, each of one vendor's devices alone."""


def reached(extra: str) -> set[str]:
    """The packages that an extra installs, those of extras that it names included."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        if inner := NAMED.match(requirement):
            found |= {p for name in inner[1].split(",") for p in reached(name)}
        else:
            found.add(requirement)
    return found


def test_extras_that_are_named_exist() -> None:
    named: dict[str, str] = {}
    for folder, kind in (("rlx", "*.py"), ("docs", "*.md"), ("tools", "*.py"), (".", "*.md")):
        walk = (ROOT / folder).glob if folder == "." else (ROOT / folder).rglob
        for path in walk(kind):
            for found in NAMED.findall(path.read_text(encoding="utf-8")):
                named |= {extra: str(path) for extra in found.split(",")}
    assert {"compile", "models", "triton", "directx"} <= set(named)
    assert not {e: path for e, path in named.items() if e not in EXTRAS}


def test_every_device_that_runs_has_an_extra() -> None:
    devices = {d for d, known in KNOWN.items() if "no driver" not in known.needs}
    assert devices - {"cpu", "interpret"} <= set(EXTRAS)
    for extra in ("nvidia", "apple-silicon", "edge", "all"):
        assert extra in EXTRAS


def test_all_has_what_users_need_and_the_page_lists_each() -> None:
    everything = reached("all")
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    for extra in EXTRAS:
        if extra not in OF_DEVELOPERS | OF_VENDORS:
            assert reached(extra) <= everything, extra
        assert f"`{extra}`" in page, extra
