"""Random graphs for the devices of GPU APIs: of what they run, and mostly of narrow types."""

from __future__ import annotations

from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.runtime.devices.available import target_here
from rlx.targets import find_target
from rlx.types import DType, bf16, bool_, f16, f32, i8, i16, i32, u8, u16
from support.conformance import SLOW
from support.drivers import STAND_INS
from support.random_graphs import Array, Builder, Case, Skip, random_case

__all__ = ["case_on"]

TYPES = (f32, f32, f32, f16, f16, bf16, i8, u8, i16, u16, i32, bool_)


def case_on(api: str, seed: int, size: int | None = None) -> Case:
    """The case of a seed for the device of an API. Inputs are finite: what becomes of infinities on
    each of them is asked op by op, by ``support.conformance``."""
    return random_case(seed, size, kind=_builder(api))


def _builder(api: str) -> type[Builder]:
    """What builds graphs of the ops and element types that a device runs, without those ops that
    take its compiler minutes."""
    here = None if api in STAND_INS else target_here(api)
    lacks = frozenset(find_target(here or api).kernels.lacks)
    slow = SLOW.get(api, ())

    class OnDevice(Builder):
        likely = tuple(t for t in TYPES if t not in lacks)

        def array(self, shape: tuple[int, ...], dt: DType, kind: str = "normal") -> Array:
            if dt in lacks:
                raise Skip(f"{api} lacks {dt}")
            return super().array(shape, dt, kind)

        def take(self, op: Op) -> Value:
            if op.name in slow or not lacks.isdisjoint(v.dtype for v in (*op.present, *op.results)):
                raise Skip(f"{api} does not run {op!r}")
            return super().take(op)

    return OnDevice
