"""Profiles: what launches take, and the work that they are said to do."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import GraphError, UnsupportedError
from rlx.roofline import Roofline, measure
from rlx.runtime.profile import Profile, Row
from support.compiled import arrays


def profile(g: rlx.Graph, runs: int = 3, **options: Any) -> Profile:
    """The profile of a graph on arrays of normal numbers."""
    f = rlx.Session("cpu").compile(g, **options)
    given = arrays(g)
    for v in g.params:
        f.set_param(str(v.name), given[str(v.name)])
    return f.profile({str(v.name): given[str(v.name)] for v in g.inputs}, runs)


def row(found: Profile, ops: str, kernel: str = "") -> Row:
    (only,) = [r for r in found.rows if r.ops == ops and r.kernel.startswith(kernel)]
    return only


# -- the work ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "kernel", "flops"),
    [
        ([5, 7], [7, 11], "contraction", 2 * 5 * 7 * 11),
        ([3, 5, 7], [7, 11], "contraction", 2 * 3 * 5 * 7 * 11),
        ([3, 5, 7], [3, 7, 11], "contraction", 2 * 3 * 5 * 7 * 11),
        ([1, 5, 7], [4, 7, 1], "rowwise", 2 * 4 * 5 * 7),  # sums of rows
    ],
)
def test_flops_of_a_product_are_exact(a: Any, b: Any, kernel: str, flops: int):
    g = rlx.Graph()
    g.set_outputs(g.input("a", a) @ g.input("b", b))
    assert row(profile(g), "matmul", kernel).flops == flops


def test_flops_and_bytes_are_those_of_the_sizes_of_the_call(tmp_path: Path):
    g = rlx.Graph("rows")
    g.set_outputs([g.input("x", ["n", 8]).softmax() @ g.param("w", value=np.ones((8, 4), "f4"))])
    f = rlx.Session("cpu").compile(g)
    rlx.compile_artifact(g).save(tmp_path / "rows.rlx")
    for runner in (f, rlx.Session("cpu").load(tmp_path / "rows.rlx")):
        for n in (16, 48):
            x = np.ones((n, 8), np.float32)
            rows = {r.ops.split("+")[0]: r for r in runner.profile({"x": x}, 2).rows}
            bound = rlx.Session("cpu").compile(g, dims={"n": n}).profile({"x": x}, 2).rows
            known = {r.ops.split("+")[0]: r for r in bound}
            assert rows["matmul"].flops == known["matmul"].flops == 2 * n * 8 * 4
            assert {k: (r.flops, r.bytes) for k, r in rows.items()} == {
                k: (r.flops, r.bytes) for k, r in known.items()
            }


def test_flops_of_a_fused_product_count_its_epilogue():
    g = rlx.Graph()
    x = g.input("x", [6, 8]) @ g.param("w", [8, 10]) + g.param("b", [10])
    g.set_outputs(x.gelu())
    found = profile(g)
    assert [r.flops for r in found.rows] == [2 * 6 * 8 * 10 + 2 * 6 * 10]
    apart = profile(g, fuse=False)
    assert sorted(r.flops for r in apart.rows if r.flops) == [60, 60, 960]


def pairs(kind: str, window: int, sq: int, sk: int) -> int:
    """The scores that a mask leaves, one by one."""
    back = [q + sk - sq - k for q in range(sq) for k in range(sk)]
    limit = {"none": 1 << 30, "causal": 1 << 30, "sliding_window": window}[kind]
    return sum(kind == "none" or 0 <= b <= limit for b in back)


@pytest.mark.parametrize(
    ("kind", "window"), [("none", 0), ("causal", 0), ("sliding_window", 3), ("sliding_window", 40)]
)
@pytest.mark.parametrize(("sq", "sk"), [(9, 9), (5, 12), (12, 5)])
def test_flops_of_attention_are_those_of_the_scores_that_count(
    kind: str, window: int, sq: int, sk: int
):
    g = rlx.Graph()
    q, k, v = (g.input(n, [2, 3, s, 8]) for n, s in (("q", sq), ("k", sk), ("v", sk)))
    options: Any = {"mask_kind": kind, "window": window, "layout": "bhsd"}
    g.set_outputs(g.attention(q, k, v, **options))
    expected = 2 * 2 * (2 * 3) * pairs(kind, window, sq, sk) * 8
    assert row(profile(g), "attention").flops == expected


def test_movement_has_bytes_and_no_flops():
    g = rlx.Graph()
    table = g.input("table", [1000, 16])
    ids = g.input("ids", [4], "i64")
    g.set_outputs([g.gather(table, ids, axis=0), table.transpose((1, 0))])
    f = rlx.Session("cpu").compile(g)
    found = f.profile({"table": np.ones((1000, 16), np.float32), "ids": np.arange(4)})
    assert all(r.flops == 0 for r in found.rows)
    # Four rows of the table are read and written, and four indices read.
    assert row(found, "gather").bytes == 4 * 16 * 4 * 2 + 4 * 8
    assert row(found, "output 1").bytes == 2 * 1000 * 16 * 4


def test_what_is_broadcast_counts_once():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [6, 8]) * g.input("scale", [8]))
    assert row(profile(g), "mul").bytes == 4 * (48 + 8 + 48)


def test_common_kernels_are_told_by_their_ops():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [6, 8]) @ g.input("y", [8, 3]))
    found = row(profile(g, dispatch="common"), "matmul")
    assert found.flops == 2 * 6 * 8 * 3
    assert found.kernel.startswith("common")


def test_launches_of_an_imported_model_have_the_names_of_its_nodes(tmp_path: Path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    text = """<ir_version: 10, opset_import: ["" : 20]>
    two (float[4, 8] x, float[8, 6] w) => (float[6, 4] y) {
        [first] h = MatMul (x, w)
        r = Relu (h)
        [last] y = Transpose <perm = [1, 0]> (r)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "two.onnx")
    found = profile(rlx.from_onnx(tmp_path / "two.onnx"))
    said = {(r.ops, Path(r.at).name) for r in found.rows}
    assert said >= {("matmul+relu of first", "two.onnx:1"), ("output 0 of last", "two.onnx:3")}


