"""The samples of all ops on every GPU target that this machine can run, against the interpreter,
and against what ``docs/gpu_support.json`` says of them.

A target runs in a process of its own, two at a time. ``RLX_TEST_DEVICES`` names those that must be
there, as ``make drivers`` and ``make test-gpu`` do, and ``RLX_TEST_JUDGES`` those whose code must
be judged; others that are not there are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import UnsupportedError
from rlx.ir.op import op_class
from rlx.runtime import backend
from rlx.targets import find_target
from rlx.targets.gpu import emit
from rlx.types import f32
from support import conformance, support_record, web
from support.browser import Page
from support.conformance import (
    EXPECTED,
    JUDGED,
    SETS,
    STANDS,
    Finding,
    columns,
    gpu_targets,
    lacking,
    need,
    need_one_run,
    runnable,
    sampled,
    words_of,
)
from support.judges import JUDGES, Judge
from support.languages import LANGUAGES
from support.op_graphs import OpGraph
from support.samples import cases, kind_of, op_classes

CASES = os.environ.get("RLX_TEST_CASES", "turning")

SECONDS = 1500

QUICK = {"turning": {"POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable", "GALLIVM_PERF": "nopt"}}
"""Variables of the processes that run a set: PoCL takes twice the time with its optimiser and Mesa
a fifth more, which the larger sets and the other tests on devices leave on."""

RECORD = support_record.read()

PRINTED = {
    "opencl": "opencl", "gpu": "wgsl", "metal": "metal", "opengl": "glsl", "directx": "hlsl",
}  # fmt: skip
"""The languages of targets that take source."""


def _run(target: str, folder: Path) -> list[Finding]:
    out = folder / f"{target}.json"
    command = [
        sys.executable, "-m", "support.conformance", target, "--cases", CASES, "--out", out,
        "--beside", *runnable(),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS,
        cwd=Path(__file__).parent.parent, env={**os.environ, **QUICK.get(CASES, {})},
    )  # fmt: skip
    assert out.exists(), f"{target}: {(done.stdout + done.stderr)[-4000:]}"
    return [Finding(**f) for f in json.loads(out.read_text(encoding="utf-8"))["findings"]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[list[Finding]]]]:
    """The findings of every target that can run here."""
    folder = tmp_path_factory.mktemp("conformance")
    with ThreadPoolExecutor(2) as pool:
        chosen = [t for t in gpu_targets() if t in runnable() or t in JUDGES]
        yield {t: pool.submit(_run, t, folder) for t in chosen}


def test_the_devices_that_must_be_there_are_targets() -> None:
    assert not set(EXPECTED) - set(columns())


@pytest.mark.parametrize("target", gpu_targets())
def test_every_op_agrees_with_the_interpreter(
    target: str, runs: dict[str, Future[list[Finding]]]
) -> None:
    need(target)
    found = runs[target].result()
    wrong = [str(f) for f in found if not f.good]
    assert not wrong, "\n".join(wrong)
    need_one_run(target, found)
    assert {f.case for f in found} == {Finding.of(c, "").case for c in SETS[CASES](target)}
    # What the record says holds for the cases that it was made from.
    recorded = {Finding.of(c, "").case for c in SETS["covering"](target) if not lacking(target, c)}
    other = [
        f"{f}, and the record says {said}"
        for f in found
        if f.case in recorded
        and f.verdict != "assembled"
        and (said := RECORD.way(target, f.op, f.dtype)).refused != (f.verdict == "refused")
        and not said.partly
    ]
    assert not other, "run `make conformance`: " + "\n".join(other)


@pytest.mark.parametrize("target", JUDGES)
def test_outside_judges_take_the_code_of_what_runs_nowhere(
    target: str, runs: dict[str, Future[list[Finding]]]
) -> None:
    if target in runnable():
        pytest.skip(f"{target}: its code runs here")
    if missing := JUDGES[target].missing():
        assert target not in JUDGED, f"RLX_TEST_JUDGES names {target}, but {missing}"
        pytest.skip(f"{target}: {missing} (or run `make drivers`)")
    found = runs[target].result()
    wrong = [str(f) for f in found if not f.good]
    assert not wrong, "\n".join(wrong)
    assert any(f.verdict == "assembled" for f in found)


def test_a_device_that_takes_no_case_is_left_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Finding(f"mir.{n}", "f32", 0, "refused", "no storage buffers") for n in "ab"]
    monkeypatch.setattr(conformance, "EXPECTED", [])
    with pytest.raises(
        pytest.skip.Exception, match=r"no case ran on gpu; of 2 .* refused: no storage buffers"
    ):
        conformance.need_one_run("gpu", found)
    monkeypatch.setattr(conformance, "EXPECTED", ["gpu"])
    with pytest.raises(AssertionError, match="no case ran on gpu"):
        conformance.need_one_run("gpu", found)
    conformance.need_one_run("gpu", [*found, Finding("mir.c", "f32", 0, "agrees")])


@pytest.mark.parametrize("says", ["ended with status 3", "it has no WebGPU"])
def test_a_browser_that_is_there_in_part_says_what_it_lacks(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "chromium"
    lines = [f"#!{sys.executable}", "import json, sys, time, urllib.request"]
    if "status" in says:
        lines.append("sys.exit(3)")
    answer = json.dumps(says)
    lines.append(f"urllib.request.urlopen(sys.argv[-1] + 'json', {answer!r}.encode())")
    browser.write_text("\n".join([*lines, "time.sleep(60)"]), encoding="utf-8")
    browser.chmod(0o755)
    made = Page(str(browser))
    monkeypatch.setattr(web, "find", lambda: str(browser))
    monkeypatch.setattr(web, "page", lambda: made)
    try:
        assert says in web.why_not.__wrapped__()
    finally:
        made.close()


def test_a_judge_s_word_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(target: Any, kernels: Any, folder: Path) -> None:
        raise AssertionError("line 7: no")

    monkeypatch.setitem(JUDGES, "cuda", Judge(says, ("cuda:sm_80",), lambda: ""))
    case = next(cases(f32))
    (found,) = conformance.conforms("cuda", [case])
    assert (found.verdict, found.text) == ("fails", "sm_80: line 7: no") and not found.good


@pytest.mark.parametrize("target", STANDS)
def test_the_ops_that_stand_for_others_need_every_family_and_storage(target: str) -> None:
    chosen = [c for c in SETS["turning"](target) if c.op.name in STANDS[target]]
    t = find_target(target)
    ways, stored = set[str](), set[str]()
    for case in chosen:
        try:
            program, report = compile_program(OpGraph.of_cases("case", [case]).graph, t)
        except UnsupportedError:
            continue
        dispatch = report.compilation.dispatch
        ways |= {name.partition(":")[0] for name in dispatch.native}
        ways |= {"common" for _ in dispatch.common}
        stored |= {b.dtype for k in program.kernels for b in k.bindings}
    assert {*t.families, "common"} - ways == set()
    assert {"f32", "f16", "i32", "i8", "bool", "u8"} <= stored


def test_devices_that_take_turns_have_every_op_kind_of_type_and_word() -> None:
    if not runnable():
        pytest.skip("no device: run `make drivers`")
    taken = [c for t in runnable() for c in SETS["turning"](t) if not lacking(t, c)]
    every = list(cases())
    for facts in (
        lambda c: [(c.op.name, c.number if sampled(c.op) else None)],
        lambda c: [(c.op.name, kind_of(c))],
        lambda c: [(c.op.__module__, str(c.dtype))],
        lambda c: [(c.op.name, word) for word in words_of(c)],
    ):
        missing = {f for c in every for f in facts(c)} - {f for c in taken for f in facts(c)}
        assert not missing, missing


def test_the_record_has_every_op_and_type_of_every_target() -> None:
    kinds = {(c.op.name, "" if c.dtype is None else c.dtype.name) for c in cases()}
    for target in columns():
        missing = sorted(kinds - set(RECORD.kinds(target)))
        gone = sorted(set(RECORD.kinds(target)) - kinds)
        assert not missing and not gone, (
            f"docs/gpu_support.json and {target}: without {missing[:5]}, and with {gone[:5]} that"
            " is no more; run `make conformance`"
        )


@pytest.mark.parametrize("target", gpu_targets())
def test_the_record_says_which_way_ops_go(target: str) -> None:
    """A part of the ops on each target, by the passes alone, which need no device."""
    names = [op.name for op in op_classes()]
    for name in names[gpu_targets().index(target) :: 2 * len(gpu_targets())]:
        known = [(k, w) for k, w in RECORD.of(target, name).items() if not w.refused]
        for dtype, said in known[:1]:
            assert support_record.way_of(target, op_class(name), dtype) == said.way, name


def test_a_wrong_device_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail, case by case: here of one that adds 1 to what it computes."""
    from rlx.runtime.backend import InterpreterBackend, _registry
    from rlx.runtime.interpreted import Interpreted
    from support import conformance

    class Wrong(InterpreterBackend):
        name = "opencl"

        def load(self, graph: Any, options: Any, shared: Any) -> Any:
            class Run(Interpreted):
                def run_slots(self, *inputs: Any) -> Any:
                    first, *rest = super().run_slots(*inputs)
                    return (first + first.dtype.type(1), *rest)

            return Run(graph, shared)

    monkeypatch.setattr("rlx.runtime.backend._registry", dict(_registry))
    del backend._registry["opencl"]
    rlx.register_backend("opencl", Wrong)
    monkeypatch.setattr(
        conformance, "facts", lambda target: conformance.Facts(target, "software", "wrong")
    )
    chosen = [c for c in cases() if c.op.name == "mir.add" and str(c.dtype) == "f32"]
    found = list(conformance.conforms("opencl", chosen))
    assert [f.verdict for f in found] == ["wrong", *["agrees"] * (len(chosen) - 1)]
    assert "Mismatched elements" in found[0].text and not found[0].good


@pytest.mark.parametrize("target", PRINTED)
def test_a_wrong_row_of_a_language_would_be_found(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(target)
    language = LANGUAGES[PRINTED[target]]
    wrong = replace(language, rows={**language.rows, "arith.subf": "{b} - {a}"})
    to_source = emit.to_source
    monkeypatch.setattr(emit, "to_source", lambda kernels, _: to_source(kernels, wrong))
    chosen = [c for c in cases() if c.op.name == "mir.sub" and str(c.dtype) == "f32"]
    with rlx.knobs.cache.scoped(False):
        assert any(f.verdict == "wrong" for f in conformance.conforms(target, chosen))
