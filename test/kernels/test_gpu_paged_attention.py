"""Attention over pages on the software devices, against the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import FaultError, UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.kernels.attention import gpu_paged
from rlx.kernels.attention.paged import PagedSizes
from rlx.targets import find_target
from rlx.types import f32
from support.device import compiled
from support.tolerances import assert_close

Array = np.ndarray[Any, Any]
APIS = pytest.mark.parametrize("api", ["opencl", "vulkan", "gpu"])
VULKAN = find_target("vulkan").kernels
KINDS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def graph_of(feeds: dict[str, Array], heads: int, key_heads: int, **attrs: Any) -> rlx.Graph:
    g = rlx.Graph("paged")
    leaves = [g.input(n, a.shape, a.dtype) for n, a in feeds.items()]
    out = g.paged_attention(*leaves, num_heads=heads, kv_heads=key_heads, **attrs)
    g.set_outputs([out])
    return g


def feeds_of(
    rows: int, heads: int, key_heads: int, dim: int, size: int, pages: int, dtype: str = "f32"
) -> dict[str, Array]:
    """Rows of two sequences, whose pages lie in any order."""
    rng = np.random.default_rng(rows)
    shape = ((2 * pages + 1) * size, key_heads * dim)
    k, v = (rng.standard_normal(shape, np.float32).astype(KINDS[dtype]) for _ in "kv")
    return {
        "q": rng.standard_normal((rows, heads * dim), np.float32),
        "k": k,
        "v": v,
        "table": rng.permutation(2 * pages + 1)[: 2 * pages].reshape(2, -1).astype(np.int32),
        "sequence": (np.arange(rows) % 2).astype(np.int32),
        "positions": rng.integers(0, pages * size, rows).astype(np.int32),
    }


CASES: tuple[tuple[Any, dict[str, Any]], ...] = (
    # Parts of a few chunks; a ragged head, and a window over pages that are gone; many rows.
    ((3, 4, 2, 16, 8, 40, "f16"), {}),
    ((3, 2, 1, 20, 5, 60, "bf16"), {"window": 70, "softcap": 3.0}),
    ((70, 8, 8, 4, 16, 20), {}),
)


@APIS
def test_rows_of_several_sequences(api: str) -> None:
    for shape, attrs in CASES if api == "opencl" else CASES[:2]:
        feeds = feeds_of(*shape)
        size, window = shape[4], attrs.get("window", 0)
        if window:  # of what all rows of a sequence have left behind, the pages may be gone
            for n, pages in enumerate(feeds["table"]):
                least = feeds["positions"][n::2].min()
                pages[: max(0, least + 1 - window) // size] = -1
        feeds["positions"][-1] = -1
        if window:
            feeds["sinks"] = np.array([-1.0, 2.0], np.float32)
        g = graph_of(feeds, shape[1], shape[2], page_size=size, scale=0.3, **attrs)
        dispatch = compile_program(g, find_target(api))[1].compilation.dispatch
        assert dispatch.native == {"gpu_paged_attention: paged_attention": 1}
        assert_close(compiled(api, g).run(feeds)[0], interpret(g, feeds)[0])


def test_bits_depend_on_neither_the_other_rows_nor_the_pages() -> None:
    """One row of a step, whose chunks are parts; and among so many that a block has all chunks."""
    feeds = feeds_of(gpu_paged.ENOUGH_BLOCKS, 2, 1, 8, 16, 40)
    attrs = {"page_size": 16, "scale": 0.5}
    whole = compiled("opencl", graph_of(feeds, 2, 1, **attrs)).run(feeds)[0]
    row = int(feeds["positions"].argmax())
    few = {
        n: a[row : row + 1] if n in ("q", "sequence", "positions") else a for n, a in feeds.items()
    }
    order = np.random.default_rng(1).permutation(81)
    for name in "kv":
        pages = feeds[name].reshape(81, 16, -1)
        few[name] = pages[np.argsort(order)].reshape(feeds[name].shape)
    few["table"] = order[feeds["table"]].astype(np.int32)
    alone = compiled("opencl", graph_of(few, 2, 1, **attrs)).run(few)[0]
    assert feeds["positions"][row] > 512
    np.testing.assert_array_equal(alone[0], whole[row])


def test_what_there_is_not_is_a_fault() -> None:
    feeds = feeds_of(2, 2, 1, 4, 16, 4)
    feeds["positions"][:] = 40
    f = compiled("opencl", graph_of(feeds, 2, 1, page_size=16, scale=0.5))
    for name, value in (("sequence", 2), ("sequence", -1), ("positions", 64), ("table", 9)):
        wrong = {n: a.copy() for n, a in feeds.items()}
        wrong[name].flat[0] = value
        with pytest.raises(FaultError, match="outside the table or the cache"):
            f.run(wrong)


def test_sizes_choose_what_a_block_has() -> None:
    sizes = PagedSizes(8, 32, 8, 128, 16, 999, 8, 128, 4096, 4096, 1.0)
    found = gpu_paged.choose(VULKAN, f32, sizes)
    assert (found.heads, found.threads, found.beside, found.keys) == (4, 128, 16, 4)
    assert gpu_paged.splits_of(sizes) == 8
    assert gpu_paged.splits_of(replace(sizes, rows=64)) == 1, "blocks enough without parts"
    with pytest.raises(UnsupportedError, match=r"does not fit the 512 bytes .*vulkan1\.2"):
        gpu_paged.choose(replace(VULKAN, shared_bytes=512), f32, sizes)