def test_copies_say_what_they_are_for():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [8, 6]).transpose([1, 0]).cumsum(axis=-1).reshape([3, 16]))
    assert {r.ops for r in profile(g).rows} == {"copy for cumsum", "cumsum", "output 0"}


def test_rounds_of_a_loop_count_and_a_branch_that_is_not_taken_does_not():
    g = rlx.Graph()
    n, x = g.input("n", [], "i64"), g.input("x", [8, 8])
    w = g.param("w", [8, 8], value=np.eye(8, dtype=np.float32))
    _, y = rlx.while_loop(lambda i, _: i > 0, lambda i, y: (i - 1, y @ w), (n, x))
    g.set_outputs(rlx.cond(n > 100, lambda a: a.softmax(axis=-1), lambda a: a * 2, y))
    f = rlx.Session("cpu").compile(g)
    found = f.profile({"n": np.int64(5), "x": np.ones((8, 8), np.float32)}, 2)
    product = row(found, "matmul")
    assert (product.calls, product.flops) == (5, 5 * 2 * 8 * 8 * 8)
    assert sorted(r.calls for r in found.rows if r.ops == "gt") == [1, 6]
    assert "softmax" not in {r.ops for r in found.rows}
    assert row(found, "mul").calls == 1


# -- the times -----------------------------------------------------------------------------


def test_rows_add_up_to_less_than_the_run():
    g = rlx.Graph()
    x = g.input("x", [64, 128])
    for n in range(4):
        x = (x @ g.param(f"w{n}", [128, 128])).softmax(axis=-1)
    g.set_outputs(x)
    found = profile(g, runs=5)
    assert sum(r.calls for r in found.rows) == 8
    products = [r for r in found.rows if r.ops == "matmul"]
    assert [r.calls for r in products] == [4], "launches of one line are one row"
    assert products[0].flops == 4 * 2 * 64 * 128 * 128
    assert 0 < found.launched <= found.seconds <= found.median
    assert all(r.seconds > 0 for r in found.rows)


def test_a_profile_is_a_table_and_plain_data():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [64, 128]).softmax(axis=-1))
    found = profile(g).against(Roofline(1e11, 1e10, 2))
    head, line, *rest = str(found).splitlines()
    unit = "us" if found.rows[0].seconds < 1e-3 else "ms"
    assert head.split() == [
        "calls", unit, "share", "GFLOP/s", "GB/s", "of", "roof", "bound", "kernel", "ops", "at",
    ]  # fmt: skip
    assert line.split()[0] == "1"
    assert "100.0%" in line
    assert "softmax" in line
    assert f"{Path(__file__).name}:" in line
    assert "100 GFLOP/s in f32, 10.0 GB/s from memory (2 threads, measured)" in rest[-1]
    data = json.loads(json.dumps(found.to_json()))
    (only,) = data["rows"]
    assert only["flops"] == 5 * 64 * 128
    assert only["share"] == 1
    # 64 KiB at 10 GB/s take longer than 40960 flops at 100 GFLOP/s.
    assert only["bound"] == "memory"
    assert only["of_roof"] == pytest.approx(2 * 64 * 128 * 4 / 1e10 / only["seconds"])


def test_a_profile_says_that_it_was_disturbed():
    rows = [Row("k_0", "add", "f.py:1", 1, 1e-3, 10, 20)]
    calm = Profile(rows, runs=2, seconds=1.2e-3, median=2e-3, around=1e-4, threads=1)
    assert "note" not in str(calm)
    busy = Profile(rows, runs=2, seconds=2e-3, median=2e-3, around=1e-4, threads=1)
    assert "interrupted every run" in str(busy)


def test_a_profile_ends_and_calls_beside_it_are_right():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [64, 64]).softmax(axis=-1))
    f = rlx.Session("cpu").compile(g)
    x = np.ones((64, 64), np.float32)
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            np.testing.assert_allclose(f.run_slots(x)[0], 1 / 64)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for _ in range(20):
            assert f.profile({"x": x}, 2).rows[0].seconds > 0
    finally:
        done.set()
        thread.join()
    executable = f._executable({})
    before = executable.program.launch_times()
    f.run_slots(x)
    assert executable.program.launch_times() == before


def test_what_cannot_be_profiled_is_refused():
    g = rlx.Graph()
    g.set_outputs(g.input("x", [2]).exp())
    with pytest.raises(GraphError, match="1 run or more, found 0"):
        profile(g, runs=0)
    with pytest.raises(UnsupportedError, match="compile for 'cpu'"):
        rlx.Session("interpret").compile(g).profile({"x": np.ones(2, np.float32)})


# -- the roof ------------------------------------------------------------------------------


def test_the_roof_is_measured_and_is_above_what_kernels_reach():
    roof = measure()
    assert roof.threads >= 1
    # Any machine that RLX compiles for does more than this, and none has as much.
    assert 1e9 < roof.flops < 1e14
    assert 1e8 < roof.bytes < 1e13
    g = rlx.Graph()
    # So large that arithmetic bounds it wherever a byte costs less than 170 flops.
    g.set_outputs(g.input("a", [1024, 1024]) @ g.input("b", [1024, 1024]))
    found = profile(g, runs=3).against(roof)
    part, bound = row(found, "matmul", "contraction").of_roof(roof)
    assert bound == "compute"
    assert part > 0
