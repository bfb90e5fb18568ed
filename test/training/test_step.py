"""A compiled training step: what it computes, what it keeps, and what it refuses."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.conftest import B, W, batch, regression

import rlx
from rlx.errors import CheckpointError, GraphError, NonFiniteError, OutOfMemoryError
from rlx.optim import SGD, Adam, ClipNorm, Muon
from rlx.training import LossScale, TrainStep

Make = Callable[..., TrainStep]


def by_hand(optimizer: rlx.optim.Optimizer, steps: int, **shape: Any) -> tuple[Any, list[float]]:
    """The params and losses of a run, from value_and_grad and the optimiser, by the interpreter."""
    loss = regression()
    loss.set_outputs(loss.outputs[:1])
    grads = rlx.value_and_grad(loss, wrt=["w", "b"])
    g = rlx.Graph("update")
    p = {n: g.input(n, a.shape) for n, a in (("w", W), ("b", B))}
    d = {n: g.input(f"d{n}", v.shape) for n, v in p.items()}
    types = optimizer.state({n: v.type for n, v in p.items()})
    s = {n: g.input(n, t.shape, t.dtype) for n, t in types.items()}
    new_p, new_s = optimizer.update(p, d, s)
    g.set_outputs([*new_p.values(), *new_s.values()])
    values = {n: np.zeros(t.static_shape, t.dtype.numpy) for n, t in types.items()}
    values |= {"w": W, "b": B}
    losses: list[float] = []
    for n in range(steps):
        params = {k: values[k] for k in "wb"}
        found, dw, db = rlx.interpret(grads, batch(n, **shape), params)
        losses.append(float(found))
        out = rlx.interpret(g, {**values, "dw": dw, "db": db})
        values = dict(zip([*new_p, *new_s], out, strict=True))
    return values, losses


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_a_step_is_the_gradient_and_the_update(make_step: Make, device: str) -> None:
    step = make_step(session=rlx.Session(device))
    values, losses = by_hand(Adam(lr=1e-2), 5)
    found = [step(batch(n)) for n in range(5)]
    np.testing.assert_allclose([r.loss for r in found], losses, rtol=1e-5)
    for name, a in step.params().items():
        np.testing.assert_allclose(a, values[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        step.state["optimizer/mean/w"], values["mean/w"], rtol=1e-4, atol=1e-7
    )
    assert (step.position, step.updates) == (5, 5)
    assert found[0].metrics["worst"].shape == ()


def test_the_state_is_one_region_that_steps_write_in_place(make_step: Make) -> None:
    step = make_step()
    w = step.state["params/w"]
    addresses = [a.ctypes.data for a in step.state.values()]
    assert max(addresses) - min(addresses) < step.state.bytes
    assert all(a % 64 == 0 for a in addresses)
    before = w.copy()
    step(batch(0))
    assert w is step.state["params/w"]
    assert not np.array_equal(w, before)
    halves: list[Any] = [step._gradients, step._update]
    launches = [ln.ops for half in halves for e in half.compiled._bound.values()
                for ln in e.launches]  # fmt: skip
    assert not any("donated" in ops for ops in launches), "no copies"


def test_batches_of_other_sizes_train_the_same_params(make_step: Make) -> None:
    step = make_step()
    losses = [step(batch(n, rows)).loss for n, rows in enumerate((8, 3, 8, 16))]
    assert np.isfinite(losses).all() and step.updates == 4


def test_params_that_are_not_named_stay(make_step: Make) -> None:
    step = make_step(wrt=["b"])
    step(batch(0))
    np.testing.assert_array_equal(step.params()["w"], W)
    assert not np.array_equal(step.params()["b"], B)


def test_accumulated_batches_are_one_large_batch(make_step: Make) -> None:
    whole, parts = make_step(SGD(lr=0.1)), make_step(SGD(lr=0.1), accumulate=4)
    for n in range(3):
        large = batch(n, 16)
        whole(large)
        for i in range(4):
            result = parts({k: a[4 * i : 4 * i + 4] for k, a in large.items()})
            assert result.updated == (i == 3)
    for name, a in whole.params().items():
        np.testing.assert_allclose(parts.params()[name], a, rtol=1e-5, atol=1e-7)
    assert (parts.position, parts.updates) == (12, 3)


def test_gradients_are_clipped(make_step: Make) -> None:
    step = make_step(SGD(lr=1.0), clip=ClipNorm(1e-3))
    step(batch(0))
    moved = np.sqrt(sum(((a - o) ** 2).sum() for a, o in
                        zip(step.params().values(), (W, B), strict=True)))  # fmt: skip
    assert moved == pytest.approx(1e-3, rel=1e-3)


def test_averages_of_the_params(make_step: Make) -> None:
    step = make_step(SGD(lr=0.1), ema=0.5)
    average = W
    for n in range(3):
        step(batch(n))
        average = 0.5 * average + 0.5 * step.params()["w"]
    np.testing.assert_allclose(step.params(averaged=True)["w"], average, rtol=1e-6)


def test_muon_on_a_matrix_and_a_vector(make_step: Make) -> None:
    step = make_step(Muon(lr=0.1))
    losses = [step(batch(n)).loss for n in range(30)]
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])


# -- element types -------------------------------------------------------------------------


def test_bf16_params_are_trained_in_f32(make_step: Make) -> None:
    """Steps of less than bf16's epsilon are not lost."""
    step = make_step(SGD(lr=1e-4), "bf16")
    for n in range(20):
        step(batch(n, dtype="bf16"))
    master = step.state["params/w"]
    assert master.dtype == np.float32
    moved = np.abs(master - W.astype(rlx.bf16.numpy).astype(np.float32)).max()
    assert 0 < moved < np.abs(W).max() * 2**-8
    assert step.params()["w"].dtype == rlx.bf16.numpy
    np.testing.assert_array_equal(step.params()["w"], master.astype(rlx.bf16.numpy))


