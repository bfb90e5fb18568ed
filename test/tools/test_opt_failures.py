"""What rlx-opt does when a pass of RLX fails, is interrupted, or takes the process down."""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rlx._mlir import ir
from rlx.errors import UnsupportedError
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.registry import PASSES
from rlx.tools import opt
from rlx.tools.opt import inputs

ROOT = Path(__file__).resolve().parents[2]

INPUT = """
func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


class _Pass(Pass):
    name = "hoist"


class Raises(_Pass):
    """Has a defect."""

    def run(self, module: Any, compilation: Any):
        functions(module)["main"].attributes["rlx.touched"] = ir.UnitAttr.get()
        raise KeyError("nothing here")


class Refuses(_Pass):
    """Refuses what it is given."""

    def run(self, module: Any, compilation: Any):
        raise UnsupportedError("not this one")


class Spoils(_Pass):
    """Leaves a module that is not valid."""

    def run(self, module: Any, compilation: Any):
        block = functions(module)["main"].regions[0].blocks[0]
        list(block.operations)[-1].operation.erase()
        return module


class Interrupted(_Pass):
    """Is stopped by the user."""

    def run(self, module: Any, compilation: Any):
        raise KeyboardInterrupt


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """A function from a pass in the place of hoist, and flags, to (exit code, stdout, stderr)."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "input.mlir"

    def call(cls: Any, *flags: Any, text: str = INPUT):
        path.write_text(text)
        monkeypatch.setitem(PASSES, "hoist", f"{__name__}:{cls.__name__}")
        code = opt.main([str(path), *flags])
        out, err = capsys.readouterr()
        return code, out, err.replace(str(path), "input.mlir")

    return call


def reproducers(folder: Path):
    """The reproducers in a folder that nobody named."""
    return list(folder.glob("rlx-opt-*.mlir"))


def test_a_defect_is_70_and_its_reproducer_repeats_it(run: Any, tmp_path: Path):
    code, out, err = run(Raises, "--simplify", "--hoist", "--fuse")
    (file,) = reproducers(tmp_path)
    assert (code, out) == (70, "")
    assert err.splitlines() == [
        "rlx-opt: internal error in pass hoist: KeyError: 'nothing here'",
        "rlx-opt: this repeats the failure:",
        f"    rlx-opt {shlex.quote(str(file))} --run-reproducer",
        "rlx-opt: --debug shows where; please report it with the input",
    ]
    text = file.read_text()
    assert 'pipeline: "builtin.module(hoist)"' in text
    assert "rlx.touched" not in text, "the IR is not that from before the pass"
    assert opt.main([str(file), "--run-reproducer"]) == 70


def test_a_defect_is_70_whatever_came_before(run: Any):
    text = f"nonsense\n// -----\n{INPUT}"
    code, out, err = run(Raises, "--split-input-file", "--hoist", text=text)
    assert (code, out) == (70, "")
    assert "input.mlir:1:1: error: " in err


def test_a_refusal_leaves_no_file_that_was_not_asked_for(run: Any, tmp_path: Path):
    code, _, err = run(Refuses, "--hoist")
    assert code == 1 and "not this one" in err
    assert not reproducers(tmp_path)
    named = tmp_path / "named.mlir"
    code, _, err = run(Refuses, "--hoist", f"--mlir-pass-pipeline-crash-reproducer={named}")
    assert code == 1 and f"rlx-opt {shlex.quote(str(named))} --run-reproducer" in err
    assert "builtin.module(hoist)" in named.read_text()


def test_each_pass_is_verified_unless_that_is_turned_off(run: Any):
    code, out, err = run(Spoils, "--hoist")
    assert (code, out) == (1, "")
    assert "error: " in err and "terminat" in err and "pass hoist" in err
    assert "this repeats the failure" in err
    code, out, err = run(Spoils, "--hoist", "--verify-each=false")
    assert code == 0 and "func.func" in out


def test_an_interruption_is_130(run: Any, tmp_path: Path):
    code, out, err = run(Interrupted, "--hoist")
    assert (code, out, err) == (130, "", "rlx-opt: interrupted\n")
    assert not reproducers(tmp_path)


WAITS = """
import sys
from rlx.tools.opt import driver, main

def read(path):
    print("ready", file=sys.stderr)
    return sys.stdin.read()

driver.read_input = read
sys.exit(main([]))
"""


def test_control_c_while_it_waits_for_input_is_130():
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", WAITS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (130, b"", b"rlx-opt: interrupted\n")


def test_a_pass_that_takes_the_process_down_leaves_its_reproducer(tmp_path: Path):
    code = textwrap.dedent("""
        import os, sys
        from rlx.lowering.passes import hoist
        from rlx.tools.opt import main
        hoist.Hoist.run = lambda self, module, compilation: os.abort()
        crash = f"--mlir-pass-pipeline-crash-reproducer={sys.argv[2]}"
        main([sys.argv[1], "--simplify", "--hoist", crash])
    """)
    (tmp_path / "input.mlir").write_text(INPUT)
    file = tmp_path / "crash.mlir"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "input.mlir", file], cwd=ROOT, check=False
    )
    assert done.returncode == -signal.SIGABRT
    assert 'pipeline: "builtin.module(hoist)"' in file.read_text()
    assert opt.main([str(file), "--run-reproducer", "-o", os.devnull]) == 0


def test_damaged_bytecode_is_refused_and_does_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, good = tmp_path / "in.mlir", tmp_path / "good.mlirbc"
    path.write_text(INPUT)
    assert opt.main([str(path), "--emit-bytecode", "-o", str(good)]) == 0
    data = good.read_bytes()
    for at in range(10, len(data), len(data) // 8):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        assert opt.main([str(path), "-o", os.devnull]) in (0, 1)
        assert "Traceback" not in capsys.readouterr().err


def test_bytecode_that_keeps_the_reader_busy_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inputs, "BYTECODE_SECONDS", 0.001)
    path = tmp_path / "in.mlir"
    path.write_bytes(inputs.BYTECODE + b"\x01")
    assert opt.main([str(path)]) == 1
    assert "error: the bytecode is damaged: not read in 0.001 s" in capsys.readouterr().err


DEEP = {
    "brackets": "module attributes {rlx.a = " + "[" * 300 + "]" * 300 + "} {}",
    "aliases": "#a0 = 1\n" + "".join(f"#a{i} = [#a{i - 1}]\n" for i in range(1, 300)),
    "type aliases": "!a0 = i1\n" + "".join(f"!a{i} = tuple<!a{i - 1}>\n" for i in range(1, 300)),
    "signs": "module attributes {rlx.a = affine_map<(d0) -> (" + "- " * 300 + "d0)>} {}",
}


@pytest.mark.parametrize("kind", DEEP)
def test_text_that_would_overflow_the_stack_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "in.mlir"
    path.write_text(DEEP[kind])
    assert opt.main([str(path)]) == 1
    assert "error: the text nests deeper than 256 here" in capsys.readouterr().err


def test_rulers_and_long_chains_are_no_nesting(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "in.mlir"
    ruler, items, chain = "-" * 500, "[], " * 500, " - 1" * 500
    path.write_text(
        f'//{ruler}\nmodule attributes {{rlx.a = "{ruler}", rlx.b = [{items} []], '
        f"rlx.c = affine_map<(d0) -> (d0{chain})>}} {{}}"
    )
    assert opt.main([str(path)]) == 0, capsys.readouterr().err
