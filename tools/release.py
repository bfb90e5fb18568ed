"""Check that this tree can be released, and build sdist and wheels, which are uploaded.

    python tools/release.py 0.1.0            # check, then build into dist/
    python tools/release.py 0.1.0 --check    # only check the tree
    python tools/release.py 0.1.0 --python python3.11 --python python3.13

It needs the packages build and twine, and on Linux those of tools/packaging/manylinux.py, which
makes the wheels there, one a Python that is named. Nothing is tagged and nothing is uploaded: the
wheels of other systems are made by cibuildwheel, as pyproject.toml configures it, and
`twine upload` sends them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(root: Path, version: str) -> Iterator[str]:
    """What stands in the way of a release of a version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        yield f"{version!r} is not a version such as 1.2.3 or 1.2.3rc1"
        return
    yield from _wrong_versions(root, version)
    yield from _wrong_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    git = ["git", "-C", str(root)]
    if changed := _said([*git, "status", "--porcelain"]):
        yield f"the tree has changes that are not committed:\n{changed.rstrip()}"
    if _said([*git, "tag", "--list", f"v{version}"]):
        yield f"the tag v{version} is there already"


def _wrong_versions(root: Path, version: str) -> Iterator[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["version"] != version:
        yield f"pyproject.toml has the version {project['version']}, expected {version}"
    plain = re.split("[abr]", version)[0]  # CMake has no names for what comes before a release
    found = re.search(
        r"project\(rlx VERSION (\S+)", (root / "CMakeLists.txt").read_text(encoding="utf-8")
    )
    if found is None or found[1] != plain:
        yield f"CMakeLists.txt has the version {found and found[1]}, expected {plain}"


def _wrong_changelog(text: str, version: str) -> Iterator[str]:
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    heads = [part.split("\n", 1)[0] for part in parts]
    dated = re.compile(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$")
    if not any(dated.match(head) for head in heads):
        yield f"CHANGELOG.md has no section '## [{version}] - YEAR-MONTH-DAY'; it has {heads}"
    if heads[0] != "[Unreleased]":
        yield f"CHANGELOG.md begins with {heads[0]!r}, expected '[Unreleased]', empty"
    elif parts[0].strip() != "[Unreleased]":
        yield f"CHANGELOG.md still has lines under [Unreleased]; move them to [{version}]"


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def build(root: Path, pythons: Sequence[str]) -> list[Path]:
    """Build and check what is uploaded; the files."""
    out = root / "dist"
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty; empty it first")
    made_here = ["--sdist"] if sys.platform == "linux" else []
    subprocess.run([sys.executable, "-m", "build", *made_here, "--outdir", out, root], check=True)
    if made_here:
        sys.path.insert(0, str(root / "tools" / "packaging"))
        import manylinux  # pyright: ignore[reportMissingImports]
        import ship_kernels  # pyright: ignore[reportMissingImports]

        manylinux.wheels(pythons, out)
        for wheel in sorted(out.glob("*.whl")):
            ship_kernels.into_wheel(wheel)
    made = sorted(out.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made], check=True)
    return made


def main() -> int:
    """0 where the tree can be released, and was built if that was asked for."""
    parser = argparse.ArgumentParser(description="Check a release, and build it.")
    parser.add_argument("version")
    parser.add_argument("--check", action="store_true", help="only check the tree")
    parser.add_argument(
        "--python", action="append", metavar="PYTHON", help="one that builds a wheel (this one)"
    )
    given = parser.parse_args()
    found = list(problems(ROOT, given.version))
    for problem in found:
        print(f"- {problem}")
    if found or given.check:
        return int(bool(found))
    for path in build(ROOT, given.python or [sys.executable]):
        print(f"{path.stat().st_size:12,}  {path.name}")
    print(
        f"next: python tools/try_package.py, the wheels of cibuildwheel, git tag v{given.version}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