def tiny_gradients() -> rlx.Graph:
    """A loss whose gradients are below the smallest f16."""
    g = rlx.Graph("tiny")
    x = g.input("x", [4], "f16")
    w = g.param("w", value=np.full(4, 0.5, np.float16))
    g.set_outputs((x * w * np.float16(2e-4) * np.float16(2e-4)).cast("f32").sum())
    return g


def test_a_loss_scale_keeps_small_gradients_of_f16() -> None:
    feeds = {"x": np.full(4, 0.5, np.float16)}
    steps = [
        rlx.compile_training(tiny_gradients(), SGD(lr=1.0), loss_scale=scale)
        for scale in (None, LossScale())
    ]
    for step in steps:
        step(feeds)
    without, scaled = (0.5 - s.state["params/w"] for s in steps)
    np.testing.assert_array_equal(without, 0)
    np.testing.assert_allclose(scaled, 0.5 * 4e-8, rtol=0.6)


def test_a_scale_that_overflows_is_halved_and_grows_again(make_step: Make) -> None:
    scale = LossScale(initial=2.0**18, interval=3)
    step = make_step(SGD(lr=0.01), "f16", loss_scale=scale)
    scales, updated = [], []
    for n in range(12):
        before = step.state["params/w"].copy()
        result = step(batch(n, dtype="f16"))
        updated.append(result.updated)
        scales.append(float(step.state["run/scale"]))
        assert np.array_equal(before, step.state["params/w"]) != result.updated
    first = updated.index(True)
    assert first >= 1 and scales[first - 1] == 2.0 ** (18 - first)
    assert scales[first + 2] == 2 * scales[first + 1]
    assert step.updates == sum(updated)


def test_overflow_in_one_of_several_batches_leaves_the_whole_update_out(make_step: Make) -> None:
    step = make_step(SGD(lr=0.01), "f16", loss_scale=LossScale(initial=2.0**18), accumulate=2)
    results = [step(batch(n, dtype="f16")).updated for n in range(16)]
    assert not any(results[::2]) and not results[1] and results[-1]
    assert np.isfinite(step.state["params/w"]).all()


# -- random keys ---------------------------------------------------------------------------


def noisy(seed: int) -> TrainStep:
    g = rlx.Graph("noisy")
    w, key = g.param("w", value=np.ones(32, np.float32)), g.input("key", [2], "u32")
    g.set_outputs(w.dropout(key, 0.5).sum() + g.input("x", []))
    return rlx.compile_training(g, SGD(lr=0.0), key="key", seed=seed)


def test_every_batch_has_a_key_of_its_own() -> None:
    one, same, other = noisy(0), noisy(0), noisy(1)
    losses = [[s({"x": 0.0}).loss for _ in range(6)] for s in (one, same, other)]
    assert losses[0] == losses[1] != losses[2]
    assert len(set(losses[0])) > 1


