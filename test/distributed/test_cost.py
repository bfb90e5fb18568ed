"""What a step costs: the model by hand, and the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rlx
from rlx import P
from rlx.distributed import Network, cost
from rlx.distributed.cost import fitted
from rlx.distributed.measure import Measured
from rlx.errors import RlxError
from rlx.roofline import Roofline
from rlx.tools import cli

ROOF = Roofline(1e9, 1e9, 1)
SLOW = Network(1e-3, 1e6)


def layer(rows: int | str = 16) -> rlx.Graph:
    g = rlx.Graph("layer")
    x, up, down = g.input("x", [rows, 32]), g.param("up", [32, 64]), g.param("down", [64, 32])
    g.set_outputs((x @ up).relu() @ down)
    return g


SPECS = {"x": P("data"), "up": P(None, "model"), "down": P("model")}
MESH = rlx.Mesh(data=2, model=4)


def test_a_step_by_hand() -> None:
    sharded = rlx.shard(layer(), MESH, SPECS, out=P("data"))
    found = cost(sharded, ROOF, {"model": SLOW, "data": SLOW}, times=3)
    flops = 2 * 2 * 8 * 32 * 16  # two products of a rank
    between = 2 * 8 * 16 * 4  # what relu reads of one and writes for the other
    assert found.compute == pytest.approx(3 * (flops + between) / 1e9)
    beside = cost(sharded, ROOF, SLOW, times=3, beside=["model"])
    assert beside.step == beside.exchange["model"], "which is longer than all computing"
    faster = cost(sharded, ROOF, SLOW, times=3, rates={"matmul": 2e9, "dot_general": 2e9})
    memory = 2 * (8 * 32 + 32 * 16 + 8 * 16) * 4
    assert faster.compute == pytest.approx(3 * (max(flops / 2, memory) + between) / 1e9)
    sent = 2 * 3 / 4 * 8 * 32 * 4  # of a ring of four
    assert found.sent == 3 * sent and found.collectives == 3
    assert found.exchange == {"model": pytest.approx(3 * (4 * 1e-3 + sent / 1e6))}
    assert found.step == pytest.approx(found.compute + found.exchange["model"])
    assert "3 collectives" in str(found) and "along 'model'" in str(found)


def test_messages_of_each_kind() -> None:
    net = Network(1.0, 1e30)
    assert [round(net.seconds(k, 0, 8)) for k in ("all_reduce", "all_gather", "all_to_all")] == [
        6, 3, 7,
    ]  # fmt: skip


def test_a_network_that_made_the_points_is_found() -> None:
    made = Network(2e-6, 5e9)
    points = [(float(n), made.seconds("all_reduce", n, 4)) for n in (1 << 12, 1 << 16, 1 << 24)]
    found = fitted(points, 4)
    assert found.latency == pytest.approx(2e-6) and found.bytes == pytest.approx(5e9)
    two = Network(2e-6, 5e9, (1 << 20, 1e9))
    sizes = [float(1 << n) for n in (12, 16, 20, 22, 24)]
    found = fitted([(n, two.seconds("all_reduce", n, 4)) for n in sizes], 4)
    assert found.latency == pytest.approx(2e-6) and found.bytes == pytest.approx(5e9)
    assert found.beyond == (1 << 20, pytest.approx(1e9))
    assert repr(two) == "Network(2 us, 5 GB/s, beyond 1024 KiB 1 GB/s)"
    measured = Measured(2, {4096: 2e-6, 1 << 20: 1e-4}, {1 << 16: 9e-6})
    assert measured.predicted(1 << 20) == pytest.approx(1e-4)
    assert "2 ranks" in str(measured)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "latency": (lambda: Network(-1, 1e9), "latency is -1, expected a number above 0"),
    "bytes": (lambda: Network(1e-6, "9"), "bytes is '9', expected a number"),
    "beyond": (lambda: Network(1e-6, 1e9, (1e6, 0)), r"beyond\[1\] is 0, expected a number above"),
    "one rate": (lambda: Network(1e-6, 1e9, (1e6,)), "beyond is .*, expected two numbers"),
    "beside": (
        lambda: cost(rlx.shard(layer(), MESH, SPECS), ROOF, SLOW, beside=["pipe"]),
        "the mesh has no axis 'pipe'",
    ),
    "manual": (
        lambda: cost(rlx.shard(layer(), MESH, {}, manual=True), ROOF, SLOW),
        "without manual=True",
    ),
    "sizes": (
        lambda: cost(rlx.shard(layer("n"), MESH, SPECS), ROOF, SLOW),
        "the sizes n are not known",
    ),
    "no network": (
        lambda: cost(rlx.shard(layer(), MESH, SPECS, out=P("data")), ROOF, {}),
        "no Network for the axis 'model'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(RlxError, match=message):
        call()


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """``rlx COMMAND`` where the layer is; its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    g = layer("n")
    g.set_outputs(g.outputs[0].mean())
    rlx.save(g, "layer.mlir")

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


