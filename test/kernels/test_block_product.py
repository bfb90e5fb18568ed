"""Products by weights in packed blocks, against the decoded weight in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.kernels.matmul.block_product import TILES
from rlx.kernels.matmul.block_weights import DECODERS, fields_of, scheme_of
from rlx.types import u8
from support.sweeps import covering

Array = np.ndarray[Any, Any]
SIZES = ((1, 1, 256), (1, 65, 512), (2, 17, 256), (3, 16, 768), (5, 100, 256), (8, 33, 512),
         (17, 48, 256))  # fmt: skip


def weight(scheme: str, n: int, depth: int, seed: int = 0, size: float = 1 / 16) -> Array:
    """Random blocks: all bytes, but for the scales, which are numbers of a size and of either sign,
    and for floats of 8 bits, which are finite."""
    rng, row = np.random.default_rng(seed), scheme_of(scheme)
    blocks = rng.integers(0, 256, (n, depth // row.block, row.bytes), np.uint8).view(row.fields)
    for name in ("d", "m", "dmin"):
        if name in fields_of(row):
            blocks[name] = rng.standard_normal(blocks.shape).astype(np.float16) * np.float16(size)
    if not row.whole:
        blocks["qs"] &= 0xFB
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(n, -1)


def run(x: Array, packed: Array, scheme: str, *, param: bool = True, **options: Any) -> Array:
    g = rlx.Graph("blocks")
    leaf = g.param if param else g.input
    g.set_outputs(g.input("x", x.shape).dequant_matmul(leaf("w", packed.shape, u8), scheme=scheme))
    f = rlx.Session("cpu", **options).compile(g)
    assert f.reports[0].compilation.dispatch.native == {"block_product: dequant_matmul": 1}
    assert not f.reports[0].compilation.dispatch.decoded
    if param:
        f.set_param("w", packed)
        return f.run({"x": x})[0]
    return f.run({"x": x, "w": packed})[0]


def rows(m: int, depth: int) -> Array:
    return np.random.default_rng(m).standard_normal((m, depth), np.float32)


def check(found: Array, x: Array, packed: Array, scheme: str) -> None:
    room = room_of(x, packed, scheme)
    assert np.all(np.abs(found - x.astype(np.float64) @ wide(packed, scheme).T) <= room * 2.0**-17)


def wide(packed: Array, scheme: str) -> Array:
    row = scheme_of(scheme)
    shape = len(packed), packed.shape[1] // row.bytes * row.block
    return quant.dequantize(packed, scheme, shape).astype(np.float64)


def room_of(x: Array, packed: Array, scheme: str) -> Array:
    """What the absolute values of all products add up to. Least values are taken from sums that may
    be as large as what they leave."""
    w = np.abs(wide(packed, scheme))
    return np.abs(x).astype(np.float64) @ (w + w.max(1, keepdims=True)).T


OWN = [s for s in DECODERS if not s.endswith("_f32") or not scheme_of(s).whole]
"""Schemes with decoders of their own; those of the others read a scale in f32."""
INTEGERS = [s for s in OWN if scheme_of(s).whole]
"""Those that rows in 8 bits meet, and that GPUs read."""


def cases(*cpus: str) -> list[tuple[str, str]]:
    """Schemes and CPUs: of decoders that differ little, one is enough."""
    return [(s, cpu) for s in DECODERS for cpu in cpus if s in OWN or cpu == cpus[-1]]


CPUS = ("x86-64-v3", "x86-64-v4", "native")


def sizes_of(
    cpus: Sequence[str], sizes: Sequence[tuple[int, int, int]]
) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """Sizes by scheme and CPU: each CPU has them all, and so has each decoder of its own."""
    taken = covering(
        ((*case, size) for case in cases(*cpus) for size in sizes),
        lambda c: [c[:2], (c[1], c[2]), (c[0] if c[0] in OWN else "", c[2])],
    )
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for scheme, cpu, size in taken:
        found.setdefault((scheme, cpu), []).append(size)
    return found


CHOSEN = sizes_of(CPUS, SIZES)


@pytest.mark.parametrize(("scheme", "cpu"), CHOSEN)
def test_sizes(scheme: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    for m, n, depth in CHOSEN[scheme, cpu]:
        x, packed = rows(m, depth), weight(scheme, n, depth)
        check(run(x, packed, scheme), x, packed, scheme)


@pytest.mark.parametrize(("scheme", "cpu"), [(s, CPUS[n % 3]) for n, s in enumerate(DECODERS)])
def test_numbers_that_are_not_finite_or_large(
    scheme: str, cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in blocks whose codes are 0 or have a least value; other rows keep their bits."""
    if cpu != "native":
        monkeypatch.setenv("RLX_CPU", cpu)
    x, packed = rows(5, 256), weight(scheme, 100, 256, size=2.0**-12)
    plain = run(x, packed, scheme)
    x[1, 5], x[2, 70], x[3, [9, 200]] = np.inf, -np.inf, [np.nan, np.inf]
    found = run(x, packed, scheme)
    with np.errstate(all="ignore"):
        wanted = (x @ wide(packed, scheme).T).astype(np.float32)
    np.testing.assert_array_equal(found[1:4], wanted[1:4])
    np.testing.assert_array_equal(found[[0, 4]], plain[[0, 4]])
    x = np.abs(rows(5, 256))
    x *= np.float32(min(1e38 / room_of(x, packed, scheme).max(), 1e38 / x.max()))
    check(run(x, packed, scheme), x, packed, scheme)


