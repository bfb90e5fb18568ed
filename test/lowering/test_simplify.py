"""simplify: broadcasts made explicit, constants folded, movement merged; the values as before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import rlx
from rlx._mlir import ir
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.lowering.compilation import Compilation
from rlx.lowering.passes import simplify
from rlx.lowering.pipeline import named, run_passes
from rlx.lowering.rules import Rule
from rlx.targets import find_target
from rlx.types import DTYPES
from support.compiled import agrees


def ops(g: rlx.Graph) -> list[str]:
    """The ops of main after simplify."""
    context = make_context()
    with context:
        module = to_mlir(g, context)
        passes = [named("hir-to-mir"), named("simplify")]
        text = str(run_passes(module, passes, Compilation(find_target("cpu"))))
    return [name.split(".")[1] for name in re.findall(r'"(mir\.\w+)"', text)]


def test_broadcasts_become_ops() -> None:
    g = rlx.Graph("broadcast")
    g.set_outputs(
        [g.input("x", [2, 3]) + g.input("y", [3]), g.input("c", [2, 1], "bool").where(1.0, 2.0)]
    )
    assert ops(g).count("expand") == 1
    agrees(g)


def test_constants_are_folded() -> None:
    g = rlx.Graph("constants")
    c = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = (c.transpose((1, 0)) @ c).exp().sum(axes=0) + g.constant(1.0).expand((3,)) * 2.0
    g.set_outputs([g.input("x", [3]) + y])
    assert sorted(set(ops(g))) == ["add", "constant"]
    agrees(g)


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("given", [(), ("gamma",), ("beta",), ("gamma", "beta")])
def test_folding_knows_which_optional_operands_are_there(norm: str, given: tuple[str, ...]) -> None:
    g = rlx.Graph("optional")
    c = g.constant(np.arange(4, dtype=np.float32))
    y = getattr(c, norm)(axis=0, **dict.fromkeys(given, c + 2.0))
    g.set_outputs([g.input("x", [4]) + y])
    assert norm not in ops(g)
    agrees(g)


def test_a_fault_is_not_folded_away() -> None:
    g = rlx.Graph("fault")
    c = g.constant(np.arange(4, dtype=np.float32))
    g.set_outputs([g.input("x", [1]) + c.gather(g.constant(np.array([9])))])
    f = rlx.Session().compile(g)
    with pytest.raises(rlx.errors.FaultError, match="axis 0 of 4"):
        f.run({"x": np.zeros(1, np.float32)})


def test_large_constants_are_not_folded_but_splats_are() -> None:
    g = rlx.Graph("large")
    zero = g.constant(0.0).expand((1000, 1000))
    g.set_outputs([g.input("x", [1000, 1000]) + (zero + 1.0).exp().reshape(1000, 1000)])
    assert sorted(set(ops(g))) == ["add", "constant"]
    h = rlx.Graph("iota")
    h.set_outputs([h.input("x", [300, 300]) + h.iota([300, 300], 0, "f32").exp()])
    assert "exp" in ops(h)


def test_an_op_whose_results_one_dead_op_reads_goes_once() -> None:
    g = rlx.Graph("top")
    x = g.input("x", [4, 8], "i64")
    values, places = x.topk(2)
    g.set_outputs([(values + places) * 0, x.neg()])
    assert "topk" not in ops(g)
    agrees(g)


def test_movement_that_moves_nothing_goes_and_two_become_one() -> None:
    g = rlx.Graph("movement")
    x = g.input("x", [2, 3, 4])
    back = x.transpose((2, 0, 1)).transpose((1, 2, 0))
    y = x.transpose((2, 0, 1)).transpose((1, 0, 2))
    flat = x.reshape(6, 4).reshape(24).reshape(4, 6)
    g.set_outputs([back.exp(), y.exp(), flat.exp()])
    assert ops(g).count("transpose") == 1 and ops(g).count("reshape") == 1
    agrees(g)


@pytest.mark.parametrize("dtype", DTYPES)
def test_literals_of_every_type_and_form_are_kept(dtype: str) -> None:
    dt = DTYPES[dtype].numpy
    g = rlx.Graph("literals")
    extreme = np.iinfo(dt).max if DTYPES[dtype].is_int else 1
    many = [np.ones(s, dt) for s in ((), (1,), (3,), (2, 3), (0,), (2, 0))]
    many += [np.full((), extreme, dt), np.full((3,), extreme, dt), np.array([0, 1, 1]).astype(dt)]
    if DTYPES[dtype].is_float:
        many += [np.array(v).astype(dt) for v in (-0.0, np.inf, -np.inf, np.nan, [np.nan, -0.0])]
    values = [g.constant(a) for a in many]
    used = [v.eq(v.expand(v.shape)) if v.rank else v.reshape(1).eq(v) for v in values]
    g.set_outputs([*values, *used])
    for dispatch in ("native", "common"):
        found = rlx.Session().compile(g, dispatch=dispatch).run()
        for a, e in zip(found, many, strict=False):
            assert (a.dtype, a.shape, a.tobytes()) == (e.dtype, e.shape, e.tobytes())
    agrees(g)


def simplified(text: str) -> str:
    """A function after simplify."""
    context = make_context()
    with context:
        module = ir.Module.parse(text, context)
        return str(run_passes(module, [named("simplify")], Compilation(find_target("cpu"))))


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts rules, by their texts, in the place of those that there are."""

    def put(*texts: str) -> None:
        monkeypatch.setattr(simplify, "RULES", tuple(Rule(t, t) for t in texts))
        forget()

    def forget() -> None:
        for found in (simplify._rules_for, simplify._reach, simplify._counted):
            found.cache_clear()

    yield put
    monkeypatch.undo()
    forget()


