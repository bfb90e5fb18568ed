"""rlx bench in process: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.tools import cli
from rlx.tools.feeds import index_limits, random_arrays

Command = Callable[..., tuple[int, str, str]]


def encoder() -> rlx.Graph:
    """Rows of a table by index, then a product; the batch is symbolic."""
    g = rlx.Graph("encoder")
    table = g.param("table", [3, 16])
    ids = g.input("ids", ["batch", 5], "i64")
    g.set_outputs((table.gather(ids) @ g.param("w", [16, 8])).softmax(axis=-1))
    return g


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> Command:
    """``rlx bench`` on the encoder; its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    rlx.save(encoder(), "encoder.mlir")

    def run(*arguments: str, graph: str = "encoder.mlir") -> tuple[int, str, str]:
        try:
            code = cli.main(["bench", graph, "--repeat", "2", *arguments])
        except SystemExit as e:
            code = int(e.code or 0)
        return (code, *capsys.readouterr())

    return run


def test_it_prints_a_table(bench: Command) -> None:
    code, out, err = bench("--dim", "batch=4")
    assert (code, err) == (0, "")
    head, *rows = out.split("\n\n")[0].splitlines()
    calls, unit, *others = head.split()[:4]
    assert (calls, *others) == ("calls", "share", "GFLOP/s") and unit in ("us", "ms")
    assert {r.split(maxsplit=9)[8] for r in rows} == {"gather", "matmul", "softmax"}
    assert all(f"{Path(__file__).name}:" in r for r in rows)
    assert "GFLOP/s in f32" in out


def test_it_prints_plain_data(bench: Command) -> None:
    code, out, _ = bench("--dim", "batch=4", "--json", "--threads", "1")
    assert code == 0
    found = json.loads(out)
    assert (found["runs"], found["threads"]) == (2, 1)
    flops = {row["ops"]: row["flops"] for row in found["rows"]}
    assert flops == {"gather": 0, "matmul": 2 * 20 * 16 * 8, "softmax": 5 * 20 * 8}
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)
    assert all(row["of_roof"] > 0 for row in found["rows"])
    assert found["roof"]["flops"] > 0


def test_arrays_can_be_given(bench: Command) -> None:
    np.save("ids.npy", np.full((4, 5), 3))
    code, _, err = bench("--dim", "batch=4", "--input", "ids=ids.npy")
    assert code == 1
    assert "out of range" in err
    np.save("table.npy", np.zeros((4, 16), np.float32))
    code, _, err = bench("--dim", "batch=4", "--param", "table=table.npy")
    assert code == 1
    assert "'table'" in err


def test_an_artifact_is_taken_as_it_is(bench: Command) -> None:
    rlx.compile_artifact(encoder(), dims={"batch": 4}).save("encoder.rlx")
    code, out, err = bench("--json", graph="encoder.rlx")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [r["ops"] for r in rows] == ["gather", "matmul", "softmax"]
    assert {r["at"].rpartition(":")[0] for r in rows} == {__file__}
    assert rows[1]["flops"] == 2 * 20 * 16 * 8


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 1, "dims without a size: batch; give --dim batch=SIZE"),
        (["--dim", "batch"], 2, "found 'batch', expected NAME=SIZE"),
        (["--dim", "batch=4", "--repeat", "0"], 1, "1 run or more, found 0"),
        (["--dim", "batch=4", "--input", "ids=none.npy"], 1, "cannot read none.npy"),
        (["--dim", "batch=4", "--input", "idz=a.npy"], 1, "called 'idz'; did you mean 'ids'?"),
        (["--dim", "batch=4", "--param", "tabel=a.npy"], 1, "did you mean 'table'?"),
        (["--input", "encoder.mlir"], 2, "found 'encoder.mlir', expected NAME=FILE.npy"),
    ],
)
def test_what_it_cannot_use_is_refused(bench: Command, arguments, code, part) -> None:
    np.save("a.npy", np.zeros(2))
    found, _, err = bench(*arguments)
    assert found == code
    assert part in err


def test_a_file_that_is_no_graph_is_refused(bench: Command) -> None:
    code, _, err = bench(graph="none.mlir")
    assert code == 1
    assert "none.mlir" in err


# -- random arrays -------------------------------------------------------------------------


def test_indices_are_in_range_and_reach_it() -> None:
    g = encoder().bind({"batch": 40})
    assert index_limits(g) == {"ids": 3}
    assert set(np.unique(random_arrays(g)["ids"])) == {0, 1, 2}


def test_indices_are_followed_to_their_input() -> None:
    g = rlx.Graph()
    table = g.input("table", [7, 2])
    ids = g.input("ids", [4], "i32")
    moved = ids.cast(to="i64").reshape((2, 2)).transpose((1, 0))
    g.set_outputs([table.gather(moved), g.input("other", [9, 2]).gather(ids), ids])
    assert index_limits(g) == {"ids": 7}
    at = g.input("at", [4, 2], "i64")
    g.set_outputs([table.gather_nd(at), table.scatter(ids, 0.0)])
    assert index_limits(g) == {"at": 2, "ids": 7}


def test_every_type_has_random_arrays() -> None:
    g = rlx.Graph()
    names = ["f16", "bf16", "f32", "f64", "i8", "i64", "u8", "bool"]
    inputs = [g.input(name, [2, 3], name) for name in names]
    g.param("given", [2], value=np.ones(2, np.float32))
    g.set_outputs(inputs)
    found = random_arrays(g)
    assert list(found) == names, "a param with a value keeps it"
    for name, a in found.items():
        assert a.shape == (2, 3)
        assert a.dtype == rlx.types.DTYPES[name].numpy
