"""The oracle of programs for devices of many sizes, as ``support.symbolic`` is of schedules.

``judge`` compiles a graph with symbols at some sizes and compares, at all sizes given that meet the
guards, the program with that of the bound graph. Where a general one chose other kernels, both are
run on a device and must give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import rlx
from rlx.compiler.driver import compile_graph
from rlx.compiler.symbolic import compile_symbolic
from rlx.errors import FaultError
from rlx.ir.graph import Graph
from rlx.kernels.registry import load_families
from rlx.lowering.compilation import Options
from rlx.ops import load_all
from rlx.runtime import _native
from rlx.runtime.devices.gpu_executable import DeviceExecutable
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.schedule.sizes import in_order
from rlx.targets import find_target
from rlx.targets.gpu.program import GpuProgram
from support.symbolic import numbers_of, with_sizes

__all__ = ["judge"]


def judge(
    graph: Graph,
    at: Mapping[str, int],
    others: Iterable[Mapping[str, int]],
    target: str,
    session: rlx.Session | None,
    general: bool = False,
) -> tuple[int, list[str]]:
    """How many sizes met the guards, and what was found to differ there. ``session`` is of the
    target's device, if there is one."""
    load_all()
    machine = find_target(target)
    load_families(machine.families)
    made, _ = compile_symbolic(graph, at, machine, Options(), general=general)
    (variant,) = made.variants
    assert isinstance(variant, DeviceVariant)
    assert variant.sizes is not None
    bind = _native.SizeProgram(sizes=len(at), **variant.sizes.parts).bind
    assert bind(_key(at)) is not None, f"its own sizes {at} do not meet its guards"
    met, wrong = 0, list[str]()
    for sizes in (at, *others):
        if (found := bind(_key(sizes))) is None:
            continue
        met += 1
        given = variant.program.at(*found)
        (wanted,) = compile_graph(graph.bind(sizes), machine)[0].variants
        assert isinstance(wanted, DeviceVariant)
        differ = differences(given, wanted.program)
        if not differ or session is None:
            continue
        driver = session.backend.driver  # pyright: ignore
        if _bits(given, driver, sizes) != _bits(wanted.program, driver, sizes):
            wrong.append(f"compiled at {at}, bound to {sizes} on {target}: {'; '.join(differ)}")
    return met, wrong


def _key(sizes: Mapping[str, int]) -> list[int]:
    return [sizes[name] for name in in_order(sizes)]


def differences(a: GpuProgram, b: GpuProgram) -> list[str]:
    """The parts in which two programs differ, but for what people read."""
    parts: dict[str, Any] = {
        "kernels": lambda p: [k.name for k in p.kernels],
        "memories": lambda p: p.memories,
        "signatures": lambda p: (p.params, p.inputs, p.outputs),
        "steps": lambda p: (p.prologue, p.main),
        "constants": lambda p: [(c.dtype, c.shape, c.tobytes()) for c in p.constants],
    }
    return [name for name, of in parts.items() if of(a) != of(b)]


def _bits(program: GpuProgram, driver: Any, sizes: Mapping[str, int]) -> list[bytes] | str:
    """What a program computes on some numbers, or how it fails."""
    executable = DeviceExecutable(program, driver)
    rng = np.random.default_rng(0)
    for name, dt, shape in program.params:
        executable.set_param(name, numbers_of(rng, dt, shape))
    given = [numbers_of(rng, dt, shape) for _, dt, shape in program.inputs]
    try:
        return [a.tobytes() for a in executable.run_slots(*given)]
    except FaultError as e:
        return with_sizes(e.message, sizes)
