"""From mir to the program of a target that takes whole graphs: one object and one launch.

The walk asks the node of each op (``node_of``) for its class and attributes: a pointwise op goes by
its formula, another by its row. What the system cannot say is collected, and refused at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.control import control_of, is_barrier
from rlx.dialects.convert import from_type
from rlx.errors import UnsupportedError
from rlx.ir.op import Op
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import argument_marks, functions, output_names
from rlx.ops.control.control import Control
from rlx.schedule.plan import ROLES, LaunchInfo, Role, Signature, Site
from rlx.schedule.steps import Launch, Place
from rlx.targets.gpu.program import GpuProgram, Memory
from rlx.targets.gpu.work import Binding, Kernel
from rlx.targets.graph.rows import Rows
from rlx.targets.graph.system import Asked
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Refused, Whole, value_of

__all__ = ["WholeProgram", "whole_program"]

Found = Tensor | None
"""A value of the program; None where an op before it was refused."""


class WholeProgram:
    """A module on its way to a program: ``sites`` and ``refused`` are known once it was written."""

    def __init__(self, module: ir.Module, compilation: Compilation) -> None:
        self.compilation, self.target = compilation, compilation.target
        system = self.target.system
        assert system is not None, "the target takes whole graphs"
        self.system, self.rows = system, system.rows
        self.functions = functions(module)
        self.main = self.functions["main"]
        self.sites: list[Site] = []
        self.refused: dict[tuple[str, str], tuple[int, tuple[str, int]]] = {}
        self.counts: Counter[str] = Counter()
        block = self.main.regions[0].blocks[0]
        self.params: list[Signature] = []
        self.inputs: list[Signature] = []
        self._order: list[int] = []  # the argument of main that each of the program's is
        self._read_arguments(block)
        names = output_names(self.main)
        returned = list(block.operations)[-1].operation.operands
        self.outputs = [_signature(n, v) for n, v in zip(names, returned, strict=True)]

    def _read_arguments(self, block: ir.Block) -> None:
        params: list[int] = []
        inputs: list[int] = []
        marks = argument_marks(self.main)
        for i, (arg, mark) in enumerate(zip(block.arguments, marks, strict=True)):
            named = ir.DictAttr(mark)
            key = "rlx.param" if "rlx.param" in named else "rlx.input"
            signature = _signature(ir.StringAttr(named[key]).value, arg)
            (self.params if key == "rlx.param" else self.inputs).append(signature)
            (params if key == "rlx.param" else inputs).append(i)
        self._order = [*params, *inputs]

    def write(self, stage: str) -> bytes:
        """The file of a stage. UnsupportedError lists what the target cannot say."""
        self._check_types()
        from rlx.types import dtype

        names = [s for s in (*self.params, *self.inputs)]
        arguments = tuple((name, dtype(dt), shape) for name, dt, shape in names)
        outputs = tuple(name for name, _, _ in self.outputs)
        asked = Asked("rlx", self.target.kernels, arguments, self._walk, outputs)
        try:
            return self.system.write(asked, stage)
        except Refused as e:  # of an argument or an output
            raise UnsupportedError(f"{self.target.spec} does not run: {e}") from None

    def _walk(self, k: Whole, arguments: Sequence[Tensor]) -> list[Tensor]:
        self.refused, self.counts, self.sites = {}, Counter(), []
        args: list[Found] = [None] * len(arguments)
        for i, t in zip(self._order, arguments, strict=True):
            args[i] = t
        found = self.block(k, self.main, args)
        if self.refused:
            raise UnsupportedError(self._said(), next(iter(self.refused.values()))[1])
        outputs = [t for t in found if t is not None]
        assert len(outputs) == len(found), "what is not there was refused"
        record = k.record()
        return outputs if record is None else [*outputs, record]

    def _said(self) -> str:
        listed = [
            f"{name} x {n} (first at {file}:{line}): {why}"
            for (name, why), (n, (file, line)) in self.refused.items()
        ]
        return f"{self.target.spec} does not run: " + "; ".join(listed)

    def block(self, k: Whole, f: ir.Operation, args: Sequence[Found]) -> list[Found]:
        """The results of a function on arguments."""
        block = f.regions[0].blocks[0]
        env: dict[ir.Value, Found] = dict(zip(block.arguments, args, strict=True))
        *ops, end = (view.operation for view in block.operations)
        for op in ops:
            operands = [None if v is None else env[v] for v in _operands(op)]
            present = [v is not None for v in _operands(op)]
            if any(there and t is None for there, t in zip(present, operands, strict=True)):
                found: Sequence[Found] = [None] * len(op.results)
            else:
                found = self._op(k, op, operands)
            env.update(zip(op.results, found, strict=True))
        return [env[v] for v in end.operands]

    def _op(self, k: Whole, op: ir.Operation, operands: Sequence[Found]) -> Sequence[Found]:
        sites = len(k.sites)
        try:
            if op.name == "func.call":
                return self._call(k, op, operands)
            node = node_of(op)
            self.counts[node.short] += 1
            return _said_by(k, node, operands, self.rows)
        except Refused as e:
            self._refuse(op, str(e))
            return [None] * len(op.results)
        finally:
            place = place_of(op)
            self.sites += [(message, *place) for message in k.sites[sites:]]

    def _check_types(self) -> None:
        """UnsupportedError lists the ops on element types that the target lacks."""
        self.refused = {}
        for f in self.functions.values():
            for block in f.regions[0].blocks if len(f.regions[0].blocks) else ():
                for op in (view.operation for view in block.operations):
                    for v in (*op.operands, *op.results):
                        if why := self._lacking(v):
                            self._refuse(op, why)
        if self.refused:
            raise UnsupportedError(self._said(), next(iter(self.refused.values()))[1])

    def _lacking(self, v: ir.Value) -> str:
        dt, lacks = from_type(v.type).dtype, self.target.kernels.lacks
        found = dt if dt in lacks else dt.part
        return f"{dt}: {lacks[found]}" if found in lacks else ""

    def _refuse(self, op: ir.Operation, why: str) -> None:
        key = (_label(op, self.functions), why)
        count, place = self.refused.get(key, (0, place_of(op)))
        self.refused[key] = (count + 1, place)

    def _call(self, k: Whole, op: ir.Operation, operands: Sequence[Found]) -> Sequence[Found]:
        if is_barrier(op, self.functions):
            return operands
        node, bodies = control_of(op, self.functions)
        given = [t for t in operands if t is not None]

        def body(key: str) -> Any:
            def run(k: Whole, args: Sequence[Tensor]) -> list[Tensor]:
                found = self.block(k, bodies[key], args)
                there = [t for t in found if t is not None]
                if len(there) < len(found):
                    raise Refused("an op in its body is refused")
                return there

            return run

        return k.control(node, given, {key: body(key) for key in bodies})

    # -- the program -----------------------------------------------------------------------

    def program(self, code: bytes, name: str) -> GpuProgram:
        """The program that runs an object on params and inputs, in this order."""
        outputs = [s for s in self.outputs]
        roles: dict[Role, list[Signature]] = {
            "param": self.params, "input": self.inputs, "output": outputs,
        }  # fmt: skip
        memories = [
            Memory("error", 0, 8) if role == "error" else Memory(role, n, _nbytes(s))
            for role in ROLES
            for n, s in enumerate(roles.get(role, [("", "", ())] if role == "error" else []))
        ]
        number = {(m.role, m.index): i for i, m in enumerate(memories)}
        order: tuple[Role, ...] = ("param", "input", "output")
        bound = [(role, n, s[1]) for role in order for n, s in enumerate(roles[role])]
        if self.sites:
            bound.append(("error", 0, "i32"))
        bindings = tuple(
            Binding(dt, "read_write" if role in ("output", "error") else "read")
            for role, _, dt in bound
        )
        places = tuple(Place(number[role, n], 0) for role, n, _ in bound)
        kernel = Kernel(name, code, (1, 1, 1), bindings, len(bindings))
        labels = ", ".join(f"{op} x {n}" if n > 1 else op for op, n in self.counts.most_common(4))
        info: LaunchInfo = (labels or "copy", *place_of(self.main), 0, 0)
        return GpuProgram(
            self.target.name, (kernel,), tuple(memories), self.params, self.inputs, outputs, [],
            (), (Launch(0, (1, 1, 1), places, ()),), [info], self.sites, (None,),
        )  # fmt: skip


def whole_program(module: ir.Module, compilation: Compilation) -> GpuProgram:
    """The program of a module of legal, simplified mir, of the target's last stage but those that
    need the machine: the object that its driver takes."""
    from rlx.base.digest import digest

    whole = WholeProgram(module, compilation)
    code = whole.write(whole.system.object_stage)
    native = compilation.dispatch.native
    for op, n in whole.counts.items():
        native[f"{compilation.target.name}: {op}"] += n
    return whole.program(code, f"rlx_{digest(code)[:12]}")


def _said_by(k: Whole, node: Op, operands: Sequence[Found], rows: Rows) -> Sequence[Tensor]:
    """A node's results: by its row, or else by its formula, in f32 for 16-bit floats."""
    row = rows.get(node.name)
    if row is not None:
        found = row(k, node, *operands)
        return found if isinstance(found, tuple | list) else [found]
    if not node.pointwise:
        raise Refused("there is no row for it")
    wide = [k.widened(t) for t in operands if t is not None]
    out = node.out
    return [value_of(node.scalar(k, *wide), k, out.dtype, out.type.static_shape)]


def _operands(op: ir.Operation) -> list[ir.Value | None]:
    return list(op.operands) if op.name == "func.call" else operands_of(op)


def _label(op: ir.Operation, known: dict[str, ir.Operation]) -> str:
    if op.name == "func.return":
        return "an output"
    if op.name != "func.call":
        return op.name
    node, _ = control_of(op, known)
    assert isinstance(node, Control)
    return node.name


def _signature(name: str, v: ir.Value) -> Signature:
    t = from_type(v.type)
    return name, t.dtype.name, t.static_shape


def _nbytes(s: Signature) -> int:
    from rlx.types import TensorType

    return TensorType.of(s[2], s[1]).nbytes