@pytest.mark.parametrize("scheme", [s for s in OWN if s not in INTEGERS])
def test_all_floats_of_8_bits(scheme: str) -> None:
    """One a row, and a 1 beside it: what is nan and infinite is so in its own results alone."""
    blocks = np.zeros((256, 1), scheme_of(scheme).fields)
    blocks["d"], blocks["qs"][:, 0, 7], blocks["qs"][:, 0, 9] = 0.5, np.arange(256), 0x38
    packed = blocks.view(np.uint8).reshape(256, -1)
    with np.errstate(all="ignore"):
        wanted = quant.dequantize(packed, scheme, (256, 32)).sum(1)
    found = run(np.ones((1, 32), np.float32), packed, scheme)[0]
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).sum() == (2 if scheme == "fp8_e4m3_f32" else 6)


@pytest.mark.parametrize("scheme", OWN)
def test_bits_depend_on_neither_rows_nor_threads_nor_where_the_weight_is_from(scheme: str) -> None:
    x, packed = rows(3 * max(TILES), 512), weight(scheme, 100, 512)
    whole = run(x, packed, scheme, threads=1)
    np.testing.assert_array_equal(run(x, packed, scheme, threads=2), whole)
    np.testing.assert_array_equal(run(x, packed, scheme, param=False), whole)
    for m in (1, 2, 3, 4, 5, 7, 9, 15):
        np.testing.assert_array_equal(run(x[:m], packed, scheme), whole[:m])
    for n in (1, 16, 31, 64):
        np.testing.assert_array_equal(run(x, packed[:n], scheme), whole[:, :n])


def test_rows_that_do_not_lie_side_by_side() -> None:
    x, packed = rows(4, 512), weight("q4_k", 20, 256)
    g = rlx.Graph()
    part = g.input("x", x.shape)[:, 256:]
    turned = g.input("y", [256, 4]).transpose()
    w = g.param("w", packed.shape, u8)
    g.set_outputs([v.dequant_matmul(w, scheme="q4_k") for v in (part, turned)])
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", packed)
    a, b = f.run({"x": x, "y": np.ascontiguousarray(x[:, 256:].T)})
    check(a, x[:, 256:], packed, "q4_k")
    np.testing.assert_array_equal(a, b)


def test_panels_take_as_much_memory_as_the_bytes() -> None:
    packed = weight("q4_k", 64, 1024)
    g = rlx.Graph()
    x = g.input("x", [1, 1024])
    g.set_outputs(x.dequant_matmul(g.param("w", packed.shape, u8), scheme="q4_k"))
    (variant,) = rlx.compile_artifact(g, "cpu").variants
    assert variant.packed_bytes == packed.nbytes
