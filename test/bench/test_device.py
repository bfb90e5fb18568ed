"""The benchmarks on a device, on tiny cases, with RLX on whatever software device there is, and
NumPy for a peer. No time is judged."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import __main__ as program  # noqa: E402
from bench import report  # noqa: E402
from bench.case import Case  # noqa: E402
from bench.device import in_type, missing, some_rows  # noqa: E402
from bench.families import DEVICE_FAMILIES, bert, cases, gpu, gpu_blocks  # noqa: E402
from bench.measure import Bench, Failure, Options, Row, difference  # noqa: E402
from bench.runtimes import ON_DEVICES, RUNTIMES  # noqa: E402
from rlx.targets.gpu.drivers import DRIVERS  # noqa: E402
from support.sweeps import turn  # noqa: E402

CASE = "inputs 64x64x64 f16"


@pytest.fixture(scope="module")
def device() -> str:
    """A device that runs short kernels quickly."""
    for name in ("cuda", "rocm", "metal", "opencl", "vulkan", "gpu"):
        if not missing(name):
            return name
    pytest.skip("no device here")


def test_a_run_makes_a_report(device: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    arguments = ["gpu_gemm", "--device", device, "--only", CASE, "--peers", "numpy,torch"]
    assert (
        program.main([*arguments, "--rounds", "2", "--seconds", "1e-4", "--json", str(file)]) == 0
    )
    found = report.Results.read(file)
    rows = {row.runtime: row for row in found.rows}
    assert {"rlx", "numpy"} <= set(rows)
    for row in rows.values():
        assert (row.flops, row.moved, row.dtype) == (2 * 64**3, 3 * 64 * 64 * 2, "f16")
        assert row.error is not None and 0 < row.error < 1e-2, "the result is rounded to f16"
    if device not in ("cuda", "rocm"):
        assert "torch" not in rows, "it was not run somewhere else"
        assert all("has no device" in f.reason for f in found.failures)
    page = report.page(found)
    assert f"| {CASE} |" in page and device.lower() in found.machine["device"].lower()
    assert "| TFLOP/s | GB/s | numpy |" in page


def test_rates_are_parts_of_what_the_device_reached() -> None:
    def row(family: str, seconds: float, runtime: str = "rlx", **facts: float | str) -> Row:
        return Row(family, "c", 1, runtime, [seconds], seconds, **facts)  # type: ignore[arg-type]

    found = report.Results({"device": "D"}, {})
    found.rows = [
        row("gpu_limits", 1.0, "torch", moved=2e12), row("gpu_limits", 2.0, moved=2e12),
        row("gpu_limits", 1.0, "torch", flops=8e14, dtype="f16"),
        row("gpu_gemm", 1.0, flops=2e14, moved=5e11, dtype="f16"),
        row("gpu_bert", 1.0, flops=2e14, dtype="bf16"),
    ]  # fmt: skip
    product, model, limit = found.rows[3], found.rows[4], found.rows[1]
    head = ["TFLOP/s (of the product)", "GB/s (of the copy)"]
    assert report.Rates(found, "gpu_gemm").head == head
    assert report.Rates(found, "gpu_gemm").cells(product) == ["200 (25%)", "500 (25%)"]
    assert report.Rates(found, "gpu_bert").cells(model) == ["200"], "no limit in bf16 was found"
    assert report.Rates(found, "gpu_limits").cells(limit) == ["1e+03 (50%)"]
    assert report.Rates(found, "gpu_gemm").cells(None) == ["-", "-"]


def test_rates_are_parts_of_what_as_many_threads_reached() -> None:
    def row(family: str, threads: int, **facts: float) -> Row:
        return Row(family, "c", threads, "rlx", [1.0], 1.0, **facts)  # type: ignore[arg-type]

    found = report.Results({}, {})
    found.rows = [row("limits", 1, flops=2e11), row("limits", 2, flops=4e11),
                  row("limits", 2, moved=5e10), row("gemm", 1, flops=1e11, moved=1e10),
                  row("gemm", 2, flops=1e11, moved=1e10)]  # fmt: skip
    rates = report.Rates(found, "gemm")
    assert rates.head == ["GFLOP/s (of the peak)", "GB/s (of memory)"]
    assert rates.cells(found.rows[3]) == ["100 (50%)", "10"], "memory by one thread is not known"
    assert rates.cells(found.rows[4]) == ["100 (25%)", "10 (20%)"]


def test_wrong_numbers_are_not_timed(device: str) -> None:
    options = Options(runtimes=("rlx",), rounds=1, blocks=1, seconds=1e-4, device=device)
    case = cases("gpu_gemm")[CASE]
    wrong = replace(case, own={"reference": lambda case: np.zeros((len(some_rows(64)), 64))})
    with Bench(options, 1) as bench:
        (found,) = bench.run("gpu_gemm", wrong)
    assert isinstance(found, Failure) and "the numbers differ" in found.reason


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rlx_agrees_with_the_references(device: str, dtype: str) -> None:
    from bench.runtimes.rlx import prepare_on

    layer = Case(
        "layer", lambda f, x, **p: bert.layer(f, x, p, 2), {"x": gpu.Tensor((1, 5, 8))},
        bert.layer_params(8, 16),
    )  # fmt: skip
    found = [
        gpu.square(40, dtype), gpu.linear(3, 8, 16, "silu", dtype), in_type(layer, dtype),
        gpu.heads(1, 2, 70, 16, True, dtype), gpu.heads(2, 1, 33, 16, False, dtype),
    ]  # fmt: skip
    for case in turn(found, dtype == "bfloat16", 2):
        made = prepare_on(case, device)
        result = case.checked(made.fetch(made.call()).astype(np.float32))
        made.wait()
        assert difference(result, case.reference()) <= case.tolerance, case.name


def test_layers_of_packed_weights_and_pages_agree_with_the_references(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.runtimes.rlx import prepare_on

    monkeypatch.setattr(gpu_blocks, "LARGE", 1)
    for case in (
        gpu_blocks.product("q4_k", 2, 256, 288, "float32"),
        gpu_blocks.step(32, "float16"),
    ):
        assert case.name.startswith("2 of ") and len(case.params) in (2, 4)
        made = prepare_on(case, device)
        result = made.fetch(made.call())
        made.wait()
        assert difference(result, case.reference()) <= case.tolerance, case.name


@pytest.mark.parametrize("name", ["torch", "inductor", "cublas"])
def test_the_peers_of_a_gpu_agree_with_the_references(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    library = importlib.import_module(f"bench.runtimes.{name}")
    with pytest.raises(RuntimeError, match="has no device 'opencl'"):
        library.prepare_on(gpu.square(40, "float16"), "opencl")
    # A processor stands in for the GPU.
    waits: list[int] = []
    monkeypatch.setattr("bench.runtimes.torch.has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    for module in ("torch", "inductor"):
        monkeypatch.setattr(f"bench.runtimes.{module}.GPU", "cpu")
    found = [gpu.square(40, dtype) for dtype in gpu.TYPES]
    if name != "cublas":
        found += [gpu.linear(3, 8, 16, "gelu", "bfloat16"), gpu.heads(1, 2, 9, 8, True, "float16")]
    for case in found:
        made = library.prepare_on(case, "cuda")
        result = case.checked(made.fetch(made.call()))
        made.wait()
        assert result.dtype == np.float32
        assert difference(result, case.reference()) <= case.tolerance, case.name
    assert len(waits) == len(found)


def test_the_rows_that_are_checked_are_first_last_and_between() -> None:
    assert some_rows(3).tolist() == [0, 1, 2]
    assert set(some_rows(1000)) >= {0, 15, 500, 984, 999} and len(some_rows(1000)) == 48


@pytest.mark.parametrize("name", DEVICE_FAMILIES)
def test_a_family_has_cases_of_both_types_of_which_a_quick_run_takes_some(name: str) -> None:
    found = cases(name)
    assert {case.dtype for case in found.values()} >= {"f16", "bf16"}
    assert any(case.quick for case in found.values())
    for case in found.values():
        assert case.runs_on("rlx") and set(case.runtimes or ()) <= {*RUNTIMES, *ON_DEVICES}
        assert case.runs_on("cublas") == case.name.startswith("inputs")


def test_what_is_not_there_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": ""}
    absent = next((n for n in ("metal", "cuda", "rocm") if missing(n)), None)
    if absent is None:
        pytest.skip("all devices are here")
    for command in (["bench.device", absent], ["bench", "--device", absent]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode != 0 and not done.stdout
        (line,) = done.stderr.splitlines()
        assert f"no {absent} device here: " in line
    assert missing("cudda") == f"no device is called 'cudda'; there are {', '.join(DRIVERS)}"
    for arguments, message in (
        (["gpu_gemm"], "gpu_gemm needs a --device"),
        (["gemm", "--device", "opencl"], "timed on the CPU alone"),
        (["x", "--device", "opencl"], "gpu_limits, gpu_gemm"),
    ):
        with pytest.raises(SystemExit):
            program.main(arguments)
        assert message in capsys.readouterr().err
