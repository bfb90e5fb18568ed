"""Programs of targets that take whole graphs, run by what stands for their devices.

Each stand-in is a function of a target's object and arrays: the reference interpreter of StableHLO
in the MLIR package, XLA's CPU client in jaxlib, MLX's own CPU device, and Core ML's own rules for
NumPy (``support.core_ml``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import FaultError
from rlx.targets import find_target
from rlx.types import dtype
from support.samples import Case

__all__ = ["STANDS", "Stand", "Stood", "by_interpreter", "by_xla"]

Array = np.ndarray[Any, Any]
Loaded = Callable[[Sequence[Array]], Sequence[Array]]
Loader = Callable[[bytes], Loaded]
"""A stand-in: from an object to what runs it on arrays."""


@dataclass(frozen=True)
class Stand:
    """What stands for the device of a target: how it loads an object, the package that it is in,
    the cases that it takes, and the ops that it runs on finite numbers only."""

    target: str
    load: Loader
    package: str = ""
    takes: Callable[[Case], bool] = lambda case: True
    finite: tuple[str, ...] = ()

    def missing(self) -> str:
        """Why it is not here; "" if it is."""
        there = not self.package or find_spec(self.package) is not None
        return "" if there else f"the package {self.package} is not installed"


class Stood:
    """A graph that was compiled for a target, and is run by a stand-in."""

    def __init__(self, graph: rlx.Graph, target: str, by: Loader) -> None:
        self.program, _ = compile_program(graph, find_target(target))
        self.loaded = by(self.program.kernels[0].code)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs; FaultError as a session raises it."""
        p = self.program
        given = [np.array(feeds[name], order="C") for name, _, _ in (*p.params, *p.inputs)]
        found = [np.asarray(a) for a in self.loaded(given)]
        if p.sites:
            code, site = map(int, found.pop())
            if code:
                raise FaultError.at_site(p.sites, code, site)
        outputs = [(dtype(dt).numpy, shape) for _, dt, shape in p.outputs]
        if p.target == "ane":  # models give no bools, no scalars and nothing that is empty
            rest = iter(found)
            found = [
                np.empty(s, dt) if 0 in s else next(rest).astype(dt).reshape(s) for dt, s in outputs
            ]
        assert [(a.dtype, a.shape) for a in found] == outputs
        return found


# -- StableHLO's reference interpreter -----------------------------------------------------


@cache
def _context() -> Any:
    from rlx import _mlir

    context = _mlir.context()
    _mlir.stablehlo().register_dialect(context)
    return context


def _attribute(a: Array) -> Any:
    from rlx._mlir import ir
    from rlx.targets.tpu.text import dense

    return ir.Attribute.parse(dense(a, dtype(a.dtype), a.shape))


def by_interpreter(code: bytes) -> Loaded:
    """A portable artifact by the reference interpreter. What it cannot run ends the process."""
    from rlx import _mlir
    from rlx._mlir import ir

    context = _context()
    module = _mlir.stablehlo_module(code, context)

    def run(arrays: Sequence[Array]) -> list[Array]:
        with context, ir.Location.unknown():
            found = _mlir.stablehlo().eval_module(module, [_attribute(a) for a in arrays])
            return [_elements(a) for a in found]

    return run


def _elements(a: Any) -> Array:
    from rlx._mlir import ir

    t = ir.ShapedType(a.type)
    if str(t.element_type) != "bf16":
        return np.array(a).reshape(t.shape)
    # MLIR's Python reads no bf16; its text has decimals, or bits in hexadecimal digits.
    kind, text = dtype("bf16").numpy, str(a)
    if found := re.match(r'dense<"0x(\w*)">', text):
        return np.frombuffer(bytes.fromhex(found[1]), kind).reshape(t.shape)
    words = re.findall(r"0x\w+|-?[\d.]+(?:[eE][-+]\d+)?", text.partition(">")[0])
    bits = [int(w, 16) if "x" in w else int(kind.type(float(w)).view("u2")) for w in words]
    flat = np.array(bits, np.uint16).view(kind)
    assert flat.size in (1, np.prod(t.shape, dtype=int)), text
    return np.resize(flat, t.shape)  # one stands for all


# -- XLA's CPU client ----------------------------------------------------------------------


@cache
def _xla() -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    client = xla_client.make_cpu_client()
    return client, client.local_devices()[0], xla_client


def by_xla(code: bytes) -> Loaded:
    """A portable artifact by XLA, compiled for the processor."""
    import jax

    client, device, xla = _xla()
    program = client.compile_and_load(code, xla.DeviceList((device,)), xla.CompileOptions())

    def run(arrays: Sequence[Array]) -> list[Array]:
        found = program.execute([jax.device_put(a, device) for a in arrays])
        return [np.asarray(a) for a in found]

    return run


def by_mlx(code: bytes) -> Loaded:
    """A function of MLX's, on its device here."""
    from rlx.targets.mlx.launch import MlxDriver

    driver = MlxDriver()
    loaded = driver.load(code)

    def run(arrays: Sequence[Array]) -> list[Array]:
        found = loaded(*map(driver.put, arrays))
        return [_of_mlx(a) for a in found]

    return run


def _of_mlx(a: Any) -> Array:
    from rlx.targets.mlx.words import from_mlx

    name = str(a.dtype).removeprefix("mlx.core.").rstrip("_")
    return from_mlx(a, dtype(name))


def by_core_ml(code: bytes) -> Loaded:
    """A package of Core ML's, by Apple's own rules for NumPy."""
    from rlx.targets.ane.launch import AneDriver
    from support.core_ml import predictor

    driver = AneDriver(predictor)
    predict, inputs, outputs = driver.load(code)

    def run(arrays: Sequence[Array]) -> list[Array]:
        given = dict(zip(inputs, (driver.put(a) for a in arrays if a.size), strict=True))
        found = predict(given)
        return [found[name] for name in outputs]

    return run


def _real(case: Case) -> bool:
    """Whether a case has no complex numbers, on which the interpreter ends the process."""
    node = case.node()
    values = (*node.present, *node.results)
    return "fft" not in case.op.name and not any(v.dtype.is_complex for v in values)


GROUPED = (
    "hir.depthwise_conv1d_causal", "mir.conv", "mir.conv_transpose", "mir.conv_weights",
)  # fmt: skip
"""XLA makes one convolution of grouped ones, with zeros for the weights between groups: times an
infinity they are nan."""

STANDS = {
    "interpreter": Stand("tpu", by_interpreter, takes=_real),
    "core_ml": Stand("ane:iOS17-f32", by_core_ml, "coremltools"),
    "mlx": Stand("mlx", by_mlx, "mlx"),
    "xla": Stand("tpu", by_xla, "jaxlib", finite=GROUPED),
}
"""The stand-ins by name."""
