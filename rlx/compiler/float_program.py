"""Graphs of floats as programs for microcontrollers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.digest import digest
from rlx.compiler.driver import lowered
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.arrays import fixed
from rlx.ir.given import param_arrays
from rlx.ir.graph import Graph
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Compilation
from rlx.runtime.artifact import Artifact, KernelCode, Variant
from rlx.runtime.weights import Code, Weights
from rlx.schedule.codec import main_words, prologue_words
from rlx.schedule.plan import FIRST_PARAM, Schedule, prologue_first
from rlx.schedule.steps import launches, memories_of
from rlx.targets.base import Target
from rlx.targets.cortexm.features import Core
from rlx.targets.cortexm.kernels import make_target, objects
from rlx.targets.cortexm.program import Program
from rlx.targets.cpu.emit import compile_kernels
from rlx.targets.cpu.features import detect

__all__ = ["float_program"]

Array = np.ndarray[Any, Any]


def float_program(graph: Graph, params: Mapping[str, Any], core: Core) -> tuple[Program, bytes]:
    """The schedule of a graph with the values of its params, and its kernels as an object."""
    if graph.symbols:
        raise ShapeError(
            f"cortexm: {graph.name!r} has dims without sizes: {', '.join(graph.symbols)}; bind"
            " them, as graph.bind({name: size}) or rlx compile --dim name=size does"
        )
    given = param_arrays(graph, {**graph.param_values, **params})
    values = {name: fixed(a) for name, a in given.items()}
    if missing := sorted(str(p.name) for p in graph.params if str(p.name) not in values):
        raise UnsupportedError(
            f"cortexm: the params {', '.join(missing)} have no values, which lie in flash; give"
            " params"
        )
    target = make_target(core.name)
    schedule = lowered(graph, Compilation(target))
    schedule, constants, launched = prologue_first(schedule)
    names = [f"rlx_{k.family}_{n}" for n, k in enumerate(schedule.kernels)]
    read = memories_of(schedule.main)
    packed = _packed(schedule, constants, launched, values, target)
    arrays = [*(values[name] for name, _, _ in schedule.params), *schedule.constants]
    kept = {n: np.asarray(a) for n, a in enumerate(arrays, FIRST_PARAM) if n in read}
    program = Program(graph.name, core, schedule, tuple(names), packed, kept)
    needed = sorted({step.kernel for step in launches(schedule.main)})
    kernels = [schedule.kernels[n] for n in needed]
    texts = [
        emit_kernel(k.family, names[n], k.config, target.kernels)
        for n, k in zip(needed, kernels, strict=True)
    ]
    return program, objects(texts, core)


def _packed(
    schedule: Schedule, constants: int, launched: int, values: Mapping[str, Array], target: Target
) -> Array:
    """What the prologue makes of params, on this machine: by the same kernels, compiled for it."""
    if not schedule.prologue:
        return np.zeros(0, np.uint8)
    features, kernels = detect(), schedule.kernels[:launched]
    texts = [emit_kernel(k.family, f"rlx_{n}", k.config, target.kernels)
             for n, k in enumerate(kernels)]  # fmt: skip
    code = compile_kernels(texts, features)
    key = digest(code)
    variant = Variant(
        features.name, features.machine_name, (), 0, schedule.packed_bytes, schedule.constants,
        constants, launched, prologue_words(schedule.prologue), main_words(()), [], schedule.sites,
        tuple(KernelCode(k.name, key, f"rlx_{n}") for n, k in enumerate(kernels)), {key: code}, {},
    )  # fmt: skip
    artifact = Artifact("cpu", schedule.params, [], [], (variant,))
    weights = Weights.of(artifact, Code(variant), ())
    for name, value in values.items():
        weights.set_param(name, value)
    return np.asarray(weights.packed())[: int(schedule.packed_bytes)]
