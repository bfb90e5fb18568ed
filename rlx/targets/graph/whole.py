"""What formulas and rows ask of a system whose values are whole tensors.

A system is a subclass with some twenty words: those that are only declared here. What
can be said with these is said once, below them. A word that a system lacks for some element type
or size raises ``Refused``, which the walk over the graph collects for all ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rlx.codegen.builder import KernelTarget
from rlx.targets.graph.functions import FUNCTIONS
from rlx.targets.graph.tensor import Number, Tensor
from rlx.types import DType, bf16, bool_, complex_of, f16, f32, i32, i64, u32, u64

__all__ = ["Body", "Loop", "Refused", "Whole", "compute_type", "value_of"]

Array = np.ndarray[Any, Any]


_OWN = "the system says this word"

Body: TypeAlias = "Callable[[Whole, Sequence[Tensor]], list[Tensor]]"
"""Writes a body of a control op on its arguments."""

Loop: TypeAlias = "Callable[..., Any]"
"""The test or the body of a formula's loop, on the tensors that it carries."""


class Refused(Exception):
    """A system has no way to say what a row asks of it; the text says what that is."""


def compute_type(dt: DType) -> DType:
    """The type in which elements are computed: f32 for 16-bit floats, which round once."""
    return f32 if dt in (f16, bf16) else dt


def value_of(t: Any, k: Whole, dt: DType, shape: tuple[int, ...]) -> Tensor:
    """What a formula gives, which may be a number, as a tensor of a type and a shape."""
    found = t if isinstance(t, Tensor) else k.literal(t, compute_type(dt), shape)
    found = k.rounded(found, dt)
    return found if found.shape == shape else k.spread(found, shape)


