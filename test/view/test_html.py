"""rlx.inspect_html: what the page holds, what is linked with what, and that nothing gets out."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, ShapeError
from rlx.models.bert import BertConfig, bert_encoder
from rlx.tools import cli
from support.pages import CPU, NAME, Page, data_of, hostile, two_branches


def test_a_line_is_linked_through_every_level() -> None:
    page = Page(rlx.inspect_html(two_branches(), target=CPU))
    linear = page.node("hir", "hir.linear")
    assert "left = g.linear" in page.related(linear, "source")[0]
    assert page.words(linear, "mir") == ["mir.matmul", "mir.add", "mir.gelu"]
    fused = ["mir.fused", "mir.matmul", "mir.expand", "mir.add", "mir.gelu"]
    assert page.words(linear, "fused") == fused
    launches = page.words(linear, "lir", r"    call @(\w+)")
    assert [n.split("_")[0] for n in launches] == ["pack", "contraction"]
    # And back: what the launch came from, and nothing of the other branch.
    launch = page.node("lir", f"    call @{launches[1]}")
    assert page.words(launch, "fused") == fused
    assert page.words(launch, "hir") == ["hir.linear"]
    assert len(page.related(launch, "source")) == 1


def test_an_op_that_became_a_view_is_linked_to_the_launch_that_reads_it() -> None:
    page = Page(rlx.inspect_html(two_branches(), target=CPU))
    transpose = page.node("hir", "mir.transpose")
    found = page.words(transpose, "lir", r"lir\.view|    call @\w+")
    assert found[0] == "lir.view" and found[1].startswith("    call @copy"), "its rows lie across"
    assert page.words(transpose, "hir") == ["mir.transpose"]


def test_products_that_became_one_are_all_its_origins() -> None:
    g = rlx.Graph("qk")
    x, w, v = g.input("x", [4, 8]), g.param("w", [8, 8]), g.param("v", [8, 8])
    one = x @ w
    two = x @ v
    g.set_outputs([one.relu() + two.relu()])
    page = Page(rlx.inspect_html(g, target=CPU))
    launch = page.node("lir", "    call @contraction")
    assert page.words(launch, "mir") == ["mir.matmul", "mir.matmul"]
    assert [s.strip() for s in page.related(launch, "source")] == ["one = x @ w", "two = x @ v"]


def test_lines_of_a_kernel_are_linked_down_to_its_assembly() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [64]).sqrt())
    (kernel,) = Page(rlx.inspect_html(g, target=CPU)).data["kernels"]
    listings = {s["stage"]: s for s in kernel["listings"]}
    text = {name: s["text"].splitlines() for name, s in listings.items()}
    roots = {i for i, line in enumerate(text["mlir"], 1) if "math.sqrt" in line}
    assert roots

    def ops(stage: str) -> set[str]:
        pairs = zip(text[stage], listings[stage]["lines"], strict=True)
        return {line.split()[0] for line, n in pairs if n in roots and "sqrt" in line}

    assert ops("asm") == {"vsqrtps"}
    lines = zip(text["llvm"], listings["llvm"]["lines"], strict=True)
    assert all(n in roots for line, n in lines if "call" in line and "llvm.sqrt" in line)


def test_the_arena_is_as_it_was_planned() -> None:
    g = rlx.Graph()
    x = g.input("x", [4, 32])
    for _ in range(3):
        x = x.softmax(axis=-1).cumsum(axis=0)
    g.set_outputs(x)
    data = Page(rlx.inspect_html(g, target=CPU)).data
    buffers = data["arena"]["buffers"]
    assert len(buffers) == 5 and {b[4] for b in buffers} == {"f32[4x32]"}
    assert max(b[0] + b[1] for b in buffers) <= data["arena"]["bytes"] < sum(b[1] for b in buffers)
    for offset, size, first, last, _, node in buffers:
        assert data["launches"][first][1] == node
        assert not any(
            o < offset + size and offset < o + s and f <= last and first <= e
            for o, s, f, e, _, n in buffers
            if n != node
        )


def test_steps_with_bodies_are_linked_at_every_line_that_opens_one() -> None:
    g = rlx.Graph()
    x = g.input("x", [4])
    y = rlx.cond(g.input("p", [], "bool"), x.tanh, x.relu)
    g.set_outputs([y.cumsum(axis=0)])
    page = Page(rlx.inspect_html(g, target=CPU))
    lines = [line.strip() for line in page.related(page.node("lir", "scf.if"), "lir")]
    ends = [line.split(" %")[0] for line in lines if line.startswith(("scf", "}"))]
    assert ends == ["scf.if", "} else {", "}"]
    tanh = page.node("hir", "mir.tanh")
    assert len(page.words(tanh, "lir", r"    func\.call @(\w+)")) == 1
    assert page.data["arena"]["buffers"], "what is between cond and cumsum"


def test_reports_are_there() -> None:
    g = rlx.Graph()
    x = g.input("x", [4, 8])
    y = x.layer_norm(g.param("gamma", [8]), g.param("beta", [8]))
    g.set_outputs([y.relu(), y.tanh()])
    data = Page(rlx.inspect_html(g, target=CPU)).data
    (miss,) = data["missed"]
    assert "2 uses" in miss["reason"] and Path(miss["file"]).name == Path(__file__).name
    assert ["native", "rowwise: layer_norm", 1] in data["dispatch"]
    assert {"fuse", "mir-to-lir", "kernel asm"} <= {name for name, _ in data["seconds"]}


def test_a_target_without_line_tables_has_its_stages() -> None:
    page = Page(rlx.inspect_html(two_branches(), target="cuda"))
    assert page.stages == {"mlir", "llvm", "ptx"}


def test_a_large_model_is_a_small_page() -> None:
    config = BertConfig(vocab=30522, hidden=384, layers=6, heads=12, inner=1536, positions=512)
    page = rlx.inspect_html(bert_encoder(config), target=CPU, dims={"batch": 8, "tokens": 32})
    assert len(page) < 2_000_000
    assert Page(page).levels["hir"]["folds"]


def test_wrong_use_is_refused() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", ["n"]).relu())
    with pytest.raises(ShapeError, match="symbolic dim n"):
        rlx.inspect_html(g)
    with pytest.raises(GraphError, match="did you mean 'fuse'"):
        rlx.inspect_html(g, fused=True)


# -- nothing gets in, nothing gets out -------------------------------------------------------------


def test_names_are_no_html() -> None:
    page = rlx.inspect_html(hostile(), target=CPU)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert data_of(page)["title"] == NAME
    files = [line for line in Page(page).levels["source"]["lines"] if "onerror" in line]
    assert files, "the hostile file is shown, as text"


def test_the_policy_lets_in_this_script_alone() -> None:
    page = rlx.inspect_html(hostile(), target=CPU)
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0]
    assert policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert set(re.findall(r"https?://[^\"\s]*", page)) <= {"http://www.w3.org/2000/svg"}


def test_only_python_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A location may name any file, and the page is for showing to others."""
    secret, code = tmp_path / "secret.txt", tmp_path / "model.py"
    secret.write_text("password\n")
    code.write_text("y = relu(x)\n")
    text = tmp_path / "g.mlir"
    text.write_text(
        'func.func @main(%x: tensor<4xf32> {rlx.input = "x"}) -> tensor<4xf32> {\n'
        '  %y = "mir.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>'
        f' loc(fused["{secret}":1:1, "{code}":1:1])\n'
        "  return %y : tensor<4xf32>\n}\n"
    )
    assert cli.main(["view", str(text), "--target", CPU]) == 0
    page = Path(capsys.readouterr().out.strip()).read_text()
    assert "y = relu(x)" in page and "password" not in page
    assert page.count("cannot be read here") == 1