CHAIN = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = "mir.{0}"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "mir.{1}"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "mir.{2}"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "mir.add"(%2, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}}"""


@pytest.mark.parametrize(
    ("texts", "named_in"),
    [
        (["add(x, y) --> add(y, x)"], r"add\(x, y\) --> add\(y, x\)"),
        (["neg(x) --> sin(x)", "sin(x) --> neg(x)"], r"sin\(x\) --> neg\(x\), neg\(x\) --> sin"),
        (["exp(x) --> exp(neg(neg(x)))"], r"exp\(x\) --> exp\(neg\(neg\(x\)\)\)"),
    ],
)
def test_rules_that_loop_are_an_error_that_names_them(
    rules: Callable[..., None], texts: list[str], named_in: str
) -> None:
    rules(*texts)
    with pytest.raises(rlx.errors.PassError, match="does not come to an end") as e:
        simplified(CHAIN.format("neg", "exp", "neg"))
    assert re.search(named_in, str(e.value))


def test_a_pattern_of_three_ops_matches_what_a_rewrite_below_it_made(
    rules: Callable[..., None],
) -> None:
    rules("cos(neg(sin(x))) --> x", "exp(x) --> sin(x)")
    found = simplified(CHAIN.format("exp", "neg", "cos"))
    assert re.findall(r"mir\.\w+", found) == ["mir.add"]


def test_a_guard_of_uses_holds_once_the_others_are_gone(rules: Callable[..., None]) -> None:
    """The product's other reader is dead after its rewrite, which comes later."""
    text = """func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "mir.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "mir.neg"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "mir.sub"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}"""
    rules("neg(exp(x)) --> sin(x) where uses(x) == 1")
    assert '"mir.sin"' in simplified(text)
    rules("neg(x) --> sin(x) where uses(x) == 1")
    assert '"mir.sin"' not in simplified(text)
    rules("neg(x) --> sin(x) where uses(x) == 1", "sub(x, x) --> 0")
    assert '"mir.sin"' in simplified(text)


def test_operands_of_an_op_that_commutes_match_in_either_order(
    rules: Callable[..., None],
) -> None:
    """Also where the first order found for an inner op is not the one that fits the outer one."""
    text = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "mir.add"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "mir.sub"(%0, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "mir.sub"(%1, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}"""
    rules("sub(add(x, y), x) --> y")
    found = simplified(text)
    assert found.count("mir.sub") == 1 and re.search(r'"mir.sub"\(%arg0, %0\)', found)
