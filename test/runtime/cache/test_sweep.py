"""What changes code changes the key: every option, environment variable and CPU, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.compat.compile_cache import CompileCache
from rlx.errors import ToolchainError
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Options
from rlx.precision import Precision, types_of
from rlx.precision.rewrite import PrecisionReport, with_precision
from rlx.runtime import _native
from rlx.runtime.cache import artifacts, objects
from rlx.runtime.cache.store import Store
from rlx.targets.cpu import features as cpus
from rlx.targets.cpu import make_target
from rlx.targets.cpu.features import PRESETS, preset, selected


class Made(NamedTuple):
    """What was compiled, and by what two caches would find it."""

    artifact: bytes
    key: str
    in_process: str


def model() -> Graph:
    """Kernels of several families, a branch, and a table."""
    g = Graph("model")
    x, i = g.input("x", [4, 24]), g.input("i", [4], "i64")
    w = np.linspace(-1, 1, 24 * 24, dtype=np.float32).reshape(24, 24)
    h = g.softmax((x @ g.param("w", [24, 24], value=w)).gelu() + x, axis=-1)
    table = g.constant(np.linspace(0, 1, 240, dtype=np.float32).reshape(10, 24))
    h = rlx.cond(x[0, 0].lt(0.5), lambda v: v * 3.0, lambda v: v.exp(), h)
    g.set_outputs([h + g.gather(table, i, axis=0), x.cast("f16")])
    return g


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("cache"), 1 << 20)


GRAPH = model()


def made(store: Store, graph: Graph = GRAPH, **options: Any) -> Made:
    """A graph compiled with nothing from any cache."""
    objects.in_memory.clear()
    features, chosen = selected().name, Options.of(options)
    with knobs.cache.scoped(False):
        artifact, _ = artifacts.find_or_compile(
            graph, ("cpu", features), chosen, lambda: make_target(features)
        )
    key = artifacts.key_of_graph(graph, "cpu", features, chosen, store)
    assert not isinstance(key, str), key
    return Made(bytes(artifact), key.digest, CompileCache.key(rlx.Session(), graph, **options))


@pytest.fixture(scope="module")
def plain(store: Store) -> Made:
    return made(store)


def told_apart(one: Made, other: Made) -> bool:
    """Whether two compiles gave other code; each cache must then have another key."""
    if one.artifact == other.artifact:
        return False
    assert one.key != other.key, "one entry would have to hold two artifacts"
    assert one.in_process != other.in_process, "CompileCache would give one for the other"
    return True


def test_a_compile_is_repeatable(store: Store, plain: Made) -> None:
    assert made(store) == plain


# -- options -----------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "dispatch": "common", "fuse": False, "force_common": ("gelu",), "force_native": ("softmax",),
    "donate": ((0, 0),), "most_rounds": 65536, "constant_folding": False,
    "assert_fusion_clean": True, "verbose": True,
}  # fmt: skip
CHANGING = {"dispatch", "fuse", "force_common", "donate", "constant_folding"}


def test_every_option_is_tried_below() -> None:
    assert list(OPTIONS) == [f.name for f in fields(Options)]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_changes_code_is_in_the_keys(option: str, store: Store, plain: Made) -> None:
    other = made(store, **{option: OPTIONS[option]})
    assert told_apart(plain, other) == (option in CHANGING)


# -- the environment ---------------------------------------------------------------------------


def _another_cpu() -> str:
    return next(isa for isa in reversed(PRESETS) if isa != cpus.detect().isa)


OTHER = {
    "RLX_CPU": _another_cpu(), "RLX_CC": "gcc", "RLX_NUM_THREADS": "1", "RLX_COMM_TIMEOUT": "5",
    "RLX_COMM_BESIDE": "on",
    "RLX_MPI": "libmpi.so", "RLX_NCCL": "host", "RLX_RANK": "0", "RLX_RANKS": "2",
    "RLX_RENDEZVOUS": "here",
    "RLX_STATUS": "status", "RLX_GPU": "1", "RLX_MLX_MODE": "compiled", "RLX_PJRT": "plugin.so",
    "RLX_TRITON": "off", "RLX_DEVICES": "cpu", "RLX_DENY_DEVICES": "cuda",
    "RLX_PREFER_DEVICES": "cpu", "RLX_DEVICE": "cpu", "RLX_DEVICE_CHAIN": "cpu",
    "RLX_BENCHMARK_PICK": "1", "RLX_KERNEL_DISPATCH": "common", "RLX_SIZES": "bound",
    "RLX_IR_DUMP": "dump/",
    "RLX_FUSION_REPORT": "on", "RLX_DISPATCH_REPORT": "on", "RLX_CACHE": "off",
    "RLX_CACHE_DIR": "elsewhere", "RLX_CACHE_SIZE": "1k", "RLX_PACKED_SIZE": "1k",
    "RLX_LOG": "cache", "RLX_TRACE": "t.json",
}  # fmt: skip
"""A value of each variable that is not its default."""


def test_every_environment_variable_is_tried_below() -> None:
    assert list(OTHER) == list(knobs.KNOBS)
    assert all(knob.parse(OTHER[name]) != knob.default for name, knob in knobs.KNOBS.items())


@pytest.mark.parametrize("variable", OTHER)
def test_a_variable_that_changes_code_is_in_the_keys(
    variable: str, store: Store, plain: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, OTHER[variable])
    if variable == "RLX_NUM_THREADS":  # the process has read it
        monkeypatch.setattr(_native, "default_threads", lambda: 1)
    tracing = variable == "RLX_TRACE"
    if tracing:  # the variable has a trace go on until the process ends
        monkeypatch.delenv(variable)
    with rlx.trace(OTHER[variable]) if tracing else nullcontext():
        told = told_apart(plain, made(store))
    assert told == (variable in ("RLX_CPU", "RLX_KERNEL_DISPATCH"))


def test_a_kernel_in_c_is_compiled_again_by_another_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
    static void kernel(int64_t begin, int64_t end, const float *x, float *out) {
      for (int64_t i = begin; i < end; ++i) out[i] = x[i] + 1.0f;
    }"""

    def kernel(n: Any) -> rlx.CKernel:
        return rlx.CKernel(source, range=n.x.type.size)

    @rlx.custom_op("sweep.next", infer=lambda x: x, kernel=kernel)
    def following(x: Any) -> Any:
        return x + 1

    with _registered("sweep.next"):
        g = Graph()
        g.set_outputs(following(g.input("x", [3])))
        rlx.Session().compile(g)
        monkeypatch.setenv("RLX_CC", "no-such-compiler")
        with pytest.raises(ToolchainError, match="no-such-compiler"):
            rlx.Session().compile(g)