# -- nan -----------------------------------------------------------------------------------


def test_nan_names_the_op_its_line_and_the_batch_and_changes_nothing() -> None:
    g = rlx.Graph("log")
    x, w = g.input("x", [3]), g.param("w", value=np.ones(3, np.float32))
    logs = (x * w).log()
    g.set_outputs((logs * 2.0).mean())
    step = rlx.compile_training(g, SGD(lr=0.1))
    step({"x": np.ones(3, np.float32)})
    before = {n: a.copy() for n, a in step.state.items() if not n.startswith("grads/")}
    with pytest.raises(NonFiniteError) as found:
        step({"x": np.array([1, -1, 2], np.float32)})
    source = Path(__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "logs = (x * w).log()" in text)
    assert re.search(
        rf"test_step\.py:{line}: batch 1: the loss is nan: log is the first to give 1 of 3 elements"
        r" nan, of operands in \[-\S+, \S+\]", str(found.value)
    )  # fmt: skip
    for name, a in before.items():
        np.testing.assert_array_equal(step.state[name], a)
    assert step({"x": np.ones(3, np.float32)}).updated


def test_a_gradient_that_is_infinite_where_the_loss_is_not() -> None:
    g = rlx.Graph("root")
    w = g.param("w", value=np.zeros(2, np.float32))
    g.set_outputs((w * g.input("x", [2])).sqrt().sum())
    step = rlx.compile_training(g, SGD())
    with pytest.raises(
        NonFiniteError, match=r"test_step\.py:\d+: batch 0: a gradient is .*: \w+ is"
    ):
        step({"x": np.ones(2, np.float32)})


def test_inputs_that_are_nan_are_named(make_step: Make) -> None:
    step, given = make_step(), batch(0)
    given["x"][1, 1] = np.nan
    with pytest.raises(NonFiniteError, match="'x' was given with 1 of 48 elements nan"):
        step(given)


def test_a_scale_that_gets_too_small_is_an_error() -> None:
    g = rlx.Graph("root")
    w = g.param("w", value=np.zeros(2, np.float32))
    g.set_outputs((w * g.input("x", [2])).sqrt().sum())
    step = rlx.compile_training(g, SGD(), loss_scale=LossScale(initial=2.0, least=1.0))
    assert not step({"x": np.ones(2, np.float32)}).updated
    with pytest.raises(NonFiniteError, match="a gradient is"):
        step({"x": np.ones(2, np.float32)})


def test_what_only_compiled_code_overflows_is_said_to_be_so(make_step: Make) -> None:
    step = make_step()
    found = step._gradients.culprit(batch(0), step.state)
    assert "reference interpreter does not get" in found.message


def test_a_failure_among_accumulated_batches_goes_back_to_the_last_update(make_step: Make) -> None:
    step = make_step(SGD(lr=0.1), accumulate=3)
    for n in range(4):
        step(batch(n))
    bad = batch(4)
    bad["x"][0, 0] = np.inf
    bad["y"][0, 0] = np.nan
    with pytest.raises(NonFiniteError, match="batch 4"):
        step(bad)
    assert step.position == 3
    other = make_step(SGD(lr=0.1), accumulate=3)
    for n in range(3):
        other(batch(n))
    for n in range(3, 6):
        assert step(batch(n)).loss == other(batch(n)).loss
    np.testing.assert_array_equal(step.params()["w"], other.params()["w"])


def test_a_fault_among_accumulated_batches_goes_back_too() -> None:
    g = rlx.Graph("pick")
    table = g.param("table", value=np.ones(4, np.float32))
    g.set_outputs(table.gather(g.input("i", [2], "i64")).sum())
    step = rlx.compile_training(g, SGD(lr=0.5), accumulate=2)
    for rows in ([0, 1], [0, 1], [2, 3]):
        step({"i": np.array(rows)})
    with pytest.raises(rlx.errors.FaultError, match="index"):
        step({"i": np.array([0, 9])})
    assert (step.position, step.updates) == (2, 1)
    np.testing.assert_array_equal(step.params()["table"], [0.5, 0.5, 1, 1])
    for _ in range(2):
        step({"i": np.array([2, 2])})
    np.testing.assert_array_equal(step.params()["table"], [0.5, 0.5, 0, 1])


