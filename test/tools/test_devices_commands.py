"""rlx devices and rlx doctor: what they list, and what they say is missing."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

import rlx
from rlx import knobs
from rlx.runtime.devices import hardware
from rlx.targets.gpu.drivers import Probe
from rlx.tools import cli
from rlx.tools.commands import doctor


def rows(text: str) -> dict[str, str]:
    return {line.split()[0]: line for line in text.splitlines()}


def test_every_device_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    found = rows(capsys.readouterr().out)
    assert set(found) >= set(rlx.DEVICE_PRIORITY)  # besides what other tests have registered
    assert found["cpu"].split()[1] == "available" and rlx.full_name("cpu") in found["cpu"]
    assert found["rocm"].split()[1] == "-" and hardware.why_missing("rocm") in found["rocm"]


def test_the_rows_are_data_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0] == {"device": "cpu", "name": rlx.full_name("cpu"), "missing": ""}
    tpu = next(row for row in found if row["device"] == "tpu")
    assert tpu["name"] == "TPU" and tpu["missing"]


def test_the_doctor_finds_a_checkout_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    checked = {line.split()[1]: line.split()[0] for line in capsys.readouterr().out.splitlines()}
    for what in ("runtime", "cpu", "mlir", "llvm", "cc", "cache"):
        assert checked[what] == "ok"


def test_the_doctor_says_what_is_missing_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    monkeypatch.setattr(hardware, "probe", lambda api: Probe(api, "llvmpipe", True))
    monkeypatch.setenv("RLX_NUM_THREADS", "many")
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    for expected in (
        "no package torch-mlir: graphs cannot be compiled, only artifacts run; pip install",
        "pip install 'rlx[onnx]'",
        "no C compiler cc",
        "cannot be written; set RLX_CACHE_DIR",
        "driver finds llvmpipe (this machine's processor)",
        "environment variable RLX_NUM_THREADS is 'many'",
    ):
        assert expected in said
    with knobs.cache.scoped(False):
        cli.main(["doctor"])
    assert "RLX_CACHE turns it off" in capsys.readouterr().out


def test_a_cpu_that_is_none_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CPU", "z80")
    assert cli.main(["doctor"]) == 1
    assert "unknown CPU 'z80'" in capsys.readouterr().out
