"""rlx-opt in process: exit codes, messages, and what goes to which stream."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlx.lowering.pass_base import Pass
from rlx.lowering.pipeline import PIPELINE
from rlx.lowering.registry import PASSES
from rlx.tools import opt, stages
from rlx.tools.opt.flags import parser

HELLO = """
func.func @main(%x: tensor<1x4xf32> {rlx.input = "x"}, %w: tensor<4x2xf32> {rlx.param = "w"})
    -> tensor<1x2xf32> {
  %0 = "mir.matmul"(%x, %w) : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}
"""


@pytest.fixture
def rlx_opt(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """A function from text and flags to (exit code, stdout, stderr)."""
    monkeypatch.setenv("RLX_CPU", "x86-64-v3")

    def run(text: str, *flags: Any):
        path = tmp_path / "input.mlir"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        code = opt.main([str(path), *flags])
        out, err = capsys.readouterr()
        return code, out, err.replace(str(path), "input.mlir")

    return run


def test_passes_are_called_as_the_table_says():
    assert [p.name for p in PIPELINE] == list(PASSES)
    assert set(stages.NEED_ENTRY) <= set(PASSES)


def test_help_and_version_import_no_mlir():
    code = (
        "import sys; from rlx.tools import opt\n"
        "try: opt.main([sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "sys.exit(any(m in sys.modules for m in ('rlx._mlir', 'torch_mlir', 'numpy')))"
    )
    for flag in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", code, flag], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()


def test_success_prints_ir_and_nothing_else(rlx_opt: Any):
    code, out, err = rlx_opt(HELLO, "--emit=lir")
    assert (code, err) == (0, "")
    assert out.startswith("module attributes") and out.endswith("}\n")


def test_reports_go_to_stderr(rlx_opt: Any):
    _, plain, _ = rlx_opt(HELLO, "--emit=lir")
    code, out, err = rlx_opt(HELLO, "--emit=lir", "--report", "--mlir-timing")
    assert (code, out) == (0, plain)
    assert "native    contraction: matmul x 1" in err
    assert "%)  hoist" in err


def test_malformed_text_names_the_place_and_the_remedy(rlx_opt: Any):
    code, out, err = rlx_opt(HELLO.replace("mir.matmul", "mir.matmull"))
    assert (code, out) == (1, "")
    first, line, caret, remedy = err.splitlines()[:4]
    assert first.startswith("input.mlir:4:8: error: ")
    assert "mir.matmull" in line
    assert caret.index("^") == line.index('"mir.matmull"')
    assert remedy.strip() == "help: no op is called mir.matmull; did you mean 'mir.matmul'?"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("tensor<2x4xfloat32>", "'float32'; write f32"),
        ("tensor<?xuint8>", "'uint8'; write ui8"),
        ("tensor<int>", "'int'; there are f16, bf16, f32, f64, i1,"),
    ],
)
def test_an_element_type_of_another_name(rlx_opt: Any, text: str, remedy: str) -> None:
    _, _, err = rlx_opt(f"func.func @main(%x: {text}) {{ return }}")
    assert f"help: no element type is called {remedy}" in err


def test_a_refused_op_says_what_was_found_and_expected(rlx_opt: Any):
    code, out, err = rlx_opt(HELLO.replace("%w) : (tensor<1x4xf32>", "%x) : (tensor<1x4xf32>"))
    assert (code, out) == (1, "")
    assert "input.mlir:4:" in err and "tensor<1x4xf32>" in err and "tensor<4x2xf32>" in err
    code, _, err = rlx_opt(HELLO.replace("-> tensor<1x2xf32>\n  ret", "-> tensor<2x2xf32>\n  ret"))
    assert code == 1 and "input.mlir:4:" in err


def test_every_cut_of_a_module_is_refused_or_read(rlx_opt: Any):
    for length in range(0, len(HELLO) - 2, 7):
        code, _, err = rlx_opt(HELLO[:length])
        assert code in (0, 1) and "Traceback" not in err
        assert (code == 0) == (not HELLO[:length].strip()), HELLO[:length]
        assert code == 0 or "error: " in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00", "byte 0x00 at offset 0 is not text"),
        (b"module {}\n\xc3(", "input.mlir:2: byte 0xc3 at offset 10 is not text"),
        (b"ML\xefQ\x01", "byte 0xef at offset 2 is not text"),
        (b"module attributes {a = " + b"[" * 100_000, "the text nests deeper than 256"),
        (b"// " + b"(" * 1000 + b'\nmodule attributes {a = "((((', "error: expected"),
    ],
)
def test_garbage_is_refused(rlx_opt: Any, data: Any, message: str):
    code, out, err = rlx_opt(data)
    assert (code, out) == (1, "")
    assert message in err


def test_brackets_in_strings_and_comments_are_no_nesting(rlx_opt: Any):
    text = "// " + "(" * 1000 + '\nmodule attributes {rlx.a = "' + "[" * 1000 + '"} {}'
    assert rlx_opt(text)[0] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--target=cpuu"], "no target is called 'cpuu'; did you mean 'cpu'?"),
        (["--target=cpu:x86-64-v5"], "unknown CPU 'x86-64-v5'; did you mean 'x86-64-v"),
        (
            ["--emit=ptx"],
            "target cpu has no stage 'ptx'; it has hir, mir, fused, lir, llvm, asm, object",
        ),
        (["--pass-pipeline=fuze"], "no pass is called 'fuze'; did you mean 'fuse'?"),
        (["--pass-pipeline=builtin.module(cse,inlin)"], "no pass is called 'inlin'; did you mean"),
        (["--fuze"], "no pass is called 'fuze'; did you mean 'fuse'?"),
        (["--fuse=max-ops=3"], "pass fuse has no option 'max-ops'; there are disable-rules"),
        (["--hoist=a=3"], "pass hoist has no option 'a'; it has none"),
        (["--simplify=disable-rules"], "option disable-rules needs a value"),
        (["--simplify=disable-rules=add-zer"], "no rule 'add-zer'; did you mean 'add-zero'?"),
        (["--disable-rule=add-zer"], "no rule is called 'add-zer'; did you mean 'add-zero'?"),
        (["--canonicalize=fast=true"], "pass canonicalize{fast=true}: "),
        (["--pass-pipeline=func.func(fuse)"], "fuse runs on the builtin.module, and not in func"),
        (["--pass-pipeline=cse", "--fuse"], "give --pass-pipeline or --fuse, not both"),
        (["--pass-pipeline=cse,"], "pass pipeline, column 5: expected the name of a pass"),
        (["--run-reproducer", "--fuse"], "--run-reproducer runs the passes that the input names"),
        (["--split-input-file="], "--split-input-file= needs a marker"),
        (["--emit-bytecode", "--emit=llvm"], "--emit-bytecode writes IR, and --emit=llvm is none"),
        (["--emit-bytecode", "--split-input-file"], "take one input a call"),
        (["--emit=object", "--split-input-file"], "take one input a call"),
        (["--verify-each=maybe"], "invalid choice: 'maybe'"),
        (["--mlir-timing=maybe"], "--mlir-timing=maybe: expected true or false"),
        (["--mlir-elide-elementsattrs-if-larger=x"], "invalid int value: 'x'"),
        (["--explain=fuze"], "is called 'fuze'; did you mean 'fuse'?"),
    ],
)
def test_wrong_usage_is_2(rlx_opt: Any, flags: Any, message: str):
    code, out, err = rlx_opt(HELLO, *flags)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


REPRODUCER = """
{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(cse)"
    },
    rlx_reproducer: {
      dispatch: "fast"
    }
  }
