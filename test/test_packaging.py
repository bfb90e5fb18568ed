"""What is released: extras by every name that RLX or its pages say, and what a release checks."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlx.base.device_names import KNOWN
from support.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NAMED = re.compile(r"(?:\brlx|/rlx|'\.)\[([a-z][a-z,-]*)\]")
OF_DEVELOPERS = {"test", "docs", "bench"}
OF_VENDORS = {"tpu", "mlx", "ane", "fpga"}
"""Large packages, each of one kind of devices alone."""


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


def test_the_long_description_has_no_links_to_files() -> None:
    """As the build makes it, of the README."""
    text = built_metadata()
    assert text.startswith("Metadata-Version:") and "\n\n# RLX\n" in text
    found = {target for _, target in re.findall(r"(?<!\w)\[([^\]]*)\]\(([^)]*)\)", text)}
    assert "#install" in found and all(t.startswith(("#", "http")) for t in found), found
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(code) > 5 and all(block in text for block in code)


def built_metadata() -> str:
    """METADATA of a wheel, which is not built for it."""
    pytest.importorskip("scikit_build_core", reason="the build's own package")
    script = (
        "import sys, scikit_build_core.build as b; folder = sys.argv[1];"
        " print(b.prepare_metadata_for_build_wheel(folder, {'build-dir': folder + '/build'}))"
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", script, folder], cwd=ROOT, check=True)
        (path,) = Path(folder).glob("*.dist-info/METADATA")
        return path.read_text(encoding="utf-8")


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n{}## [{}] - 2030-01-31\n\n- All of it.\n"


@pytest.fixture
def release() -> Any:
    """The module tools/release.py."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that can be released as 1.2.3."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CMakeLists.txt").write_text("project(rlx VERSION 1.2.3 LANGUAGES CXX)\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.format("", "1.2.3"))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(tree), *words], check=True)


def commit(tree: Path) -> None:
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "all")


def test_a_tree_that_can_be_released(release: Any, tree: Path) -> None:
    assert list(release.problems(tree, "1.2.3")) == []
    (tree / "pyproject.toml").write_text('[project]\nversion = "1.2.3rc1"\n')
    (tree / "CHANGELOG.md").write_text(CHANGELOG.format("", "1.2.3rc1"))
    commit(tree)
    assert list(release.problems(tree, "1.2.3rc1")) == []


def test_what_stands_in_the_way_of_a_release(release: Any, tree: Path) -> None:
    assert list(release.problems(tree, "v1")) == ["'v1' is not a version such as 1.2.3 or 1.2.3rc1"]
    wrong = list(release.problems(tree, "1.2.4"))
    assert [w.split(" ")[0] for w in wrong] == ["pyproject.toml", "CMakeLists.txt", "CHANGELOG.md"]
    git(tree, "tag", "v1.2.3")
    (tree / "CHANGELOG.md").write_text(CHANGELOG.format("- More.\n\n", "1.2.3"))
    lines, changed, tagged = release.problems(tree, "1.2.3")
    assert lines == "CHANGELOG.md still has lines under [Unreleased]; move them to [1.2.3]"
    assert changed.endswith("not committed:\n M CHANGELOG.md")
    assert tagged == "the tag v1.2.3 is there already"
    (tree / "CHANGELOG.md").write_text("## [1.2.3] - 2030-01-31\n")
    assert "begins with '[1.2.3]" in next(iter(release.problems(tree, "1.2.3")))


def test_recipes_have_the_facts_of_the_project() -> None:
    recipe = (ROOT / "tools" / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f'version: "{PROJECT["version"]}"' in recipe
    for name, call in PROJECT["scripts"].items():
        assert f"- {name} = {call}\n" in recipe
    for requirement in PROJECT["dependencies"]:
        assert f"    - {requirement}\n" in recipe
    (mlir,) = (r for r in EXTRAS["compile"] if r.startswith("torch-mlir"))
    assert f"pip install {mlir}`" in recipe
    container = (ROOT / "tools" / "packaging" / "Containerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"EXTRAS=\[(.*)\]", container)
    assert set(extras.split(",")) <= set(EXTRAS)
