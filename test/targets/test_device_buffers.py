"""Kernels bind no more buffers than devices allow: ops are fused up to that, and no further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import ArtifactError, UnsupportedError
from rlx.ir.graph import Graph, Value
from rlx.ir.interpreter import interpret
from rlx.lowering.report import MissReason
from rlx.targets import TARGETS, find_target, presets
from rlx.targets.gpu.profiles import BUFFERS, buffer_words
from support.device import APIS, compiled

GPUS = [n for n in TARGETS if find_target(n).kernels.binds]
COUNTS = (2, 8, 9, 12, 33, 40, 100)


def total(xs: Sequence[Value]) -> Value:
    found = xs[0]
    for x in xs[1:]:
        found = found + x
    return found


def crowded(counts: Sequence[int] = COUNTS) -> Graph:
    """Sums and joins of so many inputs, a row-wise op behind a sum, and a product before one."""
    g = Graph("crowded")
    xs = [g.input(f"x{i}", [3, 4]) for i in range(max(counts))]
    # Each sum begins with another input, so that they share no op.
    outs = [f(xs[n - 1 :: -1]) for n in counts for f in (total, lambda part: g.concat(part, 0))]
    a, b = g.input("a", [3, 5]), g.input("b", [5, 4])
    outs.append((total(xs[14:2:-1]) * 0.5).softmax(-1))
    outs.append(total([a @ b, *xs[2:12]]).relu())
    g.set_outputs(outs)
    return g


def feeds_of(g: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {
        str(v.name): rng.standard_normal(v.type.static_shape).astype(np.float32) for v in g.inputs
    }


def bound(g: Graph, target: str) -> tuple[int, int]:
    """The buffers of the kernel that binds most, and those that one may bind."""
    found = find_target(target)
    program, _ = compile_program(g, found)
    most = found.kernels.most_buffers
    assert most is not None
    return max(len(k.bindings) + (k.params > 0) + k.spare for k in program.kernels), most


@pytest.mark.parametrize("target", [f"{n}:{p}" for n in GPUS for p in presets(n)[-1:]])
def test_kernels_bind_what_every_device_allows(target: str) -> None:
    found, most = bound(crowded(), target)
    assert found == min(most, 102)  # those of the longest sum


def test_a_device_that_binds_more_gets_longer_kernels() -> None:
    for word, count in BUFFERS.items():
        found, most = bound(crowded((15, 100)), f"webgpu:webgpu+{word}")
        assert (found, most) == (min(count, 102), count)


@pytest.mark.parametrize("api", [*APIS, "webgpu"])
def test_many_operands_run(api: str) -> None:
    # What stands in for Direct3D and CUDA takes 32 buffers.
    g = crowded((2, 8, 9, 12, 30) if api in ("directx", "cuda") else COUNTS)
    feeds = feeds_of(g)
    for a, b in zip(compiled(api, g).run(feeds), interpret(g, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_report_says_what_was_not_fused() -> None:
    g = Graph("sum")
    g.set_outputs(total([g.input(f"x{i}", [4]) for i in range(40)]))
    _, report = compile_program(g, find_target("webgpu"))
    missed = [m for m in report.compilation.fusion.missed if m.kind is MissReason.BUFFERS]
    assert len(missed) == 7 and {m.pattern for m in missed} == {"elementwise"}
    assert missed[0].reason == "it binds 9 buffers, and a kernel of webgpu 8 at most"
    assert missed[0].location[0] == __file__


def scan() -> Graph:
    g = Graph("scan")
    x = g.input("x", [1, 4, 2])
    delta = g.input("delta", [1, 4, 2])
    a, d = g.input("a", [2, 3]), g.input("d", [2])
    b, c = g.input("b", [1, 4, 3]), g.input("c", [1, 4, 3])
    g.set_outputs(g.selective_scan(x, delta, a, b, c, d, g.input("state", [1, 2, 3])))
    return g


def test_an_op_of_more_buffers_is_refused_with_its_line() -> None:
    with pytest.raises(UnsupportedError, match=r"binds \d+ buffers, and a kernel of webgpu 8") as e:
        rlx.compile_artifact(scan(), "webgpu")
    assert e.value.location is not None and e.value.location[0] == __file__
    made = rlx.compile_artifact(scan(), "webgpu:webgpu+buffers16")
    assert made.fitting("webgpu", buffer_words(16), "a page")
    with pytest.raises(ArtifactError, match=r"webgpu\+buffers16 needs buffers16"):
        made.fitting("webgpu", buffer_words(10), "a page")