#-}
"""


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (HELLO, ["--run-reproducer"], "the input holds no reproducer: a resource mlir_reproducer"),
        (
            HELLO + REPRODUCER,
            ["--run-reproducer"],
            "the reproducer's dispatch is 'fast', expected native or common",
        ),
        (
            HELLO,
            ["--no-implicit-module", "--fuse"],
            "fuse takes a builtin.module, found func.func",
        ),
        (
            HELLO,
            ["--no-implicit-module", "--emit=lir"],
            "--emit=lir takes a builtin.module, found func.func",
        ),
        (
            b"ML\xefR\x01",
            ["--no-implicit-module"],
            "--no-implicit-module takes text, found bytecode",
        ),
    ],
)
def test_flags_that_the_input_does_not_fit(rlx_opt: Any, text: str, flags: Any, message: str):
    code, out, err = rlx_opt(text, *flags)
    assert (code, out) == (1, "")
    assert message in err and "Traceback" not in err


def test_a_missing_file_is_1(capsys: pytest.CaptureFixture[str]):
    assert opt.main(["no-such-file.mlir"]) == 1
    assert capsys.readouterr() == ("", "rlx-opt: no-such-file.mlir: No such file or directory\n")


class Broken(Pass):
    """Fails in a way that no pass should."""

    name = "fuse"

    def run(self, module: Any, compilation: Any):
        raise KeyError("nothing here")


def test_an_internal_error_is_70_and_names_the_pass(rlx_opt: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PASSES, "fuse", f"{__name__}:Broken")
    code, out, err = rlx_opt(HELLO, "--simplify", "--fuse")
    assert (code, out) == (70, "")
    assert err.startswith("rlx-opt: internal error in pass fuse: KeyError: 'nothing here'\n")
    assert "Traceback" not in err
    with pytest.raises(KeyError):
        rlx_opt(HELLO, "--fuse", "--debug")


def test_a_long_line_is_shown_around_the_place(rlx_opt: Any):
    code, _, err = rlx_opt('module attributes {rlx.a = "' + "x" * 5000 + '", rlx.b = ?} {}')
    first, line, caret = err.splitlines()[:3]
    assert code == 1 and ":1:" in first
    assert len(line) < 120
    assert "?" in line[caret.index("^") :]


def test_parts_that_are_fine_are_printed(rlx_opt: Any):
    code, out, err = rlx_opt(
        f"{HELLO}\n// -----\nnonsense\n// -----\n{HELLO}", "--split-input-file"
    )
    assert code == 1
    assert out.count("@main") == 2
    assert "input.mlir:9:1: error" in err


def test_verify_diagnostics_fails_on_either_side(rlx_opt: Any):
    good = "// expected-error@+1 {{custom op 'nonsense' is unknown}}\nnonsense"
    assert rlx_opt(good, "--verify-diagnostics") == (0, "", "")
    code, out, err = rlx_opt("nonsense", "--verify-diagnostics")
    assert (code, out) == (1, "") and "input.mlir:1: unexpected error" in err
    code, out, err = rlx_opt("// expected-error {{none}}\n" + HELLO, "--verify-diagnostics")
    assert code == 1 and "input.mlir:1: expected error 'none' was not seen" in err


def test_an_expectation_that_is_no_regular_expression_is_refused(rlx_opt: Any):
    code, out, err = rlx_opt("// expected-error-re {{a {{(}} b}}\n" + HELLO, "--verify-diagnostics")
    assert (code, out) == (1, "")
    assert err.startswith("rlx-opt: input.mlir:1: the expectation 'a {{(}} b' is no regular")


def test_verify_diagnostics_matches_what_a_pass_says(rlx_opt: Any):
    text = "// expected-error@unknown {{could not find a nested named sequence}}\n" + HELLO
    assert rlx_opt(text, "--transform-interpreter", "--verify-diagnostics") == (0, "", "")


def test_lir_with_a_config_of_another_family_is_refused(rlx_opt: Any):
    _, lir, _ = rlx_opt(HELLO, "--emit=lir")
    code, out, err = rlx_opt(
        lir.replace('lir.family = "pack"', 'lir.family = "rowwise"'), "--emit=asm"
    )
    assert (code, out) == (1, "")
    assert "a kernel config is of the class 'PackConfig', expected one of RowwiseConfig" in err
    code, _, err = rlx_opt(lir.replace('lir.family = "pack"', 'lir.family = "pak"'), "--emit=asm")
    assert code == 1 and "no kernel family is called 'pak'" in err


def test_lir_with_a_config_that_no_kernel_has_is_refused(rlx_opt: Any):
    _, lir, _ = rlx_opt(HELLO, "--emit=lir")
    wrong = re.sub(r'dtype = f32(, group = 1 : i64, is = "PackConfig")', r"dtype = 3\1", lir)
    code, out, err = rlx_opt(wrong, "--emit=asm")
    assert (code, out) == (1, "")
    assert "family pack cannot emit @pack_0 from the config in the text" in err


def test_the_page_lists_every_flag():
    page = (Path(__file__).resolve().parents[2] / "docs" / "rlx-opt.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `-")]
    listed = {flag for cell in cells for flag in re.findall(r"`(-[-\w]+)", cell)}
    assert listed == {flag for a in parser()._actions for flag in a.option_strings}
