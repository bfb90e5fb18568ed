"""Artifacts for processors that are not here: every op through ``rlx.h`` under QEMU, against the
interpreter. What QEMU emulates is instructions; of a real machine's caches and speed it says
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from rlx.ops.matmul.quantized import matmul_integer
from rlx.precision import check_precision, types_of
from rlx.precision.rewrite import with_precision
from support import emulated
from support.conformance import ELSEWHERE, SETS, conforms, need
from support.emulated import EMULATED
from support.samples import op_classes


@pytest.fixture(params=EMULATED)
def target(request: pytest.FixtureRequest) -> str:
    """A target that runs here."""
    need(request.param)
    return request.param


def test_every_op_agrees_with_the_interpreter(target: str) -> None:
    found = list(conforms(target, SETS["turning"](target), wholly=False))
    wrong = [str(f) for f in found if not f.good]
    assert not wrong, "\n".join(wrong)
    assert all(f.verdict == "agrees" or f.dtype == "f64" for f in found)


def test_every_op_has_a_case_on_one_of_them() -> None:
    """Processors that are emulated, and engines of WebAssembly: the kernels are made alike."""
    taken = {case.op.name for name in ELSEWHERE for case in SETS["turning"](name)}
    assert taken == {op.name for op in op_classes()}


def _mlp() -> tuple[rlx.Graph, dict[str, Any]]:
    g, rng = rlx.Graph("mlp"), np.random.default_rng(0)
    x = g.input("x", [3, 64])
    h = (x @ g.param("w", [64, 33]) + g.param("b", [33])).gelu()
    g.set_outputs(g.softmax(h, axis=-1))
    given = {
        "x": rng.standard_normal((3, 64), np.float32),
        "w": rng.standard_normal((64, 33), np.float32),
        "b": rng.standard_normal(33, np.float32),
    }
    return g, given


def test_an_artifact_carries_its_params(target: str) -> None:
    """The prologue, which packs weights, runs on the other machine too."""
    g, given = _mlp()
    params = {name: given[name] for name in "wb"}
    (found,) = emulated.run_graph(g, target, given, params=params)
    np.testing.assert_allclose(found, interpret(g, given)[0], rtol=1e-5, atol=1e-7)


ARM = ("cpu:aarch64", "cpu:aarch64-sve256")


@pytest.mark.parametrize("extra", ["dotprod", "i8mm", "dotprod+i8mm"])
@pytest.mark.parametrize("arm", ARM)
def test_products_of_bytes_use_the_instructions_for_them(arm: str, extra: str) -> None:
    """Whole numbers of all kinds and ends, and packed weights of 4, 6 and 8 bits."""
    need(arm)
    rng = np.random.default_rng(0)
    g, outs, feeds, params = rlx.Graph("products"), list[Any](), dict[str, Any](), dict[str, Any]()
    for m, k, n in ((1, 32, 16), (9, 100, 33)):  # an odd row, and an odd group
        for a in ("i8", "u8"):
            for b in ("i8", "u8"):
                name = f"{a}{b}{m}"
                x, w = g.input(f"x{name}", [m, k], a), g.param(f"w{name}", [k, n], b)
                feeds[f"x{name}"], params[f"w{name}"] = _bytes(rng, x), _bytes(rng, w)
                outs.append(matmul_integer(x, w))
    for a, b in (("u8", "i8"), ("i8", "i8"), ("i8", "u8")):
        name = f"c{a}{b}"
        x, w = g.input(f"x{name}", [1, 5, 6, 7], a), g.param(f"w{name}", [9, 5, 3, 3], b)
        feeds[f"x{name}"], params[f"w{name}"] = _bytes(rng, x), _bytes(rng, w)
        outs.append(g.conv_integer(x, w, padding=1))
    for scheme in ("q4_0", "q6_k", "q8_0"):
        packed = rlx.quant.quantize(rng.standard_normal((33, 256)).astype(np.float32), scheme)
        x, w = g.input(f"x{scheme}", [3, 256]), g.param(f"w{scheme}", packed.shape, "u8")
        feeds[f"x{scheme}"] = rng.standard_normal((3, 256)).astype(np.float32)
        params[f"w{scheme}"] = packed
        outs.append(x.dequant_matmul(w, scheme=scheme))
    g.set_outputs(outs)
    artifact = rlx.compile_artifact(g, f"{arm}+{extra}", params=params, precision="q8")
    found = emulated.run(artifact, arm, feeds)
    seen, words = _words_of(artifact), WORDS[arm]
    assert (words["sdot"] in seen) == ("dotprod" in extra)
    assert (words["usmmla"] in seen) == ("i8mm" in extra)
    assert ({words["smmla"], words["ummla"]} <= seen) == (extra == "dotprod+i8mm")
    rounded, _ = with_precision(g, types_of(check_precision("q8"), frozenset()))
    for a, b in zip(found, interpret(rounded, feeds, params), strict=True):
        if a.dtype.kind == "i":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
    with pytest.raises(AssertionError, match=extra.partition("+")[0]):
        emulated.run(artifact, "cpu:aarch64", feeds, cpu="cortex-a53")


@pytest.mark.parametrize("arm", ARM)
def test_products_of_bf16_use_the_instructions_for_them(arm: str) -> None:
    """Tiles of all sizes, a K that is no whole pairs or has one too many, and an epilogue; and
    attention, of an odd number of keys."""
    need(arm)
    rng = np.random.default_rng(0)
    g, outs, feeds, params = rlx.Graph("pairs"), list[Any](), dict[str, Any](), dict[str, Any]()
    for m, k, n in ((1, 32, 16), (11, 98, 33), (3, 7, 5)):
        x, w = g.input(f"x{m}", [m, k], "bf16"), g.param(f"w{m}", [k, n], "bf16")
        feeds[f"x{m}"] = rng.standard_normal((m, k)).astype(x.dtype.numpy)
        params[f"w{m}"] = rng.standard_normal((k, n)).astype(x.dtype.numpy)
        outs.append((x @ w).relu())
    q, keys = g.input("q", [1, 2, 33, 16], "bf16"), g.input("keys", [1, 2, 33, 16], "bf16")
    for v in (q, keys):
        feeds[str(v.name)] = rng.standard_normal(v.type.static_shape).astype(v.dtype.numpy)
    outs.append(g.attention(q, keys, keys, layout="bhsd", mask_kind="causal"))
    g.set_outputs(outs)
    artifact = rlx.compile_artifact(g, f"{arm}+bf16", params=params)
    found = emulated.run(artifact, arm, feeds)
    for pair in zip(found, interpret(g, feeds, params), strict=True):
        a, b = (v.astype(np.float32) for v in pair)
        np.testing.assert_allclose(a, b, rtol=2**-7, atol=2**-8 * np.abs(b).max())
    assert {WORDS[arm]["bfdot"], WORDS[arm]["bfmmla"]} <= _words_of(artifact)
    with pytest.raises(AssertionError, match="bf16"):
        emulated.run(artifact, "cpu:aarch64", feeds, cpu="cortex-a53")


WORDS = {
    "cpu:aarch64": {
        "sdot": 0x4E809400, "smmla": 0x4E80A400, "ummla": 0x6E80A400, "usmmla": 0x4E80AC00,
        "bfdot": 0x6E40FC00, "bfmmla": 0x6E40EC00,
    },
    "cpu:aarch64-sve256": {
        "sdot": 0x44800000, "smmla": 0x45009800, "ummla": 0x45C09800, "usmmla": 0x45809800,
        "bfdot": 0x64608000, "bfmmla": 0x6460E400,
    },
}  # fmt: skip
"""Instructions of whole vectors, without the numbers of their registers."""


def _words_of(artifact: rlx.Artifact) -> set[int]:
    """The instructions of its objects, without the numbers of their registers."""
    return set((_code_of(artifact) & 0xFFE0FC00).tolist())


def _code_of(artifact: rlx.Artifact) -> Any:
    """The words of its objects."""
    code = b"".join(data for v in artifact.variants for data in v.objects.values())
    return np.frombuffer(code[: len(code) // 4 * 4], "<u4")


def _bytes(rng: np.random.Generator, v: rlx.Value) -> Any:
    """Whole numbers of a value's type, with both ends."""
    ends = np.iinfo(v.dtype.numpy)
    made = rng.integers(ends.min, ends.max + 1, v.type.static_shape).astype(v.dtype.numpy)
    made.reshape(-1)[:4] = (ends.min, ends.max) * 2
    return made


