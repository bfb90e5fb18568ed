"""From a lir module to plain data: the schedule that the runtime walks, and the kernels it calls.

This is the last reading of MLIR. The result holds numbers and names alone and can be written as
JSON; it starts as well from lir text as from a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of
from rlx.dialects.convert import dtype_of, from_attr
from rlx.dialects.lir import ROLES
from rlx.errors import IRError, UnsupportedError
from rlx.kernels.configs import config_classes
from rlx.lowering.base import functions
from rlx.lowering.config import decode

__all__ = ["KernelRef", "Schedule", "read_schedule"]

Signature = tuple[str, str, tuple[int, ...]]
Step = tuple[Any, ...]


@dataclass(frozen=True)
class KernelRef:
    """A kernel that a schedule calls: its name there, its family, and its config."""

    name: str
    family: str
    config: Any


@dataclass
class Schedule:
    """A schedule as plain data. A launch names its kernel where the runtime wants an address; the
    bases of buffers are numbered as ``rlx.runtime._native`` says, constants following the params."""

    target: str
    kernels: list[KernelRef]
    arena_bytes: int
    packed_bytes: int
    params: list[Signature]
    constants: list[Any]
    inputs: list[Signature]
    outputs: list[Signature]
    prologue: list[tuple[Step, tuple[int, ...]]]
    main: list[Step]
    places: list[tuple[str, int]]
    sites: list[tuple[str, str, int]]


def read_schedule(module: ir.Module) -> Schedule:
    """Read a lir module; IRError says what is no lir."""
    with module.context:
        found = functions(module)
        if "main" not in found:
            raise IRError("a lir module needs a function @main")
        attrs = module.operation.attributes
        kernels = [_kernel(name, f) for name, f in found.items() if "lir.family" in f.attributes]
        reader = _Reader(found["main"], {k.name for k in kernels})
        main = reader.block(found["main"].regions[0].blocks[0])
        places = list(reader.places)
        prologue: list[tuple[Step, tuple[int, ...]]] = []
        if "prologue" in found:
            again = _Reader(found["prologue"], {k.name for k in kernels})
            steps = again.block(found["prologue"].regions[0].blocks[0])
            prologue = list(zip(steps, again.follows, strict=True))
        signatures = reader.signatures
        constants = [from_attr(attrs[f"lir.constant{i}"], "Array") for i in range(len(signatures["constant"]))]
        sites = [_site(a) for a in ir.ArrayAttr(attrs["lir.sites"])] if "lir.sites" in attrs else []
        return Schedule(
            ir.StringAttr(attrs["lir.target"]).value if "lir.target" in attrs else "cpu",
            kernels, reader.bytes_of("arena"), reader.bytes_of("packed"),
            signatures["param"], constants, signatures["input"], signatures["output"],
            prologue, main, places, sites,
        )  # fmt: skip


def _kernel(name: str, f: ir.Operation) -> KernelRef:
    family = ir.StringAttr(f.attributes["lir.family"]).value
    return KernelRef(name, family, decode(f.attributes["lir.config"], config_classes()))


def _site(a: ir.Attribute) -> tuple[str, str, int]:
    d = ir.DictAttr(a)
    return ir.StringAttr(d["message"]).value, ir.StringAttr(d["file"]).value, ir.IntegerAttr(d["line"]).value


class _Reader:
    """Reads one entry: where its arguments lie, then its steps."""

    def __init__(self, entry: ir.Operation, kernels: set[str]) -> None:
        self.kernels = kernels
        self.base: dict[ir.Value, int] = {}
        self.memory_bytes: dict[str, int] = {}
        self.signatures: dict[str, list[Signature]] = {r: [] for r in ("param", "constant", "input", "output")}
        self.follows: list[tuple[int, ...]] = []
        self.places: list[tuple[str, int]] = []
        self.places_of: dict[ir.Value, tuple[int, int]] = {}
        self.sizes: dict[ir.Value, int] = {}
        marks = ir.ArrayAttr(entry.attributes["arg_attrs"]) if "arg_attrs" in entry.attributes else []
        arguments = list(entry.regions[0].blocks[0].arguments)
        if len(list(marks)) != len(arguments):
            raise IRError("every argument of a lir entry needs lir.role", place_of(entry))
        for i, (arg, mark) in enumerate(zip(arguments, marks, strict=True)):
            self._argument(i, arg, ir.DictAttr(mark))

    def _argument(self, number: int, arg: ir.Value, mark: ir.DictAttr) -> None:
        role = ir.StringAttr(mark["lir.role"]).value if "lir.role" in mark else "?"
        if role not in ROLES:
            raise IRError(f"lir.role is {role!r}, expected one of {', '.join(ROLES)}")
        self.base[arg] = number
        t = ir.MemRefType(arg.type)
        if role in self.signatures:
            name = ir.StringAttr(mark["lir.name"]).value
            self.signatures[role].append((name, dtype_of(t.element_type).name, tuple(t.shape)))
        elif role != "error":
            self.memory_bytes[role] = t.shape[0]

    def bytes_of(self, role: str) -> int:
        return self.memory_bytes.get(role, 0)

    def block(self, block: ir.Block) -> list[Step]:
        steps: list[Step] = []
        for view in block.operations:
            op = view.operation
            if op.name == "func.call":
                steps.append(self._launch(op))
            elif op.name == "lir.view":
                offset = ir.IntegerAttr(op.attributes["offset"]).value
                self.places_of[op.results[0]] = (self.base[op.operands[0]], offset)
            elif op.name == "arith.constant":
                self.sizes[op.results[0]] = ir.IntegerAttr(op.attributes["value"]).value
            elif op.name != "func.return":
                raise UnsupportedError(f"{op.name} in a schedule is not carried out yet", place_of(op))
        return steps

    def _launch(self, op: ir.Operation) -> Step:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        if name not in self.kernels:
            raise IRError(f"@{name} is no kernel: it has no lir.family", place_of(op))
        attrs = op.attributes
        for key in ("lir.range", "lir.grain", "lir.scratch"):
            if key not in attrs:
                raise IRError(f"a launch of @{name} needs {key}", place_of(op))
        count, grain, scratch = (ir.IntegerAttr(attrs[f"lir.{k}"]).value for k in ("range", "grain", "scratch"))
        refs = tuple(self.places_of[v] for v in op.operands if v in self.places_of)
        sizes = tuple(self.sizes[v] for v in op.operands if v in self.sizes)
        if len(refs) + len(sizes) != len(op.operands):
            raise IRError(f"arguments of @{name} are views, then constants", place_of(op))
        self.follows.append(tuple(ir.DenseI64ArrayAttr(attrs["lir.when"])) if "lir.when" in attrs else ())
        self.places.append(place_of(op))
        return ("launch", name, count, grain, scratch, refs, sizes)
