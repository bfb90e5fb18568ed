"""Pipelines as text: how they are read and written, and that a dumped one repeats its run."""

from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.errors import PassError
from rlx.lowering.pass_base import RulePass
from rlx.lowering.pass_options import make_pass, option_text, without_rules
from rlx.lowering.pipeline import PIPELINE, named
from rlx.tools import opt
from rlx.tools.opt.flags import UsageError
from rlx.tools.opt.pipeline_text import Step, parse_pipeline, pipeline_text


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("builtin.module()", []),
        ("fuse", [Step("fuse")]),
        (" builtin.module( hoist , cse ) ", [Step("hoist"), Step("cse")]),
        ("any(hoist)", [Step("hoist")]),
        ("canonicalize{ a=2   b={x,y} },cse", [Step("canonicalize", "a=2 b={x,y}"), Step("cse")]),
        ("f(a,b),c", [Step("a", "", ("f",)), Step("b", "", ("f",)), Step("c")]),
        ("builtin.module(gpu.module(func.func(a)))", [Step("a", "", ("gpu.module", "func.func"))]),
        ("builtin.module(a),b", [Step("a", "", ("builtin.module",)), Step("b")]),
    ],
)  # fmt: skip
def test_pipelines_are_read_and_written(text: str, steps: Any):
    assert parse_pipeline(text) == steps
    assert parse_pipeline(pipeline_text(steps)) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "column 3: expected the name of a pass, found its end"),
        (",a", "column 1: expected the name of a pass, found ',a'"),
        ("a b", "column 3: expected ',', found 'b'"),
        ("m(a", "column 4: expected ',' or ')', found its end"),
        ("a)", "column 2: expected ',', found ')'"),
        ("m(a))", "column 5: expected ',', found ')'"),
        ("m(a,)", "column 5: expected the name of a pass, found ')'"),
        ("a{b=1", "column 6: expected '}', found its end"),
        ("m(" * 100_000, "expected the name of a pass, found its end"),
    ],
)
def test_what_is_no_pipeline_is_refused_at_its_column(text: str, message: str):
    with pytest.raises(UsageError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


def test_the_root_is_left_out():
    assert parse_pipeline("func.func(cse)", "func.func") == [Step("cse")]
    assert pipeline_text([Step("cse")], "func.func") == "func.func(cse)"


def test_options_are_read_and_written():
    p = named("simplify", "disable-rules=fold,mul-one")
    assert isinstance(p, RulePass)
    assert p.disable_rules == ("fold", "mul-one")
    assert not p.applies("fold") and p.applies("add-zero")
    assert option_text(p) == "disable-rules=fold,mul-one"
    assert without_rules(p, ["fold", "sub-zero", "elementwise"]) == named(
        "simplify", "disable-rules=fold,mul-one,sub-zero"
    )
    assert not any(option_text(p) for p in PIPELINE)


def test_rules_that_there_are_not_are_refused():
    with pytest.raises(PassError, match="no rule 'foldd'; did you mean 'fold'"):
        make_pass(type(named("simplify")), "disable-rules=foldd")


def test_no_two_rules_share_a_name():
    rules = [r for p in PIPELINE if isinstance(p, RulePass) for r in p.rules]
    assert len(rules) == len(set(rules))


# -- what is dumped repeats the run -----------------------------------------------------------


def block() -> str:
    """The HIR of one layer of a transformer."""
    g = rlx.Graph("layer")
    sizes = dict(
        wq=(16, 16), bq=16, wk=(16, 16), bk=16, wv=(16, 16), bv=16, wo=(16, 16), bo=16,
        ln1_gamma=16, ln1_beta=16, fc1_w=(16, 64), fc1_b=64, fc2_w=(64, 16), fc2_b=16,
        ln2_gamma=16, ln2_beta=16,
    )  # fmt: skip
    x = g.input("x", [1, 8, 16])
    weights = [g.param(n, [s] if isinstance(s, int) else list(s)) for n, s in sizes.items()]
    g.set_outputs(g.bert_layer(x, *weights, num_heads=2))
    return str(g.to_mlir())


@pytest.mark.parametrize("stage", ["hir", "mir", "fused", "lir"])
def test_a_dumped_pipeline_gives_identical_ir(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RLX_CPU", "x86-64-v3")
    path = tmp_path / "layer.mlir"
    path.write_text(block())
    assert opt.main([str(path), f"--emit={stage}", "--dump-pass-pipeline"]) == 0
    direct, dumped = capsys.readouterr()
    assert opt.main([str(path), "--pass-pipeline", dumped.strip()]) == 0
    assert capsys.readouterr().out == direct
    assert dumped.startswith("builtin.module(") and ("fuse" in dumped) == (
        stage in ("fused", "lir")
    )
