"""``rlx config``: a C program builds with what it prints, by the compiler, pkg-config and CMake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlx
from rlx.tools.cli import main

PROGRAM = """\
#include <rlx.h>
#include <stdio.h>
int main(int argc, char **argv) {
  rlx_model *model;
  if (rlx_load(argv[1], &model) != RLX_OK) return puts(rlx_last_error()), 1;
  printf("%zu inputs\\n", rlx_num_inputs(model));
  rlx_free(model);
  return 0;
}
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(t LANGUAGES C CXX)
find_package(rlx REQUIRED)
add_executable(t t.c)
set_target_properties(t PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(t PRIVATE rlx::rlx)
"""

NEEDS = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a C program and an artifact."""
    monkeypatch.chdir(tmp_path)
    Path("t.c").write_text(PROGRAM)
    g = rlx.Graph()
    g.set_outputs([g.input("a", [2]) + g.input("b", [2])])
    rlx.compile_artifact(g).save("m.rlx")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    capsys.readouterr()
    assert main(["config", *options]) == 0
    return capsys.readouterr().out.split()


def runs(program: str) -> None:
    for model, status, text in (("m.rlx", 0, "2 inputs"), ("t.c", 1, "t.c")):
        done = subprocess.run([program, model], capture_output=True, text=True, check=False)
        assert done.returncode == status and text in done.stdout


@NEEDS
def test_the_compiler_builds_with_its_flags(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = said(capsys, "--cflags"), said(capsys, "--libs")
    subprocess.run(["cc", "t.c", *flags[0], *flags[1], "-o", "t"], check=True)
    runs("./t")


@NEEDS
@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="there is no pkg-config")
def test_pkg_config_knows_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder,) = said(capsys, "--pkgconfigdir")
    environment = {**os.environ, "PKG_CONFIG_PATH": folder}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "rlx"],
        capture_output=True, text=True, check=True, env=environment,
    ).stdout.split()  # fmt: skip
    subprocess.run(["cc", "t.c", *flags, "-o", "t"], check=True)
    runs("./t")


@NEEDS
def test_cmake_finds_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside = Path(sys.executable).with_name("cmake")
    cmake = str(beside) if beside.exists() else shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no CMake")
    (folder,) = said(capsys, "--cmakedir")
    Path("CMakeLists.txt").write_text(CMAKE)
    subprocess.run([cmake, "-S", ".", "-B", "b", f"-Drlx_DIR={folder}"], check=True)
    subprocess.run([cmake, "--build", "b"], check=True)
    runs("b/t")


def test_all_of_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [w for w in said(capsys) if w.endswith(":")] == [
        "cflags:", "libs:", "cmakedir:", "pkgconfigdir:",
    ]  # fmt: skip


def test_a_package_without_a_header_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.files", lambda name: [])
    assert main(["config"]) == 1
    assert "has no rlx.h; install RLX anew" in capsys.readouterr().err
