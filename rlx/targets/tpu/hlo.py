"""The words of StableHLO: each writes a line of a function, in the generic form of ops.

https://openxla.org/stablehlo/spec
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.codegen.builder import KernelTarget
from rlx.targets.graph.rows.common import least, most
from rlx.targets.graph.rows.products import by_sums
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Body, Loop, Whole, compute_type
from rlx.targets.tpu.text import dense, integers, rows_of, tensor
from rlx.types import DType, bool_, i64, u64

__all__ = ["Hlo"]

_OPS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor", "not": "not",
    "neg": "negate", "shl": "shift_left", "exp": "exponential", "log": "log", "abs": "abs",
    "expm1": "exponential_minus_one", "log1p": "log_plus_one", "tanh": "tanh", "sin": "sine",
    "cos": "cosine", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "sigmoid": "logistic",
    "round_even": "round_nearest_even", "atan2": "atan2", "pow": "power", "real": "real",
    "imag": "imag", "complex": "complex", "select": "select",
}  # fmt: skip
"""The pointwise ops by their names in formulas."""

_COMPARE = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])

_STARTS: Mapping[str, Callable[[DType], Number]] = {
    "add": lambda _: 0, "mul": lambda _: 1, "max": least, "min": most,
}  # fmt: skip
"""What folds begin with."""

_EXACT = "#stablehlo<precision HIGHEST>"
"""Products in the type of their operands: a TPU rounds those of f32 to bf16 by default."""


class Hlo(Whole):
    """Writes a function's body as StableHLO text."""

    def __init__(self, target: KernelTarget) -> None:
        super().__init__(target)
        self.lines: list[str] = []
        self._count = 0
        self.literals: dict[tuple[Any, ...], Tensor] = {}

    # -- lines -----------------------------------------------------------------------------

    def fresh(self) -> str:
        """A new name."""
        self._count += 1
        return f"%{self._count}"

    def op(
        self, name: str, args: Sequence[Tensor], dt: DType, shape: Sequence[int], attrs: str = "",
        regions: str = "",
    ) -> Tensor:  # fmt: skip
        """An op of one result."""
        out = self.fresh()
        types = ", ".join(tensor(a.dtype, a.shape) for a in args)
        given = ", ".join(a.handle for a in args)
        attrs = f" {{{attrs}}}" if attrs else ""
        self.lines.append(
            f'    {out} = "stablehlo.{name}"({given}){regions}{attrs} :'
            f" ({types}) -> {tensor(dt, shape)}"
        )
        return Tensor(self, out, dt, tuple(shape))

    def literal(self, value: Number, dt: DType, shape: tuple[int, ...] = ()) -> Tensor:
        given = np.asarray(value, dt.numpy) if not isinstance(value, int) else _wrapped(value, dt)
        key = (given.tobytes(), dt.name, shape)
        found = self.literals.get(key)
        if found is None:
            found = self.op("constant", [], dt, shape, f"value = {dense(given, dt, shape)}")
            self.literals[key] = found
        return found

    def array(self, a: Any, dt: DType) -> Tensor:
        shape = np.shape(a)
        return self.op("constant", [], dt, shape, f"value = {dense(a, dt, shape)}")

    # -- elements --------------------------------------------------------------------------

    def make(
        self, verb: str, operands: Sequence[Tensor], dt: DType, shape: tuple[int, ...]
    ) -> Tensor:
        if verb in _COMPARE:
            attr = f"comparison_direction = #stablehlo<comparison_direction {verb.upper()}>"
            return self.op("compare", operands, bool_, shape, attr)
        if verb == "shr":
            kind = "arithmetic" if dt.kind == "int" else "logical"
            return self.op(f"shift_right_{kind}", operands, dt, shape)
        if verb in _OPS:
            return self.op(_OPS[verb], operands, dt, shape)
        return self.formula(verb, *operands)

    def converted(self, t: Tensor, dt: DType) -> Tensor:
        return self.op("convert", [t], dt, t.shape)

    def bitcast(self, t: Tensor, dt: DType) -> Tensor:
        return t if dt is t.dtype else self.op("bitcast_convert", [t], dt, t.shape)

    # -- shapes ----------------------------------------------------------------------------

    def broadcast(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        dims = f"broadcast_dimensions = {integers(range(len(shape)))}"
        return self.op("broadcast_in_dim", [t], t.dtype, shape, dims)

    def reshaped(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.op("reshape", [t], t.dtype, shape)

    def transposed(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        shape = [t.shape[p] for p in perm]
        return self.op("transpose", [t], t.dtype, shape, f"permutation = {integers(perm)}")

    def sliced(
        self, t: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> Tensor:
        rows = zip(starts, ends, steps, strict=True)
        shape = [max(-(-(e - s) // step), 0) for s, e, step in rows]
        attrs = (
            f"start_indices = {integers(starts)}, limit_indices = {integers(ends)},"
            f" strides = {integers(steps)}"
        )
        return self.op("slice", [t], t.dtype, shape, attrs)

    def flipped(self, t: Tensor, axes: Sequence[int]) -> Tensor:
        return self.op("reverse", [t], t.dtype, t.shape, f"dimensions = {integers(sorted(axes))}")

    def padded(self, t: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
        shape = [n + lo + hi for n, lo, hi in zip(t.shape, low, high, strict=True)]
        attrs = (
            f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)},"
            f" interior_padding = {integers([0] * t.rank)}"
        )
        return self.op("pad", [t, fill], t.dtype, shape, attrs)

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.op("concatenate", parts, parts[0].dtype, shape, f"dimension = {axis} : i64")

    def iota(self, shape: tuple[int, ...], axis: int, dt: DType) -> Tensor:
        return self.op("iota", [], dt, shape, f"iota_dimension = {axis} : i64")

    # -- folds -----------------------------------------------------------------------------

    def folded(self, verb: str, t: Tensor, axes: Sequence[int]) -> Tensor:
        start = self.literal(_STARTS[verb](t.dtype), t.dtype)
        shape = [n for i, n in enumerate(t.shape) if i not in axes]
        region = self._combining(verb, t.dtype)
        attrs = f"dimensions = {integers(axes)}"
        return self.op("reduce", [t, start], t.dtype, shape, attrs, region)

    def _combining(self, verb: str, dt: DType) -> str:
        kind = tensor(dt, ())
        result, lines = "%b", [f" ({{\n    ^bb0(%a: {kind}, %b: {kind}):"]
        if verb != "set":
            result, op = "%c", f'"stablehlo.{_OPS[verb]}"(%a, %b)'
            lines.append(f"      %c = {op} : ({kind}, {kind}) -> {kind}")
        lines.append(f'      "stablehlo.return"({result}) : ({kind}) -> ()\n    }})')
        return "\n".join(lines)

    # -- products --------------------------------------------------------------------------

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        if a.dtype in (i64, u64):
            return by_sums(self, a, b)  # TPUs have no product of matrices of them
        lead, dt = a.rank - 2, compute_type(a.dtype)
        batch = ", ".join(map(str, range(lead)))
        attrs = (
            f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{batch}],"
            f" rhs_batching_dimensions = [{batch}], lhs_contracting_dimensions = [{lead + 1}],"
            f" rhs_contracting_dimensions = [{lead}]>, precision_config = [{_EXACT}, {_EXACT}]"
        )
        return self.op("dot_general", [a, b], dt, (*a.shape[:-1], b.shape[-1]), attrs)

    def correlated(
        self, x: Tensor, w: Tensor, stride: Sequence[int], low: Sequence[int], high: Sequence[int],
        dilation: Sequence[int], groups: int,
    ) -> Tensor:  # fmt: skip
        axes = ", ".join(map(str, range(len(stride))))
        rows = zip(x.shape[2:], w.shape[2:], stride, low, high, dilation, strict=True)
        counts = [(n + lo + hi - (k - 1) * d - 1) // s + 1 for n, k, s, lo, hi, d in rows]
        attrs = (
            f"dimension_numbers = #stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>,"
            f" window_strides = {integers(stride)}, padding = {rows_of(low, high)},"
            f" rhs_dilation = {integers(dilation)}, feature_group_count = {groups} : i64,"
            f" batch_group_count = 1 : i64, precision_config = [{_EXACT}, {_EXACT}]"
        )
        dt = compute_type(x.dtype)
        return self.op("convolution", [x, w], dt, (x.shape[0], w.shape[0], *counts), attrs)

    # -- indices ---------------------------------------------------------------------------

    def taken(self, t: Tensor, indices: Tensor, axis: int, lead: int) -> Tensor:
        middle = indices.shape[lead:]
        shape = (*t.shape[:axis], *middle, *t.shape[axis + 1 :])
        offsets = [*range(lead, axis), *range(axis + len(middle), len(shape))]
        sizes = [1 if i < lead or i == axis else n for i, n in enumerate(t.shape)]
        batch = ", ".join(map(str, range(lead)))
        attrs = (
            f"dimension_numbers = #stablehlo.gather<offset_dims = [{_listed(offsets)}],"
            f" collapsed_slice_dims = [{axis}], operand_batching_dims = [{batch}],"
            f" start_indices_batching_dims = [{batch}], start_index_map = [{axis}],"
            f" index_vector_dim = {indices.rank}>, slice_sizes = {integers(sizes)},"
            " indices_are_sorted = false"
        )
        return self.op("gather", [t, indices], t.dtype, shape, attrs)

    def scattered(
        self, verb: str, t: Tensor, indices: Tensor, updates: Tensor, axis: int, lead: int
    ) -> Tensor:
        middle = indices.rank - lead
        window = [*range(lead, axis), *range(axis + middle, updates.rank)]
        batch = ", ".join(map(str, range(lead)))
        attrs = (
            f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims ="
            f" [{_listed(window)}], inserted_window_dims = [{axis}],"
            f" input_batching_dims = [{batch}], scatter_indices_batching_dims = [{batch}],"
            f" scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {indices.rank}>,"
            f" indices_are_sorted = false, unique_indices = {_truth(verb == 'set')}"
        )
        region = self._combining(verb, t.dtype)
        return self.op("scatter", [t, indices, updates], t.dtype, t.shape, attrs, region)

    def sorted(self, t: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        places = self.iota(t.shape, axis, i64)
        e, i = tensor(t.dtype, ()), tensor(i64, ())
        out, types = self.fresh(), (tensor(t.dtype, t.shape), tensor(i64, t.shape))
        listed = ", ".join(types)
        first, then = ("%b", "%a") if descending else ("%a", "%b")
        lines = [_compare("%less", "LT", first, then, e)]
        result = "%less"
        if t.dtype.is_float:  # nan is the greatest
            lines += [
                _compare("%nan", "NE", then, then, e), _compare("%known", "EQ", first, first, e),
                '"stablehlo.and"(%nan, %known) : (tensor<i1>, tensor<i1>) -> tensor<i1>',
                '"stablehlo.or"(%less, %both) : (tensor<i1>, tensor<i1>) -> tensor<i1>',
            ]  # fmt: skip
            lines[3], lines[4] = f"%both = {lines[3]}", f"%before = {lines[4]}"
            result = "%before"
        body = "\n      ".join([*lines, f'"stablehlo.return"({result}) : (tensor<i1>) -> ()'])
        self.lines.append(
            f'    {out}:2 = "stablehlo.sort"({t.handle}, {places.handle}) ({{\n'
            f"    ^bb0(%a: {e}, %b: {e}, %i: {i}, %j: {i}):\n      {body}\n    }})"
            f" {{dimension = {axis} : i64, is_stable = true}} : ({listed}) -> ({listed})"
        )
        return Tensor(self, f"{out}#0", t.dtype, t.shape), Tensor(self, f"{out}#1", i64, t.shape)

    def control(
        self, node: Any, args: Sequence[Tensor], bodies: Mapping[str, Body]
    ) -> Sequence[Tensor]:
        from rlx.targets.tpu.control import control

        return control(self, node, args, bodies)

    def repeat(self, test: Loop, body: Loop, init: Sequence[Tensor]) -> Sequence[Tensor]:
        from rlx.targets.tpu.control import repeat

        return repeat(self, test, body, init)


def _wrapped(value: int, dt: DType) -> Any:
    """An integer in a type: its low bits, if that is one of integers."""
    if not dt.is_int:
        return np.asarray(value, dt.numpy)
    return np.asarray(value & ((1 << dt.bits) - 1), f"u{dt.bytes}").view(dt.numpy)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _compare(out: str, how: str, a: str, b: str, kind: str) -> str:
    direction = f"comparison_direction = #stablehlo<comparison_direction {how}>"
    return f'{out} = "stablehlo.compare"({a}, {b}) {{{direction}}} : ({kind}, {kind}) -> tensor<i1>'
