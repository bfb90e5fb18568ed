"""JAX programs with ``JAX_PLATFORMS=rlx``, judged by JAX's own CPU backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlx.frontends import pjrt

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "test/support/jax_platform.py"
NAMES = [line.split()[1].split("(")[0] for before, line in
         zip(SCRIPT.read_text("utf-8").splitlines(), SCRIPT.read_text("utf-8").splitlines()[1:],
             strict=False) if before == "@program"]  # fmt: skip


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "rlx,cpu"}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False,
                          env=environment, cwd=ROOT)  # fmt: skip


@cache
def results() -> dict[str, Any]:
    done = ran(str(SCRIPT))
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_what_it_gives_on_jaxs_cpu(name: str) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: it is a peer of bench/ only")
    row = results()[name]
    assert "error" not in row, row["error"]
    assert row["worst"] < 2e-4


def test_what_is_refused_is_an_error_of_jax() -> None:
    pytest.importorskip("jax", reason="JAX is not installed: it is a peer of bench/ only")
    done = ran("-c", "import jax, jax.numpy as jnp; jnp.linalg.eig(jnp.eye(3))")
    assert "UNIMPLEMENTED: RLX: these ops of StableHLO are not there yet" in done.stderr
    assert "'lapack_sgeev_ffi' x 1" in done.stderr


def test_jax_finds_the_platform_by_the_package() -> None:
    (found,) = entry_points(group="jax_plugins", name="rlx")
    assert found.load() is pjrt


def test_jax_is_left_alone_that_was_not_told_of_the_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has both packages installed sees nothing of it."""
    jax = SimpleNamespace(config=SimpleNamespace(jax_platforms=None))
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    pjrt.initialize()