def test_code_for_more_than_a_machine_has_is_refused_there() -> None:
    need("cpu:aarch64")
    g, given = _mlp()
    artifact = rlx.compile_artifact(
        g, "cpu:aarch64+dotprod+i8mm", params={name: given[name] for name in "wb"}
    )
    emulated.run(artifact, "cpu:aarch64", given)
    with pytest.raises(AssertionError, match="i8mm"):
        emulated.run(artifact, "cpu:aarch64", given, cpu="cortex-a53")


LENGTHS = {"max,sve256=on": 256, "max": 512, "max,sve128=on": 128, "cortex-a53": 0}
"""What QEMU emulates, and the bits of its registers of SVE."""


@pytest.mark.parametrize("cpu", LENGTHS)
def test_code_for_sve_runs_where_registers_are_as_long(cpu: str) -> None:
    """Elsewhere it is refused, and code for NEON taken where there is some."""
    need("cpu:aarch64-sve256")
    g, given = _mlp()
    params, expected = {name: given[name] for name in "wb"}, interpret(g, given)[0]
    levels = {bits: f"cpu:aarch64-sve{bits}" for bits in (256, 512)}
    for bits, level in levels.items():
        wide = rlx.compile_artifact(g, level, params=params)
        assert any(w & 0xFFE0E000 == FMLA_Z for w in _code_of(wide).tolist())
        if LENGTHS[cpu] == bits:
            (found,) = emulated.run(wide, "cpu:aarch64", given, cpu=cpu)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
        else:
            lacks = f"sve{bits}" if LENGTHS[cpu] else f"fullfp16 sve sve{bits}"
            with pytest.raises(AssertionError, match=rf"needs {lacks}\).*expected code for this"):
                emulated.run(wide, "cpu:aarch64", given, cpu=cpu)
    every = rlx.compile_artifact(g, ["cpu:aarch64", *levels.values()], params=params)
    (found,) = emulated.run(every, "cpu:aarch64", given, cpu=cpu)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


FMLA_Z = 0x65A00000
"""A product of registers of SVE under a mask, without their numbers."""
