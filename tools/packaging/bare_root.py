"""Walk a newcomer's path (tools/try_package.py) in a root of Debian's with Python and nothing else.

    python tools/packaging/bare_root.py dist/rlx-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl
    python tools/packaging/bare_root.py WHEEL --suite trixie

debootstrap makes the root in a temporary folder, which takes the rights of root. It has Python of
that suite, its venv module and certificates: no compiler, no pip but that of ensurepip, an empty
home. pip is told where packages come from as it is here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("python3", "python3-venv", "ca-certificates")

NEEDED = ("README.md", "tools/try_package.py", "tools/find_model.py", "test/support")
"""What the walk reads of a checkout."""

SETTINGS = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How this machine reaches package registries, as far as it has them."""


SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
CHROOT = "/usr/sbin/chroot"


def made(suite: str, folder: Path) -> Path:
    """A root of a suite, as small as it can be."""
    include = f"--include={','.join(PACKAGES)}"
    root = folder / "root"
    command = ["debootstrap", "--variant=minbase", include, suite, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr}")
    for name in SETTINGS:
        if (source := Path("/", name)).exists():
            shutil.copy(source, root / name)
    for name in NEEDED:
        source, to = ROOT / name, root / "rlx" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, to)
    return root


@contextmanager
def processes(root: Path) -> Generator[None]:
    """/proc of a root, for the time of the block."""
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", root / "proc"], check=True)


def walk(root: Path, wheel: Path) -> int:
    """The exit status of the walk in a root."""
    shutil.copy(wheel, root / "rlx" / wheel.name)
    given = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    given.pop("PIP_FIND_LINKS", None)  # a folder that is not there
    environment = {"PATH": SEARCHED, "HOME": "/root", "LC_ALL": "C.UTF-8", **given}
    program = ["python3", "/rlx/tools/try_package.py", "--python", "python3"]
    command = [CHROOT, root, *program, "--wheel", f"/rlx/{wheel.name}"]
    with processes(root):
        return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    """Make a root and walk."""
    parser = argparse.ArgumentParser(description="Walk a newcomer's path in a bare root.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--suite", default="bookworm", help="of Debian (bookworm)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return walk(made(given.suite, Path(folder)), given.wheel)


if __name__ == "__main__":
    sys.exit(main())
