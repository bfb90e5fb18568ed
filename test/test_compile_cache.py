"""What compiles share: kernel objects across graphs, bodies of equal regions, contexts."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.compiler import driver as compiler
from rlx.compiler.driver import compile_graph
from rlx.dialects.context import SharedContext, make_context, parse
from rlx.dialects.convert import dtype_of, from_type
from rlx.errors import IRError
from rlx.ir.graph import Graph
from rlx.lowering.region import Region, Regions
from rlx.runtime import _native
from rlx.runtime.background import waited
from rlx.runtime.cache import objects
from rlx.runtime.cache.memory import Memory
from rlx.targets import find_target
from rlx.targets.base import Target
from rlx.targets.cpu import make_target


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "in_memory", Memory(1 << 20))


@pytest.fixture
def cpu() -> Target:
    return find_target("cpu")


def chain(rows: int, scale: float = 0.5, eps: float = 1e-5, name: str = "chain") -> Graph:
    g = Graph(name)
    x = g.input("x", [rows, 24])
    g.set_outputs(g.rms_norm((x * scale).exp(), g.param("w", [24]), eps=eps))
    return g


def test_equal_kernels_are_made_once_across_graphs(cpu: Target) -> None:
    first, report = compile_graph(chain(3), cpu)
    again, second = compile_graph(chain(50, name="other"), cpu)
    assert report.kernels_made == len(first.variant.objects) > 0
    assert (second.kernels_made, second.kernels_reused) == (0, len(again.variant.objects))
    assert first.variant.objects == again.variant.objects


@pytest.mark.parametrize("change", [{"scale": 0.25}, {"scale": -0.3}, {"eps": 1e-6}])
def test_other_numbers_need_no_other_kernels(cpu: Target, change: dict[str, float]) -> None:
    first, _ = compile_graph(chain(3, scale=0.7), cpu)
    other, report = compile_graph(chain(3, **{"scale": 0.7, **change}), cpu)
    assert report.kernels_made == 0
    assert set(first.variant.objects) == set(other.variant.objects)


@pytest.mark.parametrize("change", [{"scale": 0.25}, {"scale": -0.5}, {"eps": 1.0}])
def test_numbers_with_a_meaning_make_other_kernels(cpu: Target, change: dict[str, float]) -> None:
    first, _ = compile_graph(chain(3), cpu)
    other, report = compile_graph(chain(3, **change), cpu)
    assert report.kernels_made > 0
    assert set(first.variant.objects) != set(other.variant.objects)


def test_other_features_make_other_kernels() -> None:
    first, _ = compile_graph(chain(3), make_target("x86-64-v3"))
    wide, report = compile_graph(chain(3), make_target("x86-64-v4"))
    assert report.kernels_reused == 0
    assert not set(first.variant.objects) & set(wide.variant.objects)


@pytest.mark.parametrize("threads", [1, 4])
def test_objects_do_not_depend_on_threads(
    cpu: Target, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def layers() -> Graph:
        g = Graph("layers")
        x = g.input("x", [5, 48])
        for i in range(3):
            x = g.layer_norm(
                x @ g.param(f"w{i}", [48, 48]), g.param(f"g{i}", [48]), g.param(f"b{i}", [48])
            )
        g.set_outputs([x, x.tanh(), x.cast("f16").exp()])
        return g

    found: list[dict[str, bytes]] = []
    for n in (1, threads):
        objects.in_memory.clear()
        monkeypatch.setattr(_native, "default_threads", lambda n=n: n)
        artifact, report = compile_graph(layers(), cpu)
        assert report.kernels_made == len(artifact.variant.objects) > 3
        found.append(artifact.variant.objects)
    assert found[0] == found[1]
    assert list(found[0]) == list(found[1])


def test_a_kernel_that_fails_is_an_error_and_is_not_kept(
    cpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compiler.emit_kernel

    def broken(family: str, *rest: object) -> object:
        if family == "rowwise":
            raise IRError("no such kernel today")
        return real(family, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "emit_kernel", broken)
    monkeypatch.setattr(_native, "default_threads", lambda: 4)
    g = Graph("two")
    x = g.input("x", [4, 24])
    g.set_outputs([x.exp(), g.softmax(x, axis=-1)])
    with pytest.raises(IRError, match="no such kernel today"):
        compile_graph(g, cpu)
    monkeypatch.setattr(compiler, "emit_kernel", real)
    artifact, _ = compile_graph(g, cpu)
    assert len(artifact.variant.objects) == 2


def test_compiles_in_a_renewed_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_contexts", SharedContext(uses=2))
    session = rlx.Session("cpu")
    for n in range(1, 7):
        g = Graph("g")
        g.set_outputs(g.input("x", [n, 2]) * float(n))
        x = np.ones((n, 2), np.float32)
        np.testing.assert_array_equal(session.compile(g).run({"x": x})[0], x * n)


# -- regions ------------------------------------------------------------------------------------


def regions_of(text: str) -> list[Region]:
    module = parse(text)
    table = Regions()
    body = module.body.operations[0].regions[0].blocks[0]
    kept = [view.operation for view in body.operations][:-1]
    found = [table.of(op) for op in kept]
    found.append(table.of_ops(kept, kept[-1]))
    return found


MODULE = """
func.func @main(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>, %z: tensor<6x4xf32>) {{
  %0 = "mir.reduce_sum"(%x) {{axes = array<i64: 1>, keepdims = true}}
      : (tensor<4x6xf32>) -> tensor<4x1xf32>
  %1 = "mir.reduce_sum"(%{0}) {{axes = array<i64: {1}>, keepdims = true}}
      : (tensor<{2}xf32>) -> tensor<{3}xf32>
  return
}}
"""


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (("y", 1, "4x6", "4x1"), True),
        (("y", 0, "4x6", "1x6"), False),
        (("z", 1, "6x4", "6x1"), False),
    ],
)
def test_regions_share_a_body_if_attributes_and_types_are_equal(
    other: tuple[str, int, str, str], shared: bool
) -> None:
    first, second, _ = regions_of(MODULE.format(*other))
    assert (first.body is second.body) == shared
    assert list(first.leaves.values()) != list(second.leaves.values())
    assert second.nodes[0].out.shape == tuple(map(int, other[3].split("x")))


def test_regions_that_differ_in_wiring_have_bodies_of_their_own() -> None:
    text = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "mir.sub"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "mir.sub"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "mir.sub"(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
"""
    two, one, turned, _ = regions_of(text)
    assert len(two.leaves) == 2 and len(one.leaves) == 1
    assert two.body is turned.body and two.body is not one.body
    assert list(two.leaves.values()) == list(reversed(turned.leaves.values()))


def test_a_fact_is_found_once() -> None:
    first, second, whole = regions_of(MODULE.format("y", 1, "4x6", "4x1"))
    asked: list[int] = []
    for region in (first, second, whole):
        region.body.fact("n", lambda: asked.append(1))
    assert len(asked) == 2


def test_types_remembered_do_not_keep_old_contexts() -> None:
    waited()  # what earlier tests have left to the background
    regions_of(MODULE.format("y", 1, "4x6", "4x1"))
    assert from_type.cache_info().currsize > 0
    make_context()
    assert from_type.cache_info().currsize == dtype_of.cache_info().currsize == 0
