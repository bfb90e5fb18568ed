"""From graph nodes to a row-wise region: which ops fuse into one kernel over rows, or why not.

Composite ops are expanded, so that softmax or a norm is recognised by what it means, together with
whatever pointwise ops stand around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rlx.base.dims import is_known, same_shape
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.combine import REDUCTIONS
from rlx.codegen.program import Step
from rlx.errors import ShapeError
from rlx.ir.graph import topological
from rlx.ir.op import Op, placeholders
from rlx.ir.value import Value
from rlx.kernels.rowwise.plan import Reduce, RowProgram
from rlx.kernels.rowwise.region import Dims, NotRowwise, RowInput, RowRegion
from rlx.ops.movement.constant import Constant, literal
from rlx.ops.movement.movement import Expand, Reshape
from rlx.ops.pointwise.cast import Cast
from rlx.types import DType, bf16, bool_, broadcast_shapes, f16, f32

__all__ = ["row_region"]


class _Refused(Exception):
    pass


@frozen
class _Form:
    """A value of the region. ``ref`` is the number of its step, or ~n for input n; ``short`` says
    that a reduction has dropped the trailing axes from its shape. A number has the shape ()
    wherever it stands."""

    ref: int
    dtype: DType
    shape: Dims
    short: bool = False


def row_region(nodes: Sequence[Op], outputs: Sequence[Value]) -> RowRegion | NotRowwise:
    """The region that ``nodes`` (in order) compute, or the reason why they are none.

    Every value must be full, or one value a row, with respect to the trailing axes that the
    reductions fold; an input and its casts may also be shared by rows. Shapes must be static. What
    no node makes is an input, and so is a constant unless it repeats one number.
    """
    try:
        return _Builder(nodes, outputs).region()
    except _Refused as e:
        return NotRowwise(str(e))
    except ShapeError as e:
        return NotRowwise(e.message)


class _Builder:
    def __init__(self, nodes: Sequence[Op], outputs: Sequence[Value]) -> None:
        self.alias: dict[Value, Value] = {}
        self.rows = list(self._flat(nodes))
        self.results = [self._resolve(v) for v in outputs]
        self.forms: dict[Value, _Form] = {}
        self.inputs: list[RowInput] = []
        self.places: dict[RowInput, int] = {}
        self.steps: list[tuple[Step | Reduce, tuple[int, ...]]] = []
        self.numbers: dict[tuple[Step | Reduce, tuple[int, ...]], int] = {}
        self.folded: dict[int, Dims] = {}
        self.made: dict[int, _Form] = {}
        self.trailing = self._trailing()

    def _resolve(self, v: Value) -> Value:
        while v in self.alias:
            v = self.alias[v]
        return v

    def _flat(self, nodes: Sequence[Op]) -> Iterator[Op]:
        """The nodes with composites replaced by what they expand to, recursively."""
        for node in nodes:
            if not node.composite() or node.meets:
                yield node
                continue
            leaves = placeholders([None if v is None else v.type for v in node.operands])
            many = node.with_operands(leaves).expansion()
            self.alias.update(
                (leaf, v)
                for leaf, v in zip(leaves, node.operands, strict=True)
                if leaf is not None and v is not None
            )
            yield from self._flat(topological(many))
            self.alias.update(zip(node.results, many, strict=True))

    def _trailing(self) -> int:
        """How many last axes the reductions fold, the same for all."""
        counts: set[int] = set()
        for node in self.rows:
            if node.name in REDUCTIONS:
                axes, rank = node.attrs["axes"], node.present[0].rank
                if not axes or axes != tuple(range(rank - len(axes), rank)):
                    raise _Refused(f"{node.short} folds axes {list(axes)} of {rank}, not the last")
                counts.add(len(axes))
        if len(counts) > 1:
            raise _Refused(f"reductions fold {' and '.join(map(str, sorted(counts)))} axes")
        return counts.pop() if counts else 1

    # -- values ----------------------------------------------------------------------------

    def form(self, v: Value) -> _Form:
        v = self._resolve(v)
        if v not in self.forms:
            self.forms[v] = self._input(v, v.type.static_shape)
        return self.forms[v]

    def _input(self, v: Value, shape: Dims, through: tuple[Dims, ...] = ()) -> _Form:
        entry = RowInput(v, shape, through)
        place = self.places.setdefault(entry, len(self.inputs))
        if place == len(self.inputs):
            self.inputs.append(entry)
        return _Form(~place, v.dtype, shape)

    def _reshaped(self, a: _Form, shape: Dims) -> _Form:
        """What is an input in another shape; one that is broadcast before is so first."""
        entry = self.inputs[~a.ref]
        if math.prod(entry.shape) == math.prod(shape):
            return self._input(entry.value, shape, entry.through)
        return self._input(entry.value, shape, (*entry.through, entry.shape, a.shape))

    def _op(self, ref: int) -> str:
        """The name of a pointwise step's op, which for a number is that of a constant; else ""."""
        step = self.steps[ref][0] if ref >= 0 else None
        return step.op if isinstance(step, Step) else ""

    def _add(self, step: Step | Reduce, args: tuple[int, ...]) -> int:
        """The number of a step; expansions repeat some, and equal ones are one."""
        entry = (step, args)
        if entry not in self.numbers:
            self.numbers[entry] = len(self.steps)
            self.steps.append(entry)
        return self.numbers[entry]

    def read(self, node: Op) -> None:
        """Give the node's result a form."""
        if len(node.results) != 1:
            raise _Refused(f"{node.short} has {len(node.results)} results")
        out = node.out
        if any(v.dtype.is_complex for v in (out, *node.present)):
            raise _Refused(f"{node.short} is on complex numbers")
        number = literal(node)
        if number is not None:
            form = _Form(self._add(Step.literal(number, out.dtype), ()), out.dtype, ())
        elif node.name == Constant.name:
            return  # an array is an input
        elif node.name in REDUCTIONS:
            form = self._reduction(node)
        elif node.pointwise:
            form = self._pointwise(node)
        elif node.name == Reshape.name:
            form = self._reshape(node)
        elif node.name == Expand.name:
            form = self._expand(node)
        else:
            raise _Refused(f"{node.short} is neither pointwise nor a reduction")
        self.forms[out] = form

    def _pointwise(self, node: Op) -> _Form:
        args = [self.form(v) for v in node.present]
        short = any(a.short for a in args)
        if short:
            args = [self._as_short(a, node) for a in args]
        dtypes = tuple(a.dtype for a in args)
        step = Step(node.name, (), dtypes, node.out.dtype, tuple(node.attrs.items()))
        ref = self._add(step, tuple(a.ref for a in args))
        return self._made(_Form(ref, node.out.dtype, node.out.type.static_shape, short))

    def _made(self, f: _Form) -> _Form:
        self.made.setdefault(f.ref, f)
        return f

    def _as_short(self, a: _Form, node: Op) -> _Form:
        """An operand beside a reduced value that has lost its axis: it must lack the axis too."""
        if a.short or math.prod(a.shape) == 1:
            return a
        if a.ref < 0:
            return self._reshaped(a, (*a.shape, *[1] * self.trailing))
        raise _Refused(f"{node.short} meets a reduced value without its axis and a whole one")

    def _reduction(self, node: Op) -> _Form:
        arg = self.form(node.present[0])
        if arg.short:
            raise _Refused(f"{node.short} folds what is reduced already")
        if arg.dtype is bool_:
            raise _Refused("a reduction is of bools")
        if self._op(arg.ref) == Constant.name:  # whose shape is that of no row
            raise _Refused("a reduction folds a literal")
        dt = node.out.dtype
        step = Reduce(REDUCTIONS[node.name], 0, f32 if dt in (f16, bf16) else dt, dt)
        ref = self._add(step, (arg.ref,))
        self.folded[ref] = arg.shape
        return self._made(_Form(ref, dt, node.out.type.static_shape, not node.attrs["keepdims"]))

    def _reshape(self, node: Op) -> _Form:
        """Of an input any; of a computed value one that adds or drops the trailing 1s."""
        arg, shape = self.form(node.present[0]), node.out.type.static_shape
        if self._op(arg.ref) == Constant.name:
            return arg
        if arg.ref < 0:
            return self._reshaped(arg, shape)
        ones = (1,) * self.trailing
        if arg.short and shape == arg.shape:
            return arg
        if arg.short and shape == (*arg.shape, *ones):
            return _Form(arg.ref, arg.dtype, shape)
        if not arg.short and (*shape, *ones) == arg.shape:
            return _Form(arg.ref, arg.dtype, shape, short=True)
        if not arg.short and _core(shape) == _core(arg.shape):
            return _Form(arg.ref, arg.dtype, shape)
        raise _Refused(f"reshape of {list(arg.shape)} to {list(shape)} changes the rows")

    def _expand(self, node: Op) -> _Form:
        arg, shape = self.form(node.present[0]), node.out.type.static_shape
        if self._op(arg.ref) == Constant.name:
            return arg
        if arg.short and shape != arg.shape:
            raise _Refused("expand spreads a reduced value without its axis")
        return _Form(arg.ref, arg.dtype, shape, arg.short)

    # -- the region ------------------------------------------------------------------------

    def region(self) -> RowRegion:
        for node in self.rows:
            self.read(node)
        ends = [self.form(v) for v in self.results]
        used = self._used([f.ref for f in ends])
        ones = (1,) * self.trailing
        whole = [self._whole(f) for f in (*self.forms.values(), *ends) if f.ref in used]
        shape = _static(broadcast_shapes(*whole, ones))
        row = shape[-self.trailing :]
        for n, folded in self.folded.items():
            # Folding one value a row as if it were a row would count it too often.
            if n in used and not self._trailing_of(folded, row):
                raise _Refused(f"a reduction folds one value a row, where others have {list(row)}")
        for n, f in self.made.items():
            # Every row would compute it again; a cast belongs to reading an input.
            if n in used and self._op(n) != Cast.name and not self._of_every_row(f, shape):
                raise _Refused(
                    f"a value of shape {list(f.shape)} is shared by rows of {list(shape)}"
                )
        keep = [n for n in range(len(self.inputs)) if ~n in used]
        inputs = tuple(self.inputs[n] for n in keep)
        for i in inputs:
            self._trailing_of(i.shape, row)
        outputs = tuple(self._output(f, shape) for f in ends)
        return RowRegion(self._program(keep, ends), shape, self.trailing, inputs, outputs)

    def _used(self, refs: list[int]) -> set[int]:
        seen: set[int] = set()
        while refs:
            r = refs.pop()
            if r not in seen:
                seen.add(r)
                refs += self.steps[r][1] if r >= 0 else ()
        return seen

    def _program(self, keep: list[int], ends: list[_Form]) -> RowProgram:
        place = {n: i for i, n in enumerate(keep)}
        used = self._used([f.ref for f in ends])
        order = [n for n in range(len(self.steps)) if n in used]
        number = {n: len(keep) + i for i, n in enumerate(order)}

        def at(ref: int) -> int:
            return number[ref] if ref >= 0 else place[~ref]

        steps: list[Step | Reduce] = []
        for n in order:
            step, refs = self.steps[n]
            if isinstance(step, Reduce):
                steps.append(Reduce(step.kind, at(refs[0]), step.accumulate, step.dtype))
            else:
                args = tuple(at(r) for r in refs)
                steps.append(Step(step.op, args, step.dtypes, step.dtype, step.attrs))
        dtypes = tuple(self.inputs[n].value.dtype for n in keep)
        return RowProgram(dtypes, tuple(steps), tuple(at(f.ref) for f in ends))

    def _trailing_of(self, shape: Dims, row: Dims) -> bool:
        """Whether a shape has whole rows; False for one value a row."""
        own = ((1,) * self.trailing + shape)[-self.trailing :]
        if prefers(lambda: own == row, otherwise=same_shape(own, row)):
            return True
        if all(n == 1 for n in own):
            return False
        raise _Refused(f"the shape {list(shape)} broadcasts along a part of the axes {list(row)}")

    def _whole(self, f: _Form) -> Dims:
        """A value's shape with the trailing axes."""
        return (*f.shape, *[1] * self.trailing) if f.short else f.shape

    def _padded(self, f: _Form, shape: Dims) -> Dims:
        own = self._whole(f)
        return (1,) * (len(shape) - len(own)) + own

    def _of_every_row(self, f: _Form, shape: Dims) -> bool:
        cut = len(shape) - self.trailing
        own = self._padded(f, shape)[:cut]
        return prefers(lambda: own == shape[:cut], otherwise=same_shape(own, shape[:cut]))

    def _output(self, f: _Form, shape: Dims) -> Dims:
        if not self._of_every_row(f, shape):
            raise _Refused(f"a result of shape {list(f.shape)} is shared by rows of {list(shape)}")
        own = self._padded(f, shape)
        self._trailing_of(own, shape[len(shape) - self.trailing :])
        return own


def _core(shape: Dims) -> Dims:
    """A shape without its leading 1s."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def _static(shape: Sequence[object]) -> Dims:
    out = tuple(n for n in shape if is_known(n))
    assert len(out) == len(shape), "the values are static"
    return out
