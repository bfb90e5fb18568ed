"""MLX: graphs as functions of mlx.core, run on its device here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.errors import DeviceError, FaultError, ToolchainError, UnsupportedError
from rlx.targets.graph.rows.linear import LARGEST
from rlx.targets.mlx import emit, launch
from rlx.targets.mlx.features import LACKS
from rlx.tools.opt import main
from rlx.types import c128, f64
from support.graph_conformance import cases_for, conforms
from support.tolerances import assert_close
from support.whole import STANDS

needs_mlx = pytest.mark.skipif(find_spec("mlx") is None, reason="the package mlx is not installed")


def _model() -> rlx.Graph:
    g = rlx.Graph("model")
    ids = g.input("ids", [4], "i64")
    x = g.param("table", [5, 8]).gather(ids)
    q = x.reshape([1, 2, 4, 4])
    y = (
        q.attention(q, q, mask_kind="causal", layout="bhsd")
        .reshape([4, 8])
        .layer_norm(g.param("scale", [8]), g.param("shift", [8]))
    )
    g.set_outputs([y, (y @ g.param("w", [8, 3])).softmax(-1)])
    return g


def _params() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"table": (5, 8), "scale": (8,), "shift": (8,), "w": (8, 3)}
    return {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}


IDS = {"ids": np.array([0, 4, -1, 2])}


@needs_mlx
def test_every_op_agrees_with_the_interpreter_on_some_type() -> None:
    stand = STANDS["mlx"]
    with np.errstate(all="ignore"):
        found = list(conforms("mlx", stand, cases_for("mlx", stand, "turning")))
    assert not [str(f) for f in found if not f.good]
    refused = {f.op for f in found if f.verdict == "refused"}
    assert len(refused) < 15 and {f.op for f in found} - refused >= {"mir.sort", "mir.conv"}


@needs_mlx
@pytest.mark.parametrize("mode", ["lazy", "compiled"])
def test_a_session_runs_a_model(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_MLX_MODE", mode)
    g = _model()
    compiled = rlx.Session("mlx").compile(g)
    for name, value in _params().items():
        compiled.set_param(name, value)
    if mode == "compiled":  # only that it is asked to: a processor needs a C++ compiler for it
        return
    for a, b in zip(compiled.run(IDS), rlx.interpret(g, {**IDS, **_params()}), strict=True):
        assert_close(a, b)
    with pytest.raises(FaultError, match="out of range for axis 0 of 5"):
        compiled.run({"ids": np.array([0, 5, 0, 0])})


@needs_mlx
def test_an_artifact_is_a_function_that_mlx_imports(tmp_path: Path) -> None:
    from rlx.targets.mlx.words import from_mlx, mlx, to_mlx
    from rlx.types import f32

    artifact = rlx.compile_artifact(_model(), "mlx", params=_params())
    artifact.save(tmp_path / "model.rlx")
    found = rlx.Session("mlx").load(tmp_path / "model.rlx").run(IDS)
    (code,) = artifact.variants[0].objects.values()
    (tmp_path / "model.mlxfn").write_bytes(code)
    f = mlx().import_function(str(tmp_path / "model.mlxfn"))
    y, *_ = f(*[to_mlx(a) for a in (*_params().values(), IDS["ids"])])
    assert_close(from_mlx(y, f32), found[0])


@needs_mlx
def test_branches_and_short_scans_are_written_out() -> None:
    g = rlx.Graph("control")
    x, n = g.input("x", [3]), g.input("n", [], "i64")
    branch = rlx.cond(n.gt(2), lambda: x * 2.0, lambda: x - 1.0)
    last, stack = rlx.scan(lambda c, e: (c + e, c * e), x.sum(), x, reverse=True)
    g.set_outputs([branch, last, stack])
    feeds = {"x": np.array([1, 2, 3], "f4"), "n": np.asarray(4, np.int64)}
    found = rlx.Session("mlx").compile(g).run(feeds)
    for a, b in zip(found, rlx.interpret(g, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@needs_mlx
def test_what_mlx_cannot_trace_is_refused() -> None:
    g = rlx.Graph("loop")
    x, i = g.input("x", [3]), g.input("i", [], "i64")
    loop = rlx.while_loop(lambda i: i.lt(9), lambda i: i + 1, i)
    branch = rlx.cond(i.gt(0), lambda: x.gather(i), x.sum)
    image, w = g.input("image", [1, 2, 3, 3, 3]), g.input("w", [2, 1, 2, 2, 2])
    grouped = image.conv(w, groups=2)
    g.set_outputs([loop, branch, grouped])
    with pytest.raises(UnsupportedError) as e:
        rlx.compile_artifact(g, "mlx")
    said = e.value.message
    assert "control.while_loop x 1" in said and f"scans of {LARGEST} rounds" in said
    assert "what may fail in a branch" in said and "in groups over three axes" in said


@pytest.mark.parametrize("dt", [f64, c128])
def test_a_type_that_mlx_lacks_is_refused_by_name(dt: rlx.DType) -> None:
    if find_spec("mlx") is None:
        pytest.skip("the package mlx is not installed")
    g = rlx.Graph("wide")
    g.set_outputs([g.input("x", [2], dt).exp()])
    with pytest.raises(UnsupportedError, match=f"{dt}: MLX has none") as e:
        rlx.compile_artifact(g, "mlx")
    assert LACKS[dt] in e.value.message


@needs_mlx
def test_rlx_opt_shows_the_graph_of_arrays(tmp_path: Path) -> None:
    source, out = tmp_path / "in.mlir", tmp_path / "out.dot"
    source.write_text(str(rlx.GraphModule.of(_model())), encoding="utf-8")
    assert main([str(source), "--emit=dot", "--target=mlx", "-o", str(out)]) == 0
    assert "Matmul" in out.read_text(encoding="utf-8")


def test_without_the_package_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"it needs MLX: pip install 'rlx\[mlx\]'"):
        rlx.Session("mlx")
    with pytest.raises(ToolchainError, match=r"the stage mlxfn needs MLX; pip install"):
        rlx.compile_artifact(_model(), "mlx")
    assert emit.EXTRA.endswith("'rlx[mlx]'")


def test_the_processor_is_preferred_to_itself_by_way_of_mlx() -> None:
    if launch.missing() or not launch.software():
        pytest.skip("MLX is not here, or on a GPU")
    assert rlx.available_devices().index("cpu") < rlx.available_devices().index("mlx")