MODEL = ("cost", "layer.mlir", "--spec", "x=data", "--flops", "1e9", "--memory", "1e9")
NET = ("--network", "data=1e-3,1e6")


def test_the_command(run: Command) -> None:
    meshes = ("--mesh", "data=2", "--mesh", "data=64")
    broken = ("--network", "data=1e-3,1e6,1e9,1e5", "--beside", "data")
    code, out, _ = run(*MODEL, *broken, "--grad", "--each", "n=4", *meshes, "--json")
    first, second = json.loads(out)
    assert code == 0 and first["mesh"] == {"data": 2} and second["mesh"] == {"data": 64}
    assert first["compute"] == second["compute"] and first["sent"] < second["sent"]
    code, out, _ = run(*MODEL, *NET, "--dim", "n=4", "--mesh", "data=2", "--report")
    assert code == 0 and "a step" in out and "reduce_mean sums over" in out


WRONG = {
    "times": (("--times", "0", "--mesh", "data=2"), "found --times 0, expected 1 or more"),
    "mesh": (("--mesh", "data"), "found --mesh data, expected axes such as"),
    "spec": (("--mesh", "data=2", "--spec", "x"), "found --spec x, expected NAME=AXIS"),
    "name": (("--mesh", "data=2", "--spec", "y=data"), "no input or param is called 'y'"),
    "network": (("--mesh", "data=2", "--network", "data=1"), "expected AXIS=SECONDS,BYTES"),
    "axis": (("--mesh", "data=2", "--network", "date=1,1"), "'date', an axis of no mesh"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_command_lines(run: Command, case: str) -> None:
    words, message = WRONG[case]
    code, _, err = run(*MODEL, *words)
    assert code == 1 and message in err


@pytest.mark.slow
def test_published_runs() -> None:
    """One axis within 5 %, and more within 25 %, of two systems."""
    path = Path(__file__).resolve().parents[2] / "tools" / "published_runs.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_reduces_between_processes(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx.distributed.measure.Launch.run", lambda self: 3)
    code, _, err = run("bench", "--comm", "2")
    assert code == 1 and "the ranks ended with status 3" in err
    monkeypatch.undo()
    code, out, _ = run("bench", "--comm", "2", "--repeat", "1", "--json")
    found = json.loads(out)
    assert code == 0 and found["ranks"] == 2 and len(found["seconds"]) == 7
    assert len(found["between"]) == 6
    assert all(t > 0 for t in found["seconds"].values()) and found["bytes"] > 0
    for words, message in (
        ((), "name a model, or pass --comm RANKS"),
        (("--comm", "1"), "expected 2 ranks or more"),
    ):
        code, _, err = run("bench", *words)
        assert code == 1 and message in err


def test_an_axis_that_no_network_is_given_for_is_measured(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rlx.distributed.measure.measured",
        lambda ranks: Measured(ranks, {4096: 1.0, 8192: 2.0}, {}),
    )
    code, out, _ = run(*MODEL, "--grad", "--dim", "n=4", "--mesh", "data=2")
    assert code == 0 and "along 'data'" in out
