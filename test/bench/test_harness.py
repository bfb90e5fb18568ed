"""The benchmarks' harness, on tiny cases with RLX and NumPy alone. No time is judged."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import __main__ as program  # noqa: E402
from bench import report  # noqa: E402
from bench.case import Case, Tensor  # noqa: E402
from bench.families import FAMILIES, blocks, busy, cases, find_case, limits  # noqa: E402
from bench.families import compile as cold  # noqa: E402
from bench.families.calls_process import Call, waiting  # noqa: E402
from bench.measure import Bench, Failure, Options, Row, difference, environment  # noqa: E402
from bench.runtimes import RUNTIMES  # noqa: E402

TINY = Options(runtimes=("rlx", "numpy"), rounds=2, blocks=2, seconds=1e-4)
CASE = "into arrays"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run, as a file."""
    file = tmp_path_factory.mktemp("bench") / "results.json"
    arguments = ["overhead", "--only", CASE, "--peers", "numpy", "--threads", "1"]
    more = ["--rounds", "2", "--seconds", "0.0001", "--json", str(file)]
    assert program.main([*arguments, *more]) == 0
    return file


def test_the_results_say_all_of_a_run(written: Path) -> None:
    found = json.loads(written.read_text())
    assert {"cpu", "features", "versions", "revision", "cpus"} <= set(found["machine"])
    assert [s["family"] for s in found["starts"]] == ["overhead"]
    assert all(s["load"] >= 0 and s["time"] for s in found["starts"])
    rows = {row["runtime"]: row for row in found["rows"]}
    assert set(rows) == {"rlx", "numpy"}
    for row in rows.values():
        assert (row["family"], row["case"], row["threads"]) == ("overhead", CASE, 1)
        assert len(row["values"]) == 2
        assert 0 < row["least"] <= min(row["values"])
        assert row["error"] < 1e-7
    assert not found["failures"]


def test_the_tables_are_made_of_the_results(written: Path) -> None:
    page = report.page(report.Results.read(written))
    assert f"| {CASE} | 1 |" in page
    assert "python -m bench overhead --only 'into arrays'" in page
    assert str(written) not in page, "the page names a place of this machine"


def row(runtime: str, *seconds: float, case: str = "c") -> Row:
    return Row("f", case, 1, runtime, list(seconds), min(seconds), flops=2e6)


def results(*rows: Row) -> report.Results:
    machine = {"cpu": "A", "cpus": 2, "revision": "r", "versions": {"numpy": "2"}}
    found = report.Results(machine, {"commands": [{"arguments": ["f"], "revision": "r"}]})
    for r in rows:
        found.add(r)
    return found


def test_a_ratio_is_the_best_peers_time_over_ours_and_losses_are_listed() -> None:
    found = results(
        row("rlx", 2e-3, 4e-3, 3e-3), row("torch", 5e-3, 6e-3), row("jax", 1e-3, 9e-3, 12e-3),
        row("rlx", 1e-3, case="won"), row("jax", 2e-3, case="won"),
    )  # fmt: skip
    assert "| c | 1 | 2 ms | 3 ms | 1 | 2.50 | **0.50** | **0.50** (1.83) jax |" in (
        report.section(found, "f")
    )
    assert "| f: c | 1 | 0.50 | 1.83 | jax |" in report.losses(found)
    assert "won" not in report.losses(found)
    assert "| f | 1 | 2 | 1 | 2.50 | 1.00 | 1.00 | c: 0.50 (jax) |" in report.summary(found)


def test_a_ragged_case_is_compared_with_its_padded_neighbour_by_work() -> None:
    ragged = {"padded": "8x8", "part": 0.75}
    found = results(
        *(replace(row(who, 3e-3, 6e-3, case="7x7"), **ragged) for who in ("rlx", "torch")),
        row("rlx", 4e-3, 5e-3, case="8x8"),
        replace(row("rlx", 1e-3, case="9x9"), padded="16x16", part=0.5),
    )
    lines = report.section(found, "f").splitlines()
    assert lines[-3:] == [
        "| ragged case | threads | beside | time of rlx |", "| --- | --- | --- | --- |",
        "| 7x7 | 1 | 8x8 | +0% (+33%) |",
    ]  # fmt: skip
    assert "ragged" not in report.section(results(row("rlx", 1e-3)), "f")


def test_whole_models_show_first_calls_and_rlx_twice_is_no_peer() -> None:
    rows = [row("rlx", 2e-3), row("rlx_onnx", 1e-3), row("torch", 3e-3)]
    found = results(*(replace(r, family="zoo", first=s) for s, r in enumerate(rows, 1)))
    assert "| c | 1 | 2 ms | 2 ms | 1 | **0.50** | 1.50 | 1.50 (1.50) torch |" in (
        report.section(found, "zoo")
    )
    assert report.section(found, "zoo").splitlines()[-1] == "| c | 1 | 1 s | 2 s | 3 s |"
    assert "first call" not in report.section(results(rows[0]), "f")


