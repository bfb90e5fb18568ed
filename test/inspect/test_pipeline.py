"""inspect_pipeline: every level of one compile."""

import pytest

import rlx
from rlx.errors import DeviceError, GraphError, RlxError, ShapeError
from rlx.inspect import inspect_pipeline
from rlx.tools import opt

CPU = "cpu:x86-64-v3"


def mlp(batch: int | str = 8) -> rlx.Graph:
    g = rlx.Graph("mlp")
    x = g.input("x", [batch, 16])
    w, b = g.param("w", [16, 32]), g.param("b", [32])
    g.set_outputs([g.linear(x, w, b, activation="gelu")])
    return g


def test_levels_hold_what_their_names_say():
    found = inspect_pipeline(mlp(), CPU)
    assert "hir.linear" in found.hir and "mir.fused" not in found.hir
    assert "hir." not in found.mir and "mir.matmul" in found.mir
    assert "mir.fused" in found.fused
    assert "lir.role" in found.lir and "mir.matmul" not in found.lir
    assert "contraction: matmul+add+gelu" in found.fusion
    assert "contraction" in found.dispatch
    assert found.diff.startswith("diff: 3 -> 1 nodes (1 -> 1 outputs)")
    assert "+1  fused contraction (0 -> 1)" in found.diff
    assert {"hir-to-mir", "fuse", "mir-to-lir"} <= set(found.seconds)


def test_text_has_every_section_in_order():
    text = str(inspect_pipeline(mlp(), CPU))
    names = [
        "HIR", "MIR (lowered)", "MIR (fusion diff)", "MIR (optimized)", "FUSION", "DISPATCH", "LIR",
        "TIME",
    ]  # fmt: skip
    places = [text.index(f"===== {name} =====") for name in names]
    assert places == sorted(places)
    assert "ms  hoist" in text


def test_each_level_is_what_rlx_opt_prints(tmp_path, capsys):
    found = inspect_pipeline(mlp(), CPU)
    source = tmp_path / "mlp.mlir"
    source.write_text(found.hir)
    for stage in ("hir", "mir", "fused", "lir"):
        assert opt.main([str(source), f"--emit={stage}", f"--target={CPU}"]) == 0
        printed = capsys.readouterr().out
        # Fault sites aside, which name the file that was read, a level is the same text.
        assert printed.strip() == getattr(found, stage).strip(), stage


def test_options_change_what_is_shown():
    assert "mir.fused" not in inspect_pipeline(mlp(), CPU, fuse=False).fused
    assert "common: matmul" in inspect_pipeline(mlp(), CPU, dispatch="common").dispatch


def test_dims_are_bound():
    with pytest.raises(ShapeError, match="symbolic dim n"):
        inspect_pipeline(mlp("n"), CPU)
    assert "8x16xf32" in inspect_pipeline(mlp("n"), CPU, dims={"n": 8}).lir


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "cpuu"}, DeviceError, "did you mean 'cpu'"),
        ({"fused": True}, GraphError, "did you mean 'fuse'"),
        ({"dispatch": "fast"}, GraphError, "'native' or 'common'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        inspect_pipeline(mlp(), **arguments)


def test_a_graph_without_outputs_is_refused():
    g = rlx.Graph("nothing")
    g.input("x", [4])
    with pytest.raises(RlxError, match="output"):
        inspect_pipeline(g, CPU)