class Whole:
    """The ``k`` of formulas and rows, for one program. Tensors are made by it alone."""

    def __init__(self, target: KernelTarget) -> None:
        self.target, self.name = target, target.name
        self.sites: list[str] = []
        self.fault: Tensor | None = None  # 0, or the number of the first site that failed, from 1

    # -- the words of a system -------------------------------------------------------------

    def make(
        self, verb: str, operands: Sequence[Tensor], dt: DType, shape: tuple[int, ...]
    ) -> Tensor:
        """A pointwise op of operands of one shape: "add", "lt", "select", "exp" and so on."""
        raise AssertionError(_OWN)

    def literal(self, value: Number, dt: DType, shape: tuple[int, ...] = ()) -> Tensor:
        """A number in every place."""
        raise AssertionError(_OWN)

    def array(self, a: Array, dt: DType) -> Tensor:
        """The elements of an array."""
        raise AssertionError(_OWN)

    def broadcast(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor of the rank of ``shape``, repeated along its axes of one element."""
        raise AssertionError(_OWN)

    def converted(self, t: Tensor, dt: DType) -> Tensor:
        """The nearest value in another type, or toward 0 in one of integers, which holds it; from
        integer to integer the low bits. No bool is made by it, and no complex number."""
        raise AssertionError(_OWN)

    def bitcast(self, t: Tensor, dt: DType) -> Tensor:
        """The same bits as another type of the same width."""
        raise AssertionError(_OWN)

    def reshaped(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same elements in row-major order."""
        raise AssertionError(_OWN)

    def transposed(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        """Axis i of the result is axis ``perm[i]``."""
        raise AssertionError(_OWN)

    def sliced(
        self, t: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> Tensor:
        """The elements from starts to before ends, in steps of 1 or more."""
        raise AssertionError(_OWN)

    def flipped(self, t: Tensor, axes: Sequence[int]) -> Tensor:
        """The order along axes turned around."""
        raise AssertionError(_OWN)

    def padded(self, t: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
        """So many places of a scalar before and after the elements, 0 or more."""
        raise AssertionError(_OWN)

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after the other along an axis."""
        raise AssertionError(_OWN)

    def iota(self, shape: tuple[int, ...], axis: int, dt: DType) -> Tensor:
        """In every place its index along an axis."""
        raise AssertionError(_OWN)

    def folded(self, verb: str, t: Tensor, axes: Sequence[int]) -> Tensor:
        """Elements along axes by "add", "mul", "max", "min" ("max" and "min" of bools are "or" and
        "and"), without the axes, none of which is empty."""
        raise AssertionError(_OWN)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Matrices [..., M, K] and [..., K, N] with equal leading axes; 16-bit floats give f32."""
        raise AssertionError(_OWN)

    def correlated(
        self, x: Tensor, w: Tensor, stride: Sequence[int], low: Sequence[int], high: Sequence[int],
        dilation: Sequence[int], groups: int,
    ) -> Tensor:  # fmt: skip
        """A convolution of floats as ``mir.conv`` has it, with padding of 0 or more."""
        raise AssertionError(_OWN)

    def taken(self, t: Tensor, indices: Tensor, axis: int, lead: int) -> Tensor:
        """As ``mir.gather``, of indices within the axis (i32 or i64)."""
        raise AssertionError(_OWN)

    def scattered(
        self, verb: str, t: Tensor, indices: Tensor, updates: Tensor, axis: int, lead: int
    ) -> Tensor:
        """As ``mir.scatter``, of indices within the axis: "add", "mul", "max", "min", or "set" of
        places that no two updates are for."""
        raise AssertionError(_OWN)

    def sorted(self, t: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        """The elements in order and their indices (i64), stable, nan the greatest."""
        raise AssertionError(_OWN)

    def control(
        self, node: Any, args: Sequence[Tensor], bodies: Mapping[str, Body]
    ) -> Sequence[Tensor]:
        """The results of a control op, whose bodies are written as they are called."""
        raise Refused("there is no control flow")

    def repeat(self, test: Loop, body: Loop, init: Sequence[Tensor]) -> Sequence[Tensor]:
        """``while test(*carried): carried = body(*carried)``, each element for itself."""
        raise Refused("a loop that goes on until all elements are done")

    # -- operands --------------------------------------------------------------------------

    def _pair(self, a: Tensor | Number, b: Tensor | Number) -> tuple[Tensor, Tensor]:
        like = a if isinstance(a, Tensor) else b
        assert isinstance(like, Tensor), "one operand is a tensor"
        x = a if isinstance(a, Tensor) else self.literal(a, like.dtype, like.shape)
        y = b if isinstance(b, Tensor) else self.literal(b, like.dtype, like.shape)
        assert x.dtype is y.dtype, f"operands are {x.dtype} and {y.dtype}"
        x, y = self.same(x, y)
        return x, y

    def same(self, *ts: Tensor) -> list[Tensor]:
        """Tensors spread to the shape that they have together."""
        shape = tuple(np.broadcast_shapes(*(t.shape for t in ts)))
        return [self.spread(t, shape) for t in ts]

    def spread(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor broadcast to a shape, as in NumPy."""
        if t.shape == shape:
            return t
        return self.broadcast(self.reshape(t, (*[1] * (len(shape) - t.rank), *t.shape)), shape)

    def const(self, value: Number, dt: DType, lanes: int = 0) -> Tensor:
        """A number."""
        return self.literal(value, dt)

    def number_of(self, x: Tensor) -> Number | None:
        """None: what a tensor holds is not looked at."""
        return None

    def index_word(self, dt: DType) -> DType:
        """The type in which an index of a type is computed, of its sign."""
        narrow, wide = (u32, u64) if dt.kind == "uint" else (i32, i64)
        return narrow if self.target.index_bits == 32 and dt.bits <= 32 else wide

    # -- arithmetic ------------------------------------------------------------------------

    def arith(self, verb: str, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        """add, sub, mul, div, rem, and, or, xor, shl or shr, as the kernels' ``arith``."""
        x, y = self._pair(a, b)
        return self.make(verb, [x, y], x.dtype, x.shape)

    def compare(self, verb: str, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        """eq, ne (true for nan), lt, le, gt or ge."""
        x, y = self._pair(a, b)
        return self.make(verb, [x, y], bool_, x.shape)

    def select(self, cond: Tensor, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        """a where ``cond`` holds, else b."""
        x, y = self._pair(a, b)
        cond, x, y = self.same(cond, x, y)
        return self.make("select", [cond, x, y], x.dtype, x.shape)

    def logical_not(self, x: Tensor) -> Tensor:
        """The opposite of a bool."""
        return self.make("not", [x], bool_, x.shape)

    def neg(self, x: Tensor) -> Tensor:
        """The sign changed; integers wrap."""
        return self.function("neg", x)

    def fma(self, a: Tensor, b: Tensor | Number, c: Tensor | Number) -> Tensor:
        """a * b + c, which may be rounded twice."""
        return self.arith("add", self.arith("mul", a, b), c)

    def maximum(self, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        """The larger; nan if either is nan; "or" of bools."""
        return self.arith("max", a, b)

    def minimum(self, a: Tensor | Number, b: Tensor | Number) -> Tensor:
        """The smaller; nan if either is nan; "and" of bools."""
        return self.arith("min", a, b)

    def part(self, which: str, x: Tensor) -> Tensor:
        """The "real" or "imag" parts."""
        return self.make(which, [x], x.dtype.part, x.shape)

    def pair(self, re: Tensor | Number, im: Tensor | Number) -> Tensor:
        """The complex numbers of two real tensors."""
        x, y = self._pair(re, im)
        return self.make("complex", [x, y], complex_of(x.dtype), x.shape)

    def cast(self, x: Tensor, dt: DType) -> Tensor:
        """The values in another type, as ``mir.cast`` defines it; 16-bit floats are never asked
        for by a formula."""
        if x.dtype is dt:
            return x
        if dt in self.target.lacks:
            raise Refused(f"it computes in {dt}: {self.target.lacks[dt]}")
        if dt is bool_:
            return self.compare("ne", x, 0)
        if dt.is_complex:
            if x.dtype.is_complex:
                return self.pair(self.cast(x.re, dt.part), self.cast(x.im, dt.part))
            re = self.cast(x, dt.part)
            return self.pair(re, self.literal(0, dt.part, x.shape))
        if x.dtype.is_float and dt.is_int:
            return self._saturated(x, dt)
        return self.converted(x, dt)

    def _saturated(self, x: Tensor, dt: DType) -> Tensor:
        info = np.iinfo(dt.numpy)
        top, low = float(int(info.max) + 1), float(info.min)
        above, below = x >= top, x <= low
        inside = self.logical_not(above | below | self.compare("ne", x, x))
        whole = self.converted(self.select(inside, x, 0.0), dt)
        return self.select(above, int(info.max), self.select(below, int(info.min), whole))

    def rounded(self, x: Tensor, dt: DType) -> Tensor:
        """A tensor as it was computed, in the type that is kept of it."""
        if x.dtype is dt:
            return x
        return self.converted(x, dt) if dt in (f16, bf16) else self.cast(x, dt)

    def widened(self, x: Tensor) -> Tensor:
        """A 16-bit float as f32."""
        wide = compute_type(x.dtype)
        return x if wide is x.dtype else self.converted(x, wide)

    # -- functions -------------------------------------------------------------------------

    def function(self, name: str, x: Tensor) -> Tensor:
        """A function of an element by its name."""
        return self.make(name, [x], x.dtype, x.shape)

    def call(self, name: str, *xs: Tensor) -> Tensor:
        """A function of one or two elements by its name."""
        ready = self.same(*xs)
        return self.make(name, ready, ready[0].dtype, ready[0].shape)

    def formula(self, name: str, *xs: Tensor) -> Tensor:
        """A function of a system that lacks it, of others or as RLX's own kernels compute it."""
        assert name in FUNCTIONS or name in self.target.math, f"no formula asks for {name}"
        found: Any = FUNCTIONS.get(name) or self.target.math[name]
        return found(*xs)

    def abs(self, x: Tensor) -> Tensor:
        """The absolute value, or the modulus, a real one; the least integer stays itself."""
        if x.dtype.kind == "uint":
            return x
        return self.make("abs", [x], x.dtype.part, x.shape)

    def angle(self, x: Tensor) -> Tensor:
        """The argument of a complex tensor, in [-pi, pi]."""
        return self.call("atan2", x.im, x.re)

    def sigmoid(self, x: Tensor) -> Tensor:
        """1 / (1 + exp(-x))."""
        return self.function("sigmoid", x)

    def atan2(self, y: Tensor | Number, x: Tensor | Number) -> Tensor:
        """The angle of the point (x, y)."""
        return self.call("atan2", *self._pair(y, x))

    def pow(self, x: Tensor, y: Tensor) -> Tensor:
        """x to the power of y."""
        return self.call("pow", x, y)

    def exp(self, x: Tensor) -> Tensor:
        """e to the power of x."""
        return self.function("exp", x)

    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm."""
        return self.function("log", x)

    def expm1(self, x: Tensor) -> Tensor:
        """exp(x) - 1."""
        return self.function("expm1", x)

    def log1p(self, x: Tensor) -> Tensor:
        """log(1 + x)."""
        return self.function("log1p", x)

    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""
        return self.function("tanh", x)

    def erf(self, x: Tensor) -> Tensor:
        """The error function."""
        return self.function("erf", x)

    def erfinv(self, x: Tensor) -> Tensor:
        """The inverse of the error function."""
        return self.function("erfinv", x)

    def gelu(self, x: Tensor) -> Tensor:
        """x times the distribution function of the standard normal."""
        return self.function("gelu", x)

    def sin(self, x: Tensor) -> Tensor:
        """The sine."""
        return self.function("sin", x)

    def cos(self, x: Tensor) -> Tensor:
        """The cosine."""
        return self.function("cos", x)

    def tan(self, x: Tensor) -> Tensor:
        """The tangent."""
        return self.function("tan", x)

    def atan(self, x: Tensor) -> Tensor:
        """The arc tangent."""
        return self.function("atan", x)

    def sqrt(self, x: Tensor) -> Tensor:
        """The square root."""
        return self.function("sqrt", x)

    def floor(self, x: Tensor) -> Tensor:
        """The largest whole number not above x."""
        return self.function("floor", x)

    def ceil(self, x: Tensor) -> Tensor:
        """The smallest whole number not below x."""
        return self.function("ceil", x)

    def trunc(self, x: Tensor) -> Tensor:
        """The whole number next to x on the side of 0."""
        return self.select(x < 0.0, self.ceil(x), self.floor(x))

    def round_even(self, x: Tensor) -> Tensor:
        """The nearest whole number, of two the even one."""
        return self.function("round_even", x)

    # -- shapes ----------------------------------------------------------------------------

    def reshape(self, t: Tensor, shape: Iterable[int]) -> Tensor:
        """The same elements in another shape."""
        wanted = tuple(shape)
        return t if t.shape == wanted else self.reshaped(t, wanted)

    def transpose(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        """Axis i of the result is axis ``perm[i]``."""
        return t if list(perm) == list(range(t.rank)) else self.transposed(t, perm)

    def narrow(self, t: Tensor, axis: int, start: int, end: int, step: int = 1) -> Tensor:
        """The elements from start to before end along one axis."""
        starts, ends, steps = [0] * t.rank, list(t.shape), [1] * t.rank
        starts[axis], ends[axis], steps[axis] = start, end, step
        if (start, end, step) == (0, t.shape[axis], 1):
            return t
        return self.sliced(t, starts, ends, steps)

    def pad(
        self, t: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int],
        interior: Sequence[int] = (),
    ) -> Tensor:  # fmt: skip
        """Places before, after and between elements; negative numbers drop elements."""
        for axis, gap in enumerate(interior):
            if gap:
                t = self._spaced(t, fill, axis, gap)
        n = t.shape
        starts = [min(max(-lo, 0), d) for lo, d in zip(low, n, strict=True)]
        ends = [max(d - max(-hi, 0), s) for hi, d, s in zip(high, n, starts, strict=True)]
        if starts != [0] * len(n) or ends != list(n):
            t = self.sliced(t, starts, ends, [1] * len(n))
        low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
        return self.padded(t, fill, low, high) if any(low) or any(high) else t

    def _spaced(self, t: Tensor, fill: Tensor, axis: int, gap: int) -> Tensor:
        """Places of a scalar between the elements along an axis."""
        n = t.shape[axis]
        if n < 2:
            return t
        apart = self.reshape(t, (*t.shape[: axis + 1], 1, *t.shape[axis + 1 :]))
        low, high = [0] * apart.rank, [0] * apart.rank
        high[axis + 1] = gap
        wide = self.padded(apart, fill, low, high)
        flat = self.reshape(wide, (*t.shape[:axis], n * (gap + 1), *t.shape[axis + 1 :]))
        return self.narrow(flat, axis, 0, n * (gap + 1) - gap)

    def fold(self, verb: str, t: Tensor, axes: Sequence[int], start: Number) -> Tensor:
        """``folded``, also of no axes and of empty ones, which give ``start``."""
        if not axes:
            return t
        kept = tuple(n for i, n in enumerate(t.shape) if i not in axes)
        if any(t.shape[a] == 0 for a in axes) or 0 in kept:
            return self.literal(start, t.dtype, kept)
        return self.folded(verb, t, sorted(axes))

    # -- faults ----------------------------------------------------------------------------

    def check(self, bad: Tensor, message: str) -> None:
        """Record a fault of the run where any element of a bool is true; the first one stays."""
        if 0 in bad.shape:
            return
        self.sites.append(message)
        found = self.fold("max", self.converted(bad, i32), list(range(bad.rank)), 0)
        mine = found * len(self.sites)
        earlier = self.fault
        kept = mine if earlier is None else self.select(earlier > 0, earlier, mine)
        self.fault = kept

    def record(self) -> Tensor | None:
        """The error record of a run, 2 x i32: a code and the number of a site; None if nothing can
        fail."""
        if self.fault is None:
            return None
        fault = self.reshape(self.fault, (1,))
        return self.joined([self.minimum(fault, 1), self.maximum(fault - 1, 0)], 0)