@pytest.mark.parametrize("name", ["gemm", "attention", "softmax", "norm", "activation"])
def test_the_ragged_cases_of_a_family_have_neighbours(name: str) -> None:
    found = cases(name)
    pairs = [(case, found[case.padded]) for case in found.values() if case.padded in found]
    assert pairs
    for case, beside in pairs:
        assert not beside.padded
        assert 0.8 < case.part < 1
        if case.flops:
            assert case.part == pytest.approx(case.flops / beside.flops)


def test_a_page_keeps_what_is_around_the_generated_part() -> None:
    text = "before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n"
    assert report.insert(text, "new") == "before\n<!-- bench -->\n\nnew\n\n<!-- /bench -->\nafter\n"
    with pytest.raises(SystemExit, match="no lines"):
        report.insert("before", "new")


def test_a_difference_is_relative_and_a_nan_or_another_shape_never_agrees() -> None:
    want = np.array([1.0, -4.0])
    assert difference(np.array([1.0, -3.0]), want) == 0.25
    assert not difference(np.array([1.0, np.nan]), want) <= 1
    assert difference(np.zeros(3), want) == float("inf")


def test_a_library_whose_numbers_differ_or_that_fails_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = find_case("overhead", CASE)
    monkeypatch.setattr(Case, "reference", lambda self: np.zeros(4))
    with Bench(replace(TINY, runtimes=("rlx", "numpy", "c")), 1) as bench:
        found = list(bench.run("overhead", replace(case, runtimes=("numpy", "c"))))
    assert all(isinstance(f, Failure) for f in found)
    reasons = {f.runtime: f.reason for f in found if isinstance(f, Failure)}
    assert "the numbers differ" in reasons["numpy"]
    assert "ModuleNotFoundError" in reasons["c"]


def test_a_process_that_dies_is_reported_and_started_again() -> None:
    case = find_case("overhead", CASE)
    with Bench(replace(TINY, runtimes=("numpy",)), 1) as bench:
        worker = bench.workers["numpy"]
        assert "error" in worker.ask(time=1, blocks=1, clock="none")  # refused, and still there
        assert worker.process is not None
        worker.process.kill()
        assert "the process died" in worker.ask(time=1, blocks=1, clock="wall")["error"]
        assert [type(f) for f in bench.run("overhead", case)] == [Row]


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("minilm",)])
def test_a_family_has_cases_of_which_a_quick_run_takes_some(name: str) -> None:
    found = cases(name)
    assert not found or any(case.quick for case in found.values())
    for case in found.values():
        assert case.runs_on("rlx")
        assert set(case.runtimes or ()) <= set(RUNTIMES)


def test_rlx_and_the_reference_agree_on_what_is_written_once() -> None:
    from bench.families import bert, llama
    from bench.runtimes.rlx import compiled

    def small(shape: tuple[int, ...]) -> Tensor:
        return Tensor(shape, "weight" if len(shape) == 2 else "normal")

    layer = Case(
        "layer", lambda f, x, **p: f.softmax(bert.layer(f, x, p, 2)), {"x": Tensor((1, 5, 8))},
        bert.layer_params(8, 16),
    )  # fmt: skip
    # The rotation of a llama's heads, by the op and by its definition.
    rope = Case(
        "rope", lambda f, x, cos, sin: f.rope(x, cos, sin, 3),
        {"x": small((2, 5, 3 * 8)), "cos": small((5, 4)), "sin": small((5, 4))},
    )  # fmt: skip
    pytest.importorskip("scipy")
    for case in (layer, rope):
        (found,) = compiled(case, 1).run(case.feeds())
        assert difference(found, case.reference()) < 1e-5
    assert llama.cases()


@pytest.mark.parametrize("scheme", blocks.SCHEMES)
def test_products_by_blocks_are_near_those_of_rows_that_are_not_rounded(scheme: str) -> None:
    case = blocks.case(scheme, 3, 64, 256)
    off = difference(case.own["rlx"](case, 1)(), case.reference())
    assert 1e-4 < off < blocks.TOLERANCE


def test_a_peer_may_have_a_python_of_its_own() -> None:
    args = program.arguments(["blocks", "--python", "ggml=/a=b", "--ours", "/c"])
    assert program.options_of(args).pythons == {"ggml": "/a=b", "rlx": "/c"}
    kept = program.repeatable(["blocks", "--python", "ggml=/a", "--ours=/c", "--quick"])
    assert kept == ["blocks", "--quick"]


def test_the_command_line_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in ((["gem"], "gemm, attention"), (["--peers", "x"], "rlx, torch")):
        with pytest.raises(SystemExit):
            program.main(arguments)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["softmax", "--only", "78x1001"], "no case of softmax has 78x1001 in it: 128x768, "),
        (["softmax", "--only", "128256", "--quick"], "--quick takes none of these cases"),
        (["report", "none.json"], "no such file: none.json"),
    ],
)
def test_what_there_is_nothing_to_do_for_is_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = program.main([*arguments])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert message in capsys.readouterr().err