# -- the command -----------------------------------------------------------------------------------


def test_the_nodes_of_an_imported_model_are_its_source(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    text = """<ir_version: 10, opset_import: ["" : 20]>
    two (float[4, 8] x) => (float[4, 8] y) { [first] h = Exp (x) [last] y = Sin (h) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "two.onnx")
    shown = rlx.inspect_html(rlx.from_onnx(tmp_path / "two.onnx"))
    assert '"first"' in shown and '"last"' in shown and "cannot be read" not in shown


@pytest.mark.parametrize("level", ["hir", "fused", "lir"])
def test_any_level_can_be_viewed(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "g.mlir"
    text.write_text(getattr(rlx.inspect_pipeline(two_branches(), CPU), level))
    out = tmp_path / "page.html"
    assert cli.main(["view", str(text), "-o", str(out), "--target", CPU]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    page = Page(out.read_text())
    order = ["hir", "mir", "fused", "lir"]
    assert list(page.levels) == ["source", *order[order.index(level) :]]
    launch = page.node("lir", "    call @contraction")
    assert page.related(launch, "source"), "lines of the text are the source"
    # The text of a schedule does not say whose the places in the arena are.
    assert page.data["arena"]["bytes"]
    assert bool(page.data["arena"]["buffers"]) == (level != "lir")


def test_a_saved_graph_can_be_viewed_at_sizes_of_its_dims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = rlx.Graph("named")
    w = g.param("w", value=np.ones((1000, 4)) + np.arange(4))
    g.set_outputs([g.input("x", ["n", 4]).softmax(axis=-1), w.relu()])
    path = tmp_path / "g.mlir"
    rlx.save(g, path)
    assert len(path.read_text()) > 60_000
    assert cli.main(["view", str(path), "--dim", "n=3", "--target", CPU]) == 0
    text = Path(capsys.readouterr().out.strip()).read_text()
    assert max(map(len, data_of(text)["levels"][0]["lines"])) <= 2001, "weights are cut"
    page = Page(text)
    assert "tensor<3x4xf32>" in page.levels["mir"]["lines"][1]
    softmax = page.node("mir", "mir.softmax")
    assert "softmax(axis=-1)" in page.related(softmax, "source")[0], "the place that was saved"
    assert cli.main(["view", str(path), "--target", CPU]) == 1
    assert "n" in capsys.readouterr().err


def test_what_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.mlir"
    assert cli.main(["view", str(wrong)]) == 1
    assert f"rlx: cannot read {wrong}: No such file" in capsys.readouterr().err
    wrong.write_bytes(np.arange(9).tobytes())
    assert cli.main(["view", str(wrong)]) == 1
    assert "is not text" in capsys.readouterr().err


def test_equal_layers_are_apart() -> None:
    """Views and kernels that equal layers share do not link the one layer to the other."""
    g = rlx.Graph("layers")
    x = g.input("x", [8, 16])
    for i in range(3):
        w, b = g.param(f"w{i}", [16, 16]), g.param(f"b{i}", [16])
        x = g.linear(x, w, b, activation="gelu", transposed=True)
        x = x.reshape((2, 4, 16)).transpose([1, 0, 2]).softmax(axis=-1).reshape((8, 16))
    g.set_outputs([x])
    page = Page(rlx.inspect_html(g, target=CPU))
    level = page.levels["fused"]
    for i in (n for n, line in enumerate(level["lines"]) if "mir.gelu" in line):
        launches = page.words(level["nodes"][i], "lir", r"    call @(\w+?)_")
        assert launches == ["pack", "contraction"]
    hir = page.levels["hir"]
    for i in (n for n, line in enumerate(hir["lines"]) if "mir.softmax" in line):
        assert page.words(hir["nodes"][i], "lir", r"    call @(\w+?)_") == ["rowwise"]
