"""From a lir module to its schedule, for what is given as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of, trail_of
from rlx.dialects.convert import dtype_of, from_attr
from rlx.dialects.lir import check_extent
from rlx.errors import IRError, UnsupportedError
from rlx.kernels.registry import config_classes
from rlx.lowering.functions import functions
from rlx.lowering.passes.lir_control import FORMS
from rlx.lowering.passes.text_config import decode
from rlx.schedule.plan import ROLES, KernelRef, PrologueStep, Role, Schedule, Signature, Site
from rlx.schedule.steps import Launch, Layout, Origin, Place, Step

__all__ = ["Reader", "read_schedule"]

Steps = tuple[Step[Place], ...]
Where = tuple[str, int]
SIGNED: tuple[Role, ...] = ("param", "constant", "input", "output")


def read_schedule(module: ir.Module) -> Schedule:
    """Read a lir module; IRError says what is no lir."""
    with module.context:
        found = functions(module)
        if "main" not in found:
            raise IRError("a lir module needs a function @main")
        attrs = module.operation.attributes
        kernels = [_kernel(name, f) for name, f in found.items() if "lir.family" in f.attributes]
        names = {k.name: n for n, k in enumerate(kernels)}
        reader = Reader(found["main"], names)
        main = reader.entry(_body(found["main"]))
        prologue: tuple[PrologueStep, ...] = ()
        if "prologue" in found:
            again = Reader(found["prologue"], names)
            steps = again.entry(_body(found["prologue"]))
            prologue = tuple(zip(steps, again.follows, strict=True))
        signatures = reader.signatures
        constants = [_constant(module, i) for i in range(len(signatures["constant"]))]
        sites = _read(attrs, "lir.sites", ir.ArrayAttr) if "lir.sites" in attrs else []
        return Schedule(
            _read(attrs, "lir.target", ir.StringAttr).value if "lir.target" in attrs else "cpu",
            tuple(kernels), reader.bytes_of("arena"), reader.bytes_of("packed"),
            signatures["param"], constants, signatures["input"], signatures["output"],
            prologue, main, [_site(a) for a in sites], _slots(attrs), reader.trails,
        )  # fmt: skip


def _slots(attrs: Any) -> dict[Role, list[int]]:
    """Where the buffers of memories begin, in order from 0; IRError if they do not."""
    found: dict[Role, list[int]] = {}
    roles: tuple[Role, Role] = ("arena", "packed")
    for role in roles:
        if (key := f"lir.{role}_slots") in attrs:
            found[role] = starts = list(_read(attrs, key, ir.DenseI64ArrayAttr))
            if starts[:1] != [0] or sorted(set(starts)) != starts:
                raise IRError(f"{key} must be numbers that rise from 0, found {starts}")
    return found


def _body(entry: ir.Operation) -> ir.Block:
    blocks = len(entry.regions[0].blocks)
    if blocks != 1:
        raise IRError(f"a lir entry has one block, found {blocks}", place_of(entry))
    return entry.regions[0].blocks[0]


def _kernel(name: str, f: ir.Operation) -> KernelRef:
    if "lir.config" not in f.attributes:
        raise IRError(f"kernel @{name} needs lir.config", place_of(f))
    family = _read(f.attributes, "lir.family", ir.StringAttr, place_of(f)).value
    try:
        return KernelRef(name, family, decode(f.attributes["lir.config"], config_classes(family)))
    except (TypeError, ValueError, KeyError) as e:
        raise IRError(f"the config of @{name} is not one of {family}: {e}", place_of(f)) from e


def _constant(module: ir.Module, index: int) -> Any:
    attrs, key = module.operation.attributes, f"lir.constant{index}"
    if key not in attrs:
        raise IRError(f"the module needs {key}, the value of its constant {index}")
    try:
        return from_attr(attrs[key], "Array")
    except (TypeError, ValueError) as e:
        raise IRError(f"{key} holds no elements: {e}") from None


def _read(attrs: Any, key: str, kind: Any, place: Where | None = None) -> Any:
    """An attribute that is there, as one of its kind."""
    if not isinstance(attrs[key], kind):
        raise IRError(f"{key} is {attrs[key]}, expected a {kind.__name__}", place)
    return attrs[key]


def _site(a: ir.Attribute) -> Site:
    if not isinstance(a, ir.DictAttr) or any(key not in a for key in ("message", "file", "line")):
        raise IRError(f"an entry of lir.sites needs message, file and line, found {a}")
    return (
        _read(a, "message", ir.StringAttr).value,
        _read(a, "file", ir.StringAttr).value,
        _read(a, "line", ir.IntegerAttr).value,
    )


class Reader:
    """Reads one entry: where its arguments lie, then its steps."""

    def __init__(self, entry: ir.Operation, kernels: dict[str, int]) -> None:
        self.kernels = kernels
        self.base: dict[ir.Value, int] = {}
        self.memory_bytes: dict[str, int] = {}
        self.signatures: dict[Role, list[Signature]] = {r: [] for r in SIGNED}
        self.trails: dict[Role, list[str]] = {r: [] for r in SIGNED}
        self.follows: list[tuple[int, ...]] = []
        self.places_of: dict[ir.Value, Place] = {}
        self.sizes: dict[ir.Value, int] = {}
        self.counts: list[ir.Operation] = []
        self.tested: ir.Value | None = None  # by the op right before
        self.steps = tuple(_STEPS)
        self.rounds: dict[ir.Value, int] = {}  # of the loops that are open, how many there are
        marks = (
            list(ir.ArrayAttr(entry.attributes["arg_attrs"]))
            if "arg_attrs" in entry.attributes
            else []
        )
        arguments = list(entry.regions[0].blocks[0].arguments)
        if len(marks) != len(arguments):
            raise IRError("every argument of a lir entry needs lir.role", place_of(entry))
        for i, (arg, mark) in enumerate(zip(arguments, marks, strict=True)):
            self._argument(i, arg, ir.DictAttr(mark), place_of(entry))

    def _argument(self, number: int, arg: ir.Value, mark: ir.DictAttr, place: Where) -> None:
        role = _read(mark, "lir.role", ir.StringAttr, place).value if "lir.role" in mark else "?"
        if role not in ROLES:
            raise IRError(f"lir.role is {role!r}, expected one of {', '.join(ROLES)}", place)
        if not isinstance(arg.type, ir.MemRefType) or not arg.type.has_static_shape:
            raise IRError(f"a memory is a memref of static shape, found {arg.type}", place)
        self.base[arg] = number
        if role in self.signatures:
            if "lir.name" not in mark:
                raise IRError(f"the {role} at argument {number} needs lir.name", place)
            name = _read(mark, "lir.name", ir.StringAttr, place).value
            dtype = dtype_of(arg.type.element_type).name
            self.signatures[role].append((name, dtype, tuple(arg.type.shape)))
            self.trails[role].append(trail_of(arg.location))
        elif role in ("arena", "packed"):
            self._bytes(role, arg.type, place)

    def _bytes(self, role: str, t: ir.MemRefType, place: Where) -> None:
        if t.rank != 1 or str(t.element_type) != "i8":
            raise IRError(f"the {role} is a memref of bytes, memref<Nxi8>, found {t}", place)
        if role in self.memory_bytes:
            raise IRError(f"there are two arguments with the role {role}, expected one", place)
        self.memory_bytes[role] = t.shape[0]

    def bytes_of(self, role: str) -> int:
        """The bytes of the arena or of packed memory."""
        return self.memory_bytes.get(role, 0)

    def entry(self, block: ir.Block) -> Steps:
        """The steps of an entry, and the params that each follows."""
        steps: list[Step[Place]] = []
        for op, step in self._steps(block):
            steps.append(step)
            self.follows.append(tuple(sorted(_params(op))))
        return tuple(steps)

    def block(self, block: ir.Block) -> Steps:
        """The steps of a block inside a step."""
        return tuple([step for _, step in self._steps(block)])

    def _steps(self, block: ir.Block) -> Iterator[tuple[ir.Operation, Step[Place]]]:
        """The steps of a block in order. A test must stand right before what it decides: a step in
        between might change what it reads, and the runtime reads late."""
        self.tested = None
        for view in block.operations:
            op = view.operation
            if op.name == "lir.count" and op not in self.counts:
                message = (
                    "lir.count must stand before the steps of the scf.for whose round it stores"
                )
                raise IRError(message, place_of(op))
            if op.name == "lir.test":
                self.tested = op.results[0]
            elif op.name in _ENDS or self.value(op):
                continue
            elif op.name in _STEPS:
                yield op, _STEPS[op.name](self, op)
                self.tested = None
            else:
                raise UnsupportedError(
                    f"{op.name} is no step of a schedule; there are {', '.join(_STEPS)}",
                    place_of(op),
                )

    def value(self, op: ir.Operation) -> bool:
        """Note a value that steps refer to: a place or a size."""
        if op.name == "lir.view":
            if op.operands[0] not in self.base:
                raise IRError("lir.view: its base is no argument of the entry", place_of(op))
            offset = ir.IntegerAttr(op.attributes["offset"]).value
            base = self.base[op.operands[0]]
            self.places_of[op.results[0]] = Place(base, offset, self._moves(op), _layout(op))
        elif op.name == "arith.constant":
            value = op.attributes["value"]
            if isinstance(value, ir.IntegerAttr):
                self.sizes[op.results[0]] = value.value
        else:
            return False
        return True

    def _moves(self, op: ir.Operation) -> tuple[tuple[int, int], ...]:
        """The loops with whose rounds a view moves, by depth, and the bytes that it moves."""
        rounds = list(op.operands)[1:]
        if not rounds:
            return ()
        depth = {v: n for n, v in enumerate(self.rounds)}
        if any(v not in depth for v in rounds):
            raise IRError("a lir.view moves with the rounds of an scf.for around it", place_of(op))
        steps = list(ir.DenseI64ArrayAttr(op.attributes["moves"]))
        moved = sum(
            step * max(self.rounds[v] - 1, 0) for v, step in zip(rounds, steps, strict=True)
        )
        try:
            check_extent(op, moved)
        except IRError as e:
            raise IRError(f"lir.view: {e.message}", place_of(op)) from None
        return tuple([(depth[v], step) for v, step in zip(rounds, steps, strict=True)])

    def place(self, v: ir.Value, what: str, op: ir.Operation) -> Place:
        """The place of a view that an op reads; IRError that names ``what``."""
        if v not in self.places_of:
            raise IRError(f"{what} must be a lir.view", place_of(op))
        return self.places_of[v]

    # -- steps -----------------------------------------------------------------------------

    def launch(self, op: ir.Operation) -> Step[Place]:
        """A call of a kernel."""
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        if name not in self.kernels:
            raise IRError(f"@{name} is no kernel: it has no lir.family", place_of(op))
        attrs = op.attributes
        for key in ("lir.range", "lir.grain", "lir.scratch"):
            if key not in attrs or not isinstance(attrs[key], ir.IntegerAttr):
                raise IRError(f"a launch of @{name} needs {key}, an i64", place_of(op))
        count, grain, scratch = (attrs[f"lir.{k}"].value for k in ("range", "grain", "scratch"))
        if count < 0 or grain < 1 or scratch < 0:
            message = f"found range {count}, grain {grain} and scratch {scratch}"
            raise IRError(f"{message}, expected at least 0, 1 and 0", place_of(op))
        places = tuple(self.places_of[v] for v in op.operands if v in self.places_of)
        sizes = tuple(self.sizes[v] for v in op.operands if v in self.sizes)
        if len(places) + len(sizes) != len(op.operands):
            raise IRError(f"arguments of @{name} are views, then constants", place_of(op))
        return Launch(self.kernels[name], (count, grain, scratch), places, sizes, _facts(op))


_STEPS: dict[str, Callable[[Reader, ir.Operation], Step[Place]]] = {
    "func.call": Reader.launch,
    **{form.op: form.read for form in FORMS.values()},
}
_ENDS = ("func.return", "scf.yield", "scf.condition", "lir.count")


def _layout(view: ir.Operation) -> Layout:
    shape, strides = (tuple(ir.DenseI64ArrayAttr(view.attributes[k])) for k in ("shape", "strides"))
    dtype = dtype_of(view.results[0].type.element_type).name
    return Layout(dtype, shape, strides, (trail_of(view.location),))


def _facts(op: ir.Operation) -> Origin:
    """What a launch says of what it is for; it may leave out all but its place."""
    found: dict[str, Any] = {"lir.ops": "", "lir.flops": 0, "lir.bytes": 0}
    for key, default in found.items():
        if key in op.attributes:
            found[key] = getattr(op.attributes[key], "value", None)
            if type(found[key]) is not type(default) or (default == 0 and found[key] < 0):
                what = "a string" if default == "" else "an i64 of at least 0"
                message = f"{key} must be {what}, found {op.attributes[key]}"
                raise IRError(message, place_of(op))
    facts = (found["lir.ops"], found["lir.flops"], found["lir.bytes"])
    return Origin(place_of(op), trail_of(op.location), *facts)


def _params(op: ir.Operation) -> set[int]:
    """The params that a step follows: what its ``lir.when`` and those inside it list."""
    found = (
        set(ir.DenseI64ArrayAttr(op.attributes["lir.when"]))
        if "lir.when" in op.attributes
        else set[int]()
    )
    for region in op.regions:
        for block in region.blocks:
            found.update(*(_params(v.operation) for v in block.operations))
    return found
