"""From a lir module to the schedule that it says, for what is given as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import place_of, trail_of
from rlx.dialects.convert import dtype_of, from_attr
from rlx.dialects.lir import check_extent
from rlx.errors import IRError, UnsupportedError
from rlx.kernels.registry import config_classes
from rlx.lowering.base import functions
from rlx.lowering.passes.text_config import decode
from rlx.schedule.plan import ROLES, KernelRef, PrologueStep, Role, Schedule, Signature, Site
from rlx.schedule.steps import For, If, Launch, Layout, Origin, Place, Step, While

__all__ = ["read_schedule"]

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
        reader = _Reader(found["main"], names)
        main = reader.entry(_body(found["main"]))
        prologue: tuple[PrologueStep, ...] = ()
        if "prologue" in found:
            again = _Reader(found["prologue"], names)
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


class _Reader:
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
        return self.memory_bytes.get(role, 0)

    def entry(self, block: ir.Block) -> Steps:
        """The steps of an entry, and the params that each follows."""
        steps: list[Step[Place]] = []
        for op, step in self._steps(block):
            steps.append(step)
            self.follows.append(tuple(sorted(_params(op))))
        return tuple(steps)

    def _block(self, block: ir.Block) -> Steps:
        return tuple([step for _, step in self._steps(block)])

    def _steps(self, block: ir.Block) -> Iterator[tuple[ir.Operation, Step[Place]]]:
        """The steps of a block in order. A test must stand right before what it decides: a step in
        between might change what it reads, and the runtime reads late."""
        tested: ir.Value | None = None
        for view in block.operations:
            op = view.operation
            if op.name == "lir.count" and op not in self.counts:
                message = (
                    "lir.count must stand before the steps of the scf.for whose round it stores"
                )
                raise IRError(message, place_of(op))
            if op.name == "lir.test":
                tested = op.results[0]
            elif op.name in _ENDS or self._value(op):
                continue
            elif op.name in _STEPS:
                if op.name == "scf.if" and (tested is None or op.operands[0] != tested):
                    raise IRError(
                        "an scf.if takes a lir.test that stands right before it", place_of(op)
                    )
                yield op, _STEPS[op.name](self, op)
                tested = None
            else:
                raise UnsupportedError(
                    f"{op.name} is no step of a schedule; there are {', '.join(_STEPS)}",
                    place_of(op),
                )

    def _value(self, op: ir.Operation) -> bool:
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

    def _place(self, v: ir.Value, what: str, op: ir.Operation) -> Place:
        if v not in self.places_of:
            raise IRError(f"{what} must be a lir.view", place_of(op))
        return self.places_of[v]

    # -- steps -----------------------------------------------------------------------------

    def launch(self, op: ir.Operation) -> Step[Place]:
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

    def branch(self, op: ir.Operation) -> Step[Place]:
        _no_values(op, op.results)
        flag = self._flag(op.operands[0], op)
        then, otherwise = (self._block(r.blocks[0]) if len(r.blocks) else () for r in op.regions)
        return If(flag, then, otherwise, _origin(op))

    def loop(self, op: ir.Operation) -> Step[Place]:
        """A loop over constant bounds. A ``lir.count`` at the head of its body stores the round."""
        _no_values(op, op.results)
        bounds = [self.sizes.get(v) for v in list(op.operands)[:3]]
        if any(b is None for b in bounds):
            raise UnsupportedError("bounds and step of an scf.for must be constants", place_of(op))
        low, high, step = (b or 0 for b in bounds)
        if low != 0 or step != 1:
            message = f"an scf.for counts from {low} in steps of {step}, expected 0 and 1"
            raise UnsupportedError(message, place_of(op))
        block = op.regions[0].blocks[0]
        counter = None
        self.rounds[block.arguments[0]] = max(high, 0)
        for view in block.operations:
            inner = view.operation
            if inner.name == "lir.count" and inner.operands[0] == block.arguments[0]:
                counter = self._place(inner.operands[1], "the place of a count", inner)
                self.counts.append(inner)
                break
            if not self._value(inner):
                break
        steps = self._block(block)
        del self.rounds[block.arguments[0]]
        reverse = "lir.reverse" in op.attributes
        return For(max(high, 0), steps, counter, reverse, _origin(op))

    def repeat(self, op: ir.Operation) -> Step[Place]:
        """``while``: the steps of the first region, its test, the steps of the second."""
        _no_values(op, [*op.operands, *op.results])
        before, body = (r.blocks[0] for r in op.regions)
        end = list(before.operations)[-1].operation
        conditions = self._block(before)
        flag = self._flag(end.operands[0], end)
        last = [
            v.operation for v in before.operations if v.operation.name in ("lir.test", *_STEPS)
        ][-1]
        if last.name != "lir.test":
            raise IRError(
                "an scf.while takes a lir.test that ends its first region", place_of(last)
            )
        limit, site = (
            ir.IntegerAttr(op.attributes[k]).value if k in op.attributes else default
            for k, default in (("lir.limit", -1), ("lir.site", 0))
        )
        if limit < -1:
            raise IRError(f"lir.limit is {limit}, expected -1 (none) or more", place_of(op))
        return While(conditions, flag, self._block(body), limit, site, _origin(op))

    def _flag(self, v: ir.Value, op: ir.Operation) -> Place:
        test = None if isinstance(v.owner, ir.Block) else v.owner.operation
        if test is None or test.name != "lir.test":
            raise IRError(f"the condition of {op.name} must be a lir.test", place_of(op))
        return self._place(test.operands[0], "what lir.test reads", test)


_STEPS: dict[str, Callable[[_Reader, ir.Operation], Step[Place]]] = {
    "func.call": _Reader.launch,
    "scf.if": _Reader.branch,
    "scf.for": _Reader.loop,
    "scf.while": _Reader.repeat,
}
_ENDS = ("func.return", "scf.yield", "scf.condition", "lir.count")


def _no_values(op: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Steps pass data through memory: a structured step carries no values."""
    if len(values):
        raise UnsupportedError(f"{op.name} of a schedule carries no values", place_of(op))


def _layout(view: ir.Operation) -> Layout:
    shape, strides = (tuple(ir.DenseI64ArrayAttr(view.attributes[k])) for k in ("shape", "strides"))
    dtype = dtype_of(view.results[0].type.element_type).name
    return Layout(dtype, shape, strides, (trail_of(view.location),))


def _origin(op: ir.Operation) -> Origin:
    return Origin(place_of(op), trail_of(op.location))


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
