"""simplify: broadcasts made explicit, constants folded, movement merged; the values as before."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rlx
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.lowering.base import Compilation
from rlx.lowering.pipeline import named, run_passes
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
