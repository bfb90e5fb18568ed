"""Which line of a kernel became which lines of LLVM IR and assembly."""

from __future__ import annotations

import pytest

from rlx.ir.graph import Graph
from rlx.lowering.compilation import Compilation
from rlx.targets import find_target
from rlx.view.compile import watch


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:aarch64"])
def test_instructions_name_lines_of_the_kernel(target: str) -> None:
    from rlx.dialects.export import to_mlir

    g = Graph()
    x, w = g.input("x", [4, 32]), g.param("w", [32, 16])
    g.set_outputs([(x @ w).gelu().softmax(axis=-1), x.cumsum(axis=1)])
    module = to_mlir(g)
    view = watch(module, "hir", Compilation(find_target(target)), title="")
    assert {k.family for k in view.kernels} >= {"pack", "contraction", "rowwise", "common"}
    for kernel in view.kernels:
        own, *rest = kernel.listings
        size = len(own.text.splitlines())
        for listing in rest:
            lines = listing.text.splitlines()
            assert len(listing.lines) == len(lines), (kernel.name, listing.stage)
            assert max(listing.lines) <= size
            # Most instructions came from some line; labels and the frame came from none.
            code = [t for t in lines if t.startswith(("\t", "  ")) and not t.startswith("\t.")]
            assert sum(n > 0 for n in listing.lines) > 0.6 * len(code) - 20
            assert all(n == 0 for n, t in zip(listing.lines, lines, strict=True) if t.endswith(":"))