# -- refusals ------------------------------------------------------------------------------


def graph(outputs: Callable[[rlx.Graph], Any]) -> rlx.Graph:
    g = rlx.Graph("g")
    g.set_outputs(outputs(g))
    return g


ONES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("outputs", "settings", "message"),
    [
        (
            lambda g: g.param("w", value=ONES),
            {},
            "the first output is the loss, one float; found 2xf32",
        ),
        (
            lambda g: g.param("w", value=ONES).sum().cast("i32"),
            {},
            "the loss, one float; found i32",
        ),
        (lambda g: g.input("x", [2]).sum(), {}, "graph 'g' has no params that could be trained"),
        (lambda g: g.param("w", [2]).sum(), {}, "param 'w' has no value to start from"),
        (
            lambda g: g.param("w", value=ONES).sum(),
            {"wrt": ["v"]},
            "no input or param is called 'v'",
        ),
        (
            lambda g: (g.param("w", value=ONES) * g.input("x", [2])).sum(),
            {"wrt": ["x"]},
            "'x' is an input",
        ),
        (
            lambda g: g.param("i", value=[1, 2]).sum().cast("f32"),
            {"wrt": ["i"]},
            "param 'i' is 2xi64",
        ),
        (
            lambda g: g.param("w", value=ONES).sum(),
            {"params": {"v": ONES}},
            "no param is called 'v'",
        ),
        (lambda g: g.param("w", value=ONES).sum(), {"metrics": ["a"]}, "0 of them, found 1 names"),
        (
            lambda g: [g.param("w", value=ONES).sum(), g.constant(1.0), g.constant(2.0)],
            {"metrics": ["a", "a"]},
            "metrics has a name twice: 'a', 'a'",
        ),
        (
            lambda g: g.param("w", value=ONES).sum(),
            {"accumulate": 0},
            "accumulate is a number of batches",
        ),
        (
            lambda g: g.param("w", value=ONES).sum(),
            {"key": "k"},
            "key names an input of 2xu32 .* 'k' is none",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(outputs: Any, settings: Any, message: str) -> None:
    with pytest.raises(rlx.RlxError, match=message):
        rlx.compile_training(graph(outputs), SGD(), **settings)


def test_arguments_that_are_something_else_are_refused(make_step: Make) -> None:
    with pytest.raises(rlx.RlxError, match="takes a Graph, found an int"):
        rlx.compile_training(3, SGD())  # type: ignore[arg-type]
    with pytest.raises(rlx.RlxError, match=r"an optimiser of rlx.optim is expected, found 'adam'"):
        rlx.compile_training(regression(), "adam", metrics=["worst"])  # type: ignore[arg-type]
    with pytest.raises(rlx.RlxError, match="a loss scale has 0 < least <= initial"):
        LossScale(growth=0.5)
    step = make_step()
    with pytest.raises(rlx.RlxError, match="no input is called 'z'; there "):
        step({**batch(0), "z": 1})
    with pytest.raises(rlx.RlxError, match="nothing was given for the input 'y'"):
        step({"x": batch(0)["x"]})
    with pytest.raises(rlx.RlxError, match="there are no averages"):
        step.params(averaged=True)


class Press:
    """A device whose runs meet Ctrl-C, at which they end as the runtime does: a run in place first
    comes to its end, or is cut."""

    def __init__(self, run: Any) -> None:
        self.run, self.cut, self.armed = run, False, False

    def run_in_place(self, feeds: Any, state: Any) -> Any:
        if not self.armed:
            return self.run.run_in_place(feeds, state)
        self.armed = False
        if self.cut:
            for a in state.values():
                a[...] = np.nan if a.dtype.kind == "f" else 0
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
        return self.run.run_in_place(feeds, state)


def pressed(half: Any) -> Press:
    """A half of a step that runs on such a device from now on."""
    half.compiled = Press(half.compiled)
    return half.compiled


@pytest.mark.parametrize("half", ["_gradients", "_update"])
def test_ctrl_c_leaves_the_state_between_two_updates(make_step: Make, half: str) -> None:
    """What was accumulated since the last update goes, or the batch is finished."""
    straight, step = make_step(accumulate=2), make_step(accumulate=2)
    press = pressed(getattr(step, half))
    losses = [straight(batch(n)).loss for n in range(6)]
    for n in range(3):
        step(batch(n))
    press.armed = True
    with pytest.raises(KeyboardInterrupt):
        step(batch(3))
    start = step.position
    assert start == (2 if half == "_gradients" else 4)
    assert [step(batch(n)).loss for n in range(start, 6)] == losses[start:]
    assert all((straight.state[n] == a).all() for n, a in step.state.items())


def test_gradients_that_were_cut_are_made_anew(make_step: Make) -> None:
    straight, step = make_step(accumulate=2), make_step(accumulate=2)
    press = pressed(step._gradients)
    losses = [straight(batch(n)).loss for n in range(4)]
    for n in range(3):
        step(batch(n))
    press.cut = press.armed = True
    with pytest.raises(KeyboardInterrupt):
        step(batch(3))
    assert step.position == 2 and [step(batch(n)).loss for n in (2, 3)] == losses[2:]


def test_an_update_that_was_cut_is_not_gone_on_from(make_step: Make, tmp_path: Path) -> None:
    step = make_step()
    press = pressed(step._update)
    step(batch(0))
    step.save(tmp_path / "first")
    press.cut = press.armed = True
    with pytest.raises(KeyboardInterrupt):
        step(batch(1))
    told = "ended by KeyboardInterrupt, so that a part of the params.* load a checkpoint"
    for use in (lambda: step(batch(1)), step.params):
        with pytest.raises(GraphError, match=told):
            use()
    with pytest.raises(CheckpointError, match=told):
        step.save(tmp_path / "second")
    step.load(tmp_path / "first")
    other = make_step()
    assert [other(batch(n)).loss for n in (0, 1)][1] == step(batch(1)).loss


@pytest.mark.parametrize("partly_run", [False, True])
@pytest.mark.parametrize("half", ["_gradients", "_update"])
def test_a_run_without_memory_leaves_the_state_or_counts_as_cut(
    make_step: Make, monkeypatch: pytest.MonkeyPatch, half: str, partly_run: bool
) -> None:
    straight, step = make_step(accumulate=2), make_step(accumulate=2)
    losses = [straight(batch(n)).loss for n in range(4)]
    for n in range(3):
        step(batch(n))

    def fails(feeds: Any, state: Any) -> None:
        error = OutOfMemoryError("found no memory")
        error.partly_run = partly_run
        raise error

    with monkeypatch.context() as m, pytest.raises(OutOfMemoryError):
        m.setattr(getattr(step, half).compiled, "run_in_place", fails)
        step(batch(3))
    if half == "_update" and partly_run:
        with pytest.raises(GraphError, match="ended by OutOfMemoryError"):
            step(batch(3))
    else:
        start = step.position
        assert [step(batch(n)).loss for n in range(start, 4)] == losses[start:]
        assert all((straight.state[n] == a).all() for n, a in step.state.items())


class Late:
    """Whether gradients are finite, at which the handler of a signal raises."""

    def __bool__(self) -> bool:
        raise TimeoutError


@pytest.mark.parametrize("before", [2, 3])
def test_a_handler_that_raises_between_the_halves_leaves_no_state_between(
    make_step: Make, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Where an update is due, the state counts as cut; else what was accumulated goes."""
    straight, step = make_step(accumulate=2), make_step(accumulate=2)
    losses = [straight(batch(n)).loss for n in range(4)]
    for n in range(before):
        step(batch(n))
    run = step._run_gradients
    with monkeypatch.context() as m, pytest.raises(TimeoutError):
        m.setattr(step, "_run_gradients", lambda *a: [*run(*a)[:-1], Late()])
        step(batch(before))
    if before == 3:
        with pytest.raises(GraphError, match="ended by TimeoutError"):
            step(batch(3))
    else:
        assert [step(batch(n)).loss for n in range(2, 4)] == losses[2:]
        assert all((straight.state[n] == a).all() for n, a in step.state.items())


def test_a_handler_that_raises_after_the_update_leaves_it_refused(
    make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = make_step()

    def late(*_: Any) -> None:
        raise TimeoutError

    with monkeypatch.context() as m, pytest.raises(TimeoutError):
        m.setattr(step, "_rescale", late)
        step(batch(0))
    with pytest.raises(GraphError, match="ended by TimeoutError"):
        step(batch(0))