def test_peers_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.measure.NEEDS", {"numpy": ("no_such_package",)})
    monkeypatch.setattr(program, "parts", lambda names, options: iter(()))
    assert program.main(["softmax", "--peers", "numpy"]) == 0
    assert "not installed, and left out: numpy" in capsys.readouterr().err


def test_graphs_are_saved_for_rlx_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["softmax", "norm", "--only", "77x1001", "--save", str(tmp_path)]
    assert program.main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(list(tmp_path.iterdir())) == 6
    assert all(line.startswith("rlx bench ") for line in printed)


def test_the_decoders_step_takes_little_more_than_what_pytorch_saves() -> None:
    """77.75 MB, by ``python -m bench.train_memory``; checkpoints save 30 % at least."""
    from bench.train_memory import arenas

    found = arenas()
    assert found["all"] < 1.1 * 77.75e6
    assert found["operands of blocks"] < found["products"] < 0.7 * found["all"]


def test_limits_of_the_machine_are_measured() -> None:
    flops, moved = limits.rows(Options(rounds=1))
    assert isinstance(flops, Row) and isinstance(moved, Row)
    assert 1e9 < flops.flops / flops.least < 1e13 and not flops.moved
    assert 1e8 < moved.moved / moved.least < 1e13 and not moved.flops


def test_a_later_run_replaces_a_family_by_as_many_threads() -> None:
    def run(time: str, *of: tuple[str, int, float]) -> report.Results:
        rows = [Row(f, "c", threads, "rlx", [s], s) for f, threads, s in of]
        starts = [{"family": f, "time": time, "load": 0.0} for f, _, _ in of]
        command = {"arguments": [time], "revision": f"of the {time}"}
        machine = {"cpu": "A", "cpus": 2, "versions": {}}
        return report.Results(machine, {"commands": [command]}, starts, rows)

    found = run("first", ("gemm", 1, 1.0), ("gemm", 2, 2.0), ("norm", 1, 3.0))
    found.replace(run("second", ("gemm", 2, 4.0), ("softmax", 1, 5.0)))
    times = {(r.family, r.threads): r.least for r in found.rows}
    assert times == {("gemm", 1): 1.0, ("gemm", 2): 4.0, ("norm", 1): 3.0, ("softmax", 1): 5.0}
    page = report.page(found)
    for time in ("first", "second"):
        assert f"python -m bench {time}  # RLX at revision of the {time}" in page
    assert {s["family"] for s in found.starts} == {"gemm", "norm", "softmax"}


def test_stalls_of_a_caller_that_was_put_aside_are_told_apart() -> None:
    def of(*calls: Call) -> dict[str, float]:
        return {row.case: row.least for row in busy.of_calls("c", 2, calls, alone=1.0)}

    found = of(Call(9.0, 8.0), Call(1.5, 0.04), Call(1.0, 0.0), Call(2.0, 0.06))
    assert found["c, longest of 4"] == found["c, longest / alone"] == 9
    assert found["c, caller put aside, of 4"] == 2
    assert found["c, longest of the others"] == found["c, longest of the others / alone"] == 1.5
    assert "c, longest of the others" not in of(Call(9.0, 8.0))
    unknown = of(Call(9.0, None), Call(1.0, None))
    assert list(unknown) == [
        "c, median of 2",
        "c, p99 of 2",
        "c, longest of 2",
        "c, longest / alone",
    ]


def test_the_time_a_thread_waits_for_a_cpu_is_counted() -> None:
    waited = waiting()
    if waited is None:
        pytest.skip("this system does not count it")
    before, contents = waited(), Path("/proc/thread-self/schedstat").read_text().split()
    assert before <= int(contents[1]) <= waited()


def test_a_cold_process_that_finds_something_in_the_cache_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[tuple[Any, ...]] = [
        cold.MISSED,
        ("hit (on disk)", 0),
        ("miss (there is no such entry)", 3),
    ]

    def measured(*_: Any, **__: Any) -> dict[str, Any]:
        return {"cold": {"wall": 600.0}, "lengths": [], "cache": [*said[0]]}

    monkeypatch.setattr(cold, "measure", measured)
    monkeypatch.setattr(cold, "model_dir", lambda: "model")
    options = Options(rounds=2, quick=True)
    for failures in (0, 1, 1):
        found = list(cold.rows(options))
        assert [f.median for f in found if isinstance(f, Row)] == [0.6]
        assert sum(isinstance(f, Failure) for f in found) == failures
        del said[:1]


def test_processes_that_are_measured_keep_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "there")
    found = environment(RLX_CACHE="off")
    assert "PYTHONDONTWRITEBYTECODE" not in found and found["RLX_CACHE"] == "off"
    assert found["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "there"]