@contextmanager
def _registered(name: str) -> Generator[None]:
    from rlx.ir import op as base

    try:
        yield
    finally:
        del base.registry[name]


# -- machines ----------------------------------------------------------------------------------


def test_every_cpu_has_keys_of_its_own(store: Store) -> None:
    found = {f.name for f in PRESETS.values()}
    for isa, f in PRESETS.items():
        found |= {preset(f"{isa}+{extra}").name for extra in cpus._extras(f.arch, isa)}
    # What a level has of itself is no extra of it.
    own = [e for isa, f in PRESETS.items() for e in cpus._extras(f.arch, isa) if e not in f.has]
    assert len(found) == len(PRESETS) + len(own)
    keys = {str(artifacts.key_of_graph(GRAPH, "cpu", name, Options(), store)) for name in found}
    assert len(keys) == len(found)


# -- graphs ------------------------------------------------------------------------------------


def _weighted(dtype: str, *, turned: bool = False, scale: float = 0.5) -> Graph:
    """A product by a param of a type or a layout, and by a table of bytes with a scale."""
    g = Graph("weighted")
    x = g.input("x", [4, 24])
    w = g.param("w", [24, 24], dtype).cast("f32")
    bytes_of = g.constant((np.arange(24 * 24) % 17).astype(np.int8).reshape(24, 24))
    h = x @ (w.transpose((1, 0)) if turned else w)
    g.set_outputs(h @ (bytes_of.cast("f32") * scale))
    return g


def _in_precision(precision: Precision) -> tuple[Graph, PrecisionReport]:
    return with_precision(GRAPH, types_of(precision, selected().has))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "a param of f32": lambda: _weighted("f32"),
    "a param of bf16": lambda: _weighted("bf16"),
    "a param of i8": lambda: _weighted("i8"),
    "a layout": lambda: _weighted("f32", turned=True),
    "a scale": lambda: _weighted("f32", scale=0.25),
    **{
        f"precision {p}": lambda p=p: _in_precision(p)[0]
        for p in Precision
        if _in_precision(p)[1].changed
    },
}


def test_graphs_of_equal_keys_are_equal_code(store: Store, plain: Made) -> None:
    found = {name: made(store, graph()) for name, graph in GRAPHS.items()} | {"plain": plain}
    for one in found:
        for other in found:
            assert one == other or told_apart(found[one], found[other]), (one, other)
