"""Judges a whole session: every refusal in the code was provoked by some test of it.

What it lists, no test has seen: an error with a message that nobody has read. ``raise_sites`` says
what counts, and how a site that cannot be reached is marked.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from support import raise_sites


def missed(seen: Iterable[raise_sites.Site]) -> list[str]:
    """The sites that were not reached, each with its line, but for those of absent drivers."""
    away = files_of_absent_drivers()
    sites = sorted(s for s in set(raise_sites.all_sites()) - {*seen} if s[0] not in away)
    root = raise_sites.PACKAGE.parent
    return [f"{file}:{n}: {linecache.getline(str(root / file), n).strip()}" for file, n in sites]


def files_of_absent_drivers() -> set[str]:
    """The files of drivers that find no device here, and have no stand-in, of Triton's compiler
    where it is not installed, of what reads PyTorch's modules where that is not, and of what
    writes for MLX and Core ML: nothing reaches them."""
    # Imported here: conftest imports this module before it notes what the package raises.
    from rlx.targets import triton
    from rlx.targets.gpu import drivers
    from support.drivers import SOFTWARE

    away: set[str] = set()
    if find_spec("torch") is None:
        folder = raise_sites.PACKAGE / "frontends" / "torch"
        own = [p for p in folder.glob("*.py") if p.name not in ("__init__.py", "node.py")]
        away |= {str(p.relative_to(raise_sites.PACKAGE.parent)) for p in own}
    away |= {
        f"rlx/targets/{target}/words.py"
        for target, package in (("mlx", "mlx"), ("ane", "coremltools"))
        if find_spec(package) is None
    }
    if not triton.usable(triton.installed()):
        away |= {f"rlx/targets/triton/{name}.py" for name in ("compile", "process")}
    for api in SOFTWARE:
        if not drivers.probe(api).found:
            module, _, _ = drivers.DRIVERS[api].opener.partition(":")
            folder = raise_sites.PACKAGE.parent / Path(*module.split(".")).parent
            own = [folder / name for name in ("api.py", "launch.py", "device.py")]
            away |= {str(p.relative_to(raise_sites.PACKAGE.parent)) for p in own}
    return away
