"""Optimisers and schedules against the numbers of PyTorch, Lion against its paper's algorithm."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.optim import (
    SGD,
    Adafactor,
    Adam,
    AdamW,
    At,
    ClipNorm,
    ClipValue,
    Constant,
    Lamb,
    Lion,
    Mars,
    Muon,
    NAdamW,
    Optimizer,
    RAdam,
    Slots,
    Soap,
    Sophia,
    StepDecay,
    WarmupCosine,
    WarmupLinear,
    all_finite,
    ema,
    global_norm,
)  # fmt: skip

FIXTURES = json.loads((Path(__file__).parent / "fixtures" / "torch.json").read_text())

Arrays = dict[str, np.ndarray[Any, Any]]


def arrays(given: Mapping[str, Any], dtype: str = "float32") -> Arrays:
    return {name: np.asarray(a, dtype) for name, a in given.items()}


PARAMS = arrays(FIXTURES["params"])
GRADS = [arrays(g) for g in FIXTURES["grads"]]

CASES: dict[str, Optimizer] = {
    "sgd": SGD(lr=0.1),
    "sgd-decay": SGD(lr=0.1, weight_decay=0.02),
    "sgd-momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.02),
    "sgd-nesterov": SGD(lr=0.1, momentum=0.9, nesterov=True),
    "adam": Adam(lr=1e-2, weight_decay=0.1),
    "adamw": AdamW(lr=1e-2, weight_decay=0.1, beta1=0.8, beta2=0.99, eps=1e-6),
    "adafactor": Adafactor(),
    "adafactor-decay": Adafactor(
        lr=0.5, weight_decay=0.1, clip=1.5, eps1=1e-4, eps2=1e-2, beta2_decay=-0.6
    ),
    "muon": Muon(lr=0.02),
    "muon-plain": Muon(lr=0.02, nesterov=False, scale="match_rms_adamw"),
    "lion": Lion(lr=1e-2, weight_decay=0.1),
    "nadamw": NAdamW(lr=1e-2, weight_decay=0.1, beta1=0.8, beta2=0.99),
    "radam": RAdam(lr=1e-2, weight_decay=0.1, beta2=0.9),
    "radam-decoupled": RAdam(lr=1e-2, weight_decay=0.1, beta2=0.9, decoupled=True),
    "lamb": Lamb(lr=1e-2, weight_decay=0.1),
    "mars": Mars(lr=1e-2, weight_decay=0.1),
    "sophia": Sophia(lr=1e-2, weight_decay=0.1, batch=16, every=2),
    "soap": Soap(lr=1e-2, weight_decay=0.1, beta2=0.9, shampoo_beta=0.8, every=2),
}


def update_graph(optimizer: Optimizer, params: Arrays) -> tuple[rlx.Graph, list[str]]:
    """An update as a graph, and the names of its outputs: params, then the state."""
    g = rlx.Graph("update")
    values = {n: g.input(n, a.shape, a.dtype) for n, a in params.items()}
    grads = {n: g.input(f"grad {n}", a.shape, a.dtype) for n, a in params.items()}
    types = optimizer.state({n: v.type for n, v in values.items()})
    state = {n: g.input(f"state {n}", t.shape, t.dtype) for n, t in types.items()}
    new_params, new_state = optimizer.update(values, grads, state)
    g.set_outputs([*new_params.values(), *new_state.values()])
    return g, [*new_params, *(f"state {n}" for n in new_state)]


Run = Callable[[Mapping[str, Any]], list[np.ndarray[Any, Any]]]


def trained(
    optimizer: Optimizer, params: Arrays, grads: list[Arrays], device: str = "interpret"
) -> list[Arrays]:
    """The params after every update."""
    g, names = update_graph(optimizer, params)
    f = rlx.Session(device).compile(g)
    feeds: Arrays = {
        str(v.name): np.zeros(v.type.static_shape, v.dtype.numpy) for v in g.inputs
    } | params
    found: list[Arrays] = []
    for given in grads:
        feeds |= {f"grad {n}": a for n, a in given.items() if n in params}
        feeds |= dict(zip(names, f.run(feeds), strict=True))
        found.append({n: feeds[n] for n in params})
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_updates_are_those_of_the_reference(case: str, device: str) -> None:
    expected = FIXTURES["updates"][case]
    params, grads = {n: PARAMS[n] for n in expected[0] if n != "s"}, GRADS
    if "s" in expected[0]:
        first, *rest = arrays(dict(enumerate(FIXTURES["square"]))).values()  # type: ignore[arg-type]
        params, grads = {"s": first}, [{"s": g} for g in rest]
    for step, found in enumerate(trained(CASES[case], params, grads, device)):
        for name, a in found.items():
            want = np.asarray(expected[step][name])
            np.testing.assert_allclose(a, want, rtol=2e-6, atol=2e-6, err_msg=f"{step} {name}")


def test_muon_makes_singular_values_equal_and_leaves_others_to_adamw() -> None:
    muon = Muon(lr=1.0, weight_decay=0.0, momentum=0.0, exclude=("u",), others=AdamW(lr=0.1))
    first = trained(muon, PARAMS, GRADS[:1])[0]
    values = np.linalg.svd(PARAMS["w"] - first["w"], compute_uv=False) / np.sqrt(5 / 3)
    assert values.min() > 0.6 and values.max() < 1.3
    adamw = trained(AdamW(lr=0.1), PARAMS, GRADS[:1])[0]
    for name in ("u", "b", "t"):
        np.testing.assert_array_equal(first[name], adamw[name])


def test_soap_is_for_matrices_and_leaves_others_to_adamw() -> None:
    soap = Soap(lr=1.0, exclude=("u",), others=AdamW(lr=0.1))
    found, adamw = (trained(o, PARAMS, GRADS[:2]) for o in (soap, AdamW(lr=0.1)))
    np.testing.assert_array_equal(found[0]["w"], PARAMS["w"])
    assert (found[1]["w"] != PARAMS["w"]).any()
    for name in ("u", "b", "t"):
        np.testing.assert_array_equal(found[1][name], adamw[1][name])


def test_lamb_steps_in_proportion_to_the_param_and_plainly_where_it_is_0() -> None:
    lamb = Lamb(lr=0.1, weight_decay=0.0)
    for scale in (1.0, 50.0):
        params = {"w": scale * PARAMS["w"]}
        step = trained(lamb, params, GRADS[:1])[0]["w"] - params["w"]
        assert np.linalg.norm(step) == pytest.approx(0.1 * np.linalg.norm(params["w"]), rel=1e-5)
    zero = {"b": np.zeros(4, np.float32)}
    first = trained(lamb, zero, GRADS[:1])[0]["b"]
    np.testing.assert_allclose(first, -0.1 * np.sign(GRADS[0]["b"]), rtol=1e-4)


@pytest.mark.parametrize(
    ("schedule", "case"),
    [
        (StepDecay(0.1, 3, 0.5), "step"),
        (WarmupCosine(0.1, 10, end=0.01), "cosine"),
        (WarmupLinear(0.1, 10, end=0.01), "linear"),
    ],
)
def test_schedules_are_those_of_pytorch(schedule: Any, case: str) -> None:
    expected = FIXTURES["rates"][case]
    # CosineAnnealingLR goes up again behind its end; ours stays.
    n = 11 if case == "cosine" else 12
    np.testing.assert_allclose(rates(schedule, n), expected[:n], rtol=1e-6)


def rates(schedule: Any, n: int) -> list[float]:
    g = rlx.Graph("rate")
    g.set_outputs(schedule(g.input("done", [], "f32")))
    f = rlx.Session("cpu").compile(g)
    return [float(f.run({"done": np.float32(i)})[0]) for i in range(n)]


def test_a_warm_up_rises_to_the_rate_and_the_end_stays() -> None:
    assert rates(WarmupLinear(1.0, 8, warmup=4, end=0.2), 10) == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]
    )
    assert rates(WarmupCosine(1.0, 6, warmup=2), 8) == pytest.approx(
        [0.5, 1.0, 1.0, (1 + np.cos(np.pi / 4)) / 2, 0.5, (1 - np.cos(np.pi / 4)) / 2, 0, 0],
        abs=1e-7,
    )
    assert rates(Constant(0.3), 2) == pytest.approx([0.3, 0.3])


def test_an_optimiser_follows_its_schedule() -> None:
    sgd = SGD(lr=StepDecay(0.1, 1, 0.5))
    params, grads = {"b": PARAMS["b"]}, GRADS[:3]
    want = params["b"] - sum(0.1 * 0.5**i * g["b"] for i, g in enumerate(grads))
    np.testing.assert_allclose(trained(sgd, params, grads)[-1]["b"], want, rtol=1e-5)


def test_params_of_f64_are_updated_in_f64() -> None:
    params = arrays(FIXTURES["params"], "float64")
    grads = [arrays(g, "float64") for g in FIXTURES["grads"]]
    found = trained(AdamW(lr=1e-2, weight_decay=0.1), params, grads)[-1]
    p, m, v = params["b"], 0.0, 0.0
    for t, g in enumerate((g["b"] for g in grads), 1):
        p = p * (1 - 1e-2 * 0.1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - 1e-2 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(found["b"], p, rtol=1e-12)


class SignDescent(Optimizer):
    """An optimiser as a user writes one: it keeps how often each element went up."""

    def slots(self, name: str, param: rlx.TensorType) -> dict[str, rlx.TensorType]:
        return {"ups": param}

    def apply(
        self, name: str, p: rlx.Value, g: rlx.Value, slots: Slots, at: At
    ) -> tuple[rlx.Value, Slots]:
        return p - g.sign() * at.lr, {"ups": slots["ups"] + (g < 0.0).cast(p.dtype)}


def test_an_optimiser_of_ones_own() -> None:
    found = trained(SignDescent(lr=0.25), {"b": PARAMS["b"]}, GRADS[:4])[-1]["b"]
    want = PARAMS["b"] - 0.25 * sum(np.sign(g["b"]) for g in GRADS[:4])
    np.testing.assert_allclose(found, want, rtol=1e-6)
    with pytest.raises(rlx.RlxError, match="a learning rate is a number from 0 on"):
        SignDescent(lr=-1)


# -- gradients -----------------------------------------------------------------------------


def on_grads(function: Any, grads: Arrays) -> Arrays:
    g = rlx.Graph("grads")
    found = function({n: g.input(n, a.shape, a.dtype) for n, a in grads.items()})
    named = found if isinstance(found, dict) else {"out": found}
    g.set_outputs(list(named.values()))
    return dict(zip(named, rlx.Session("cpu").compile(g).run(grads), strict=True))


@pytest.mark.parametrize("limit", FIXTURES["clipped"])
def test_clipping_by_norm_is_that_of_pytorch(limit: str) -> None:
    for name, a in on_grads(ClipNorm(float(limit)), GRADS[0]).items():
        np.testing.assert_allclose(a, FIXTURES["clipped"][limit][name], rtol=2e-6)


def test_clipping_by_value() -> None:
    for name, a in on_grads(ClipValue(0.5), GRADS[0]).items():
        np.testing.assert_array_equal(a, np.clip(GRADS[0][name], -0.5, 0.5))


def test_the_global_norm_of_halves_does_not_overflow() -> None:
    half = {"a": np.full(4, 6e4, np.float16), "b": np.array([3.0], np.float64)}
    assert on_grads(global_norm, half)["out"] == pytest.approx(np.hypot(2 * 59999, 3), rel=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found(bad: float) -> None:
    grads = {"a": np.full((2, 3), 3e38, np.float32), "b": np.ones(5, np.float16)}
    assert on_grads(all_finite, grads)["out"]
    grads["b"][3] = bad
    assert not on_grads(all_finite, grads)["out"]


def test_ema() -> None:
    g = rlx.Graph("ema")
    a, p = g.input("a", [3]), g.input("p", [3])
    g.set_outputs(ema({"w": a}, {"w": p}, 0.9)["w"])
    feeds = {"a": np.arange(3, dtype=np.float32), "p": np.full(3, 10, np.float32)}
    np.testing.assert_allclose(rlx.interpret(g, feeds)[0], 0.9 * feeds["a"] + 1, rtol=1e-6)


# -- refusals ------------------------------------------------------------------------------

X = rlx.TensorType.of([2], "f32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(lr=-1), "a learning rate is a number from 0 on, or a schedule; found -1"),
        (lambda: Adam(lr=float("nan")), "a learning rate is .* found nan"),
        (lambda: SGD(momentum=1.0), "momentum is a number from 0 to 1, 1 excluded; found 1.0"),
        (lambda: SGD(nesterov=True), "nesterov needs a momentum above 0"),
        (lambda: Adam(beta2=2), "beta2 is a number from 0 to 1"),
        (lambda: AdamW(weight_decay=-1), "weight_decay is a number from 0 on, found -1"),
        (lambda: Adafactor(clip=0), "clip is a number above 0, found 0"),
        (lambda: Adafactor(beta2_decay=1), "beta2_decay is a number from -1 to 0, found 1"),
        (lambda: Muon(steps=0), "steps is a number from 1 on, found 0"),
        (lambda: Muon(scale="big"), "scale is 'original' or 'match_rms_adamw', found 'big'"),
        (lambda: Muon(others=3), "others is an optimiser, found 3"),
        (lambda: NAdamW(momentum_decay=-1), "momentum_decay is a number from 0 on, found -1"),
        (lambda: Mars(gamma=-1), "gamma is a number from 0 on, found -1"),
        (lambda: Sophia(batch=0), "batch is a number above 0, found 0"),
        (lambda: Sophia(every=0), "every is a number of updates from 1 on, found 0"),
        (lambda: Soap(every=True), "every is a number of updates from 1 on, found True"),
        (lambda: Soap(others=3), "others is an optimiser, found 3"),
        (lambda: WarmupLinear(0.1, 3, warmup=3), "total is a number of updates from 4 on, found 3"),
        (lambda: StepDecay(0.1, 0), "every is a number of updates from 1 on, found 0"),
        (lambda: StepDecay(0.1, 1, -1), "factor is a number above 0 and up to 1, found -1"),
        (lambda: ClipNorm(0), "limit is a number above 0, found 0"),
        (lambda: global_norm({}), "a norm of no gradients"),
        (lambda: all_finite({}), "nothing was given that could be finite"),
        (lambda: SGD().state({"i": rlx.TensorType.of([2], "i32")}), "param 'i' is i32, and only"),
    ],
)  # fmt: skip
def test_settings_without_a_meaning_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(rlx.RlxError, match=message) as found:
        make()
    assert "test_optimizers.py" in str(found.value)


def test_gradients_and_state_that_do_not_fit_are_refused() -> None:
    g = rlx.Graph("update")
    p, half, other = g.input("p", [2]), g.input("h", [2], "f16"), g.input("o", [3])
    state = {"count": g.input("count", [], "i64")}
    for grads, message in (
        ({}, "there is no gradient 'w'"),
        ({"w": half}, "gradient 'w' is f16, expected f32; cast it"),
        ({"w": other}, "gradient 'w' is 3xf32, expected 2xf32"),
        ({"w": p, "v": p}, "the gradient 'v' belongs to no param"),
    ):
        with pytest.raises(rlx.RlxError, match=message):
            SGD().update({"w": p}, grads, state)
    with pytest.raises(rlx.RlxError, match="there is no state 'momentum/w'"):
        SGD(momentum=0.9).update({"w": p}, {"w": p}, state)
    with pytest.raises(rlx.RlxError, match=r"the schedule gives 2xf32, expected a scalar"):
        SGD(lr=lambda done: done + p).update({"w": p}, {"w": p}, state)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "rule", [SGD, AdamW, RAdam, Lion, Sophia, Adafactor], ids=lambda r: r.__name__
)
def test_halves_count_as_far_as_wide_floats_do(rule: Callable[..., Optimizer], dtype: str) -> None:
    """f16 has no 70000, and bf16 takes 999 for 1000."""
    for schedule in (StepDecay(0.125, 1000, 0.5), WarmupCosine(0.125, 100000, 500)):
        for count in (999, 1030, 70000):
            found, wide = (_moved(rule(lr=schedule), dt, count) for dt in (dtype, "f32"))
            np.testing.assert_allclose(found, wide, atol=0.03 * np.abs(wide).max() + 2**-7)


def _moved(rule: Optimizer, dtype: str, count: int) -> Any:
    """What an update after ``count`` others adds to a param of eighths."""
    g, rng = rlx.Graph(), np.random.default_rng(0)
    param, grad = g.input("p", [4, 4], dtype), g.input("g", [4, 4], dtype)
    types = rule.state({"w": param.type})
    state = {n: g.input(f"s{i}", t.shape, t.dtype) for i, (n, t) in enumerate(types.items())}
    params, _ = rule.update({"w": param}, {"w": grad}, state)
    g.set_outputs(params["w"].cast("f32"))
    feeds = {
        str(v.name): (rng.integers(1, 9, v.type.static_shape) / 8).astype(v.dtype.numpy)
        for v in g.inputs
    }
    feeds[str(state["count"].name)] = np.asarray(count)
    return rlx.interpret(g, feeds)[0] - feeds["p"].astype(np.float32)
