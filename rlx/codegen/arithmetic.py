"""Arithmetic of the kernel builder: instructions, and the target's functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rlx.codegen import complex
from rlx.codegen.complex import Complex
from rlx.codegen.emitter import Emitter
from rlx.codegen.reg import INDEX, Number, Reg
from rlx.types import DType, bool_, f32

__all__ = ["ArithName", "Arithmetic", "CompareName"]

ArithName = Literal["add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr"]
CompareName = Literal["eq", "ne", "lt", "le", "gt", "ge"]

_FLOAT_OPS = {"add": "addf", "sub": "subf", "mul": "mulf", "div": "divf"}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1, "shl": 0, "shr": 0, "or": 0, "xor": 0}
"""The right operand by which an integer stays as it is."""
_NONE = object()
_EXACT = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}


class Arithmetic(Emitter):
    """Values from values. A Python number takes the type of the other operand, and a scalar is
    broadcast to its lanes."""

    def _pair(self, a: Reg | Number, b: Reg | Number) -> tuple[Reg, Reg]:
        if not isinstance(a, Reg):
            if not isinstance(b, Reg):
                raise self._refuse(f"one of {a} and {b} must be a register")
            return self.const(a, b.dtype, b.lanes), b
        if not isinstance(b, Reg):
            return a, self.const(b, a.dtype, a.lanes)
        if a.lanes != b.lanes:
            lanes = max(a.lanes, b.lanes)
            a, b = self.splat(a, lanes), self.splat(b, lanes)
        if a.dtype is not b.dtype:
            raise self._refuse(f"operands are {a.dtype} and {b.dtype}")
        return a, b

    def arith(self, verb: ArithName, a: Reg | Number, b: Reg | Number) -> Reg:
        """One arithmetic instruction.

        Integer division truncates and is undefined for 0; that of indices is unsigned. The
        remainder of floats is a function of the target's table.
        """
        x, y = self._pair(a, b)
        dt = x.dtype
        if isinstance(x, Complex) and isinstance(y, Complex):
            return complex.arith(self.kernel, verb, x, y)
        if dt.is_float:
            if verb == "rem":
                return self.call("rem", x, y)
            if verb not in _FLOAT_OPS:
                raise self._refuse(f"there is no {verb} of {dt}")
            name = _FLOAT_OPS[verb]
        else:
            known = self._folded(verb, x, y)
            if known is not None:
                return known
            name = _int_op(verb, dt)
        return self.pure(f"arith.{name} {x.name}, {y.name} : {x.mlir}", dt, x.lanes)

    def _folded(self, verb: ArithName, x: Reg, y: Reg) -> Reg | None:
        """The result on integers where constants say it: addresses are full of ``+ 0`` and ``* 1``,
        and each is a line for MLIR to read."""
        a, b = self.number_of(x), self.number_of(y)
        if a is None and b is None:
            return None
        neutral = _NEUTRAL.get(verb, _NONE)
        if b == neutral:
            return x
        if a == neutral and verb in ("add", "mul"):
            return y
        if x.dtype is INDEX and isinstance(a, int) and isinstance(b, int) and verb in _EXACT:
            return self.const(_EXACT[verb](a, b), INDEX, x.lanes)
        return None

    def compare(self, pred: CompareName, a: Reg | Number, b: Reg | Number) -> Reg:
        """Ordered float compare (``ne`` is true for nan), signed or unsigned integer compare."""
        x, y = self._pair(a, b)
        if isinstance(x, Complex) and isinstance(y, Complex):
            return complex.equal(self.kernel, pred, x, y)
        if x.dtype.is_float:
            p = "une" if pred == "ne" else "o" + pred
            return self.op(f"arith.cmpf {p}, {x.name}, {y.name} : {x.mlir}", bool_, x.lanes)
        if x.dtype.is_float8:
            return self.compare(pred, self.cast(x, f32), self.cast(y, f32))
        sign = "" if pred in ("eq", "ne") else "s" if x.dtype.kind == "int" else "u"
        return self.pure(f"arith.cmpi {sign}{pred}, {x.name}, {y.name} : {x.mlir}", bool_, x.lanes)

    def select(self, cond: Reg, a: Reg | Number, b: Reg | Number) -> Reg:
        """a where ``cond`` holds, else b."""
        x, y = self._pair(a, b)
        if isinstance(x, Complex) and isinstance(y, Complex):
            re, im = self.select(cond, x.re, y.re), self.select(cond, x.im, y.im)
            return complex.pair(re, im)
        lanes = max(cond.lanes, x.lanes)
        kinds = x.mlir
        if lanes:
            cond, x, y = self.splat(cond, lanes), self.splat(x, lanes), self.splat(y, lanes)
            kinds = f"{cond.mlir}, {x.mlir}"
        return self.pure(f"arith.select {cond.name}, {x.name}, {y.name} : {kinds}", x.dtype, lanes)

    def logical_not(self, x: Reg) -> Reg:
        """The opposite of a bool."""
        return x ^ True

    def neg(self, x: Reg) -> Reg:
        """The sign changed; integers wrap."""
        if isinstance(x, Complex):
            return complex.pair(self.neg(x.re), self.neg(x.im))
        if x.dtype.is_float:
            return self.op(f"arith.negf {x.name} : {x.mlir}", x.dtype, x.lanes)
        return self.arith("sub", 0, x)

    def fma(self, a: Reg, b: Reg | Number, c: Reg | Number) -> Reg:
        """a * b + c, rounded once."""
        a, b = self._pair(a, b)
        a, c = self._pair(a, c)
        b = self.splat(b, a.lanes) if a.lanes else b
        # Not vector.fma: it becomes llvm.fmuladd, which may round twice.
        return self.op(f"math.fma {a.name}, {b.name}, {c.name} : {a.mlir}", a.dtype, a.lanes)

    def maximum(self, a: Reg | Number, b: Reg | Number) -> Reg:
        """The larger; nan if either is nan."""
        return self._extreme("max", a, b)

    def minimum(self, a: Reg | Number, b: Reg | Number) -> Reg:
        """The smaller; nan if either is nan."""
        return self._extreme("min", a, b)

    def _extreme(self, verb: str, a: Reg | Number, b: Reg | Number) -> Reg:
        x, y = self._pair(a, b)
        if x.dtype is bool_:
            return x | y if verb == "max" else x & y
        tail = "imumf" if x.dtype.is_float else "ui" if x.dtype.kind == "uint" else "si"
        return self.pure(f"arith.{verb}{tail} {x.name}, {y.name} : {x.mlir}", x.dtype, x.lanes)

    def reduce(self, kind: str, x: Reg) -> Reg:
        """Fold the lanes of a vector in a fixed tree: add, mul, maximum or minimum.

        TypeError unless the lanes are a power of two.
        """
        folds: dict[str, Callable[[Reg, Reg], Reg]] = {
            "add": lambda a, b: a + b,
            "mul": lambda a, b: a * b,
            "maximum": self.maximum,
            "minimum": self.minimum,
        }
        n = x.lanes
        if kind not in folds or not n or n & (n - 1):
            raise self._refuse(f"cannot fold {n} lanes by {kind!r}; it takes {', '.join(folds)}")
        while n > 1:
            n //= 2
            x = folds[kind](self._slice(x, 0, n), self._slice(x, n, n))
        return self.extract(x, 0)

    def any(self, x: Reg) -> Reg:
        """Whether a bool is true in any lane."""
        if not x.lanes:
            return x
        return self.op(f"vector.reduction <or>, {x.name} : {x.mlir} into i1", bool_, 0)

    # -- functions -------------------------------------------------------------------------

    def unary(self, mlir_op: str, x: Reg) -> Reg:
        """An upstream op of one operand, such as ``math.sqrt`` or ``math.roundeven``."""
        return self.op(f"{mlir_op} {x.name} : {x.mlir}", x.dtype, x.lanes)

    def call(self, name: str, *xs: Reg) -> Reg:
        """A function of the target's math table, such as ``exp``."""
        return self.target.math[name](*xs)

    def pair(self, re: Reg, im: Reg) -> Reg:
        """The complex register of two real ones."""
        return complex.pair(*self._pair(re, im))

    def angle(self, x: Complex) -> Reg:
        """The argument of a complex register, in [-pi, pi]."""
        return complex.angle(self.kernel, x)

    # Math functions by name, so that an op's scalar meaning reads as a formula.
    def exp(self, x: Reg) -> Reg:
        """e to the power of x, by the target's math."""
        if isinstance(x, Complex):
            return complex.exp(self.kernel, x)
        return self.call("exp", x)

    def log(self, x: Reg) -> Reg:
        """Natural logarithm, by the target's math; of a complex number the principal one."""
        if isinstance(x, Complex):
            return complex.log(self.kernel, x)
        return self.call("log", x)

    def expm1(self, x: Reg) -> Reg:
        """exp(x) - 1, by the target's math."""
        return self.call("expm1", x)

    def log1p(self, x: Reg) -> Reg:
        """log(1 + x), by the target's math."""
        return self.call("log1p", x)

    def tanh(self, x: Reg) -> Reg:
        """Hyperbolic tangent, by the target's math."""
        return self.call("tanh", x)

    def erf(self, x: Reg) -> Reg:
        """Error function, by the target's math."""
        return self.call("erf", x)

    def erfinv(self, x: Reg) -> Reg:
        """Inverse of the error function, by the target's math."""
        return self.call("erfinv", x)

    def gelu(self, x: Reg) -> Reg:
        """x times the distribution function of the standard normal, by the target's math."""
        return self.call("gelu", x)

    def sin(self, x: Reg) -> Reg:
        """Sine of radians, by the target's math."""
        return self.call("sin", x)

    def cos(self, x: Reg) -> Reg:
        """Cosine of radians, by the target's math."""
        return self.call("cos", x)

    def tan(self, x: Reg) -> Reg:
        """Tangent of radians, by the target's math."""
        return self.call("tan", x)

    def atan(self, x: Reg) -> Reg:
        """Arc tangent, by the target's math."""
        return self.call("atan", x)

    def atan2(self, y: Reg | Number, x: Reg | Number) -> Reg:
        """The angle of the point (x, y) in radians, by the target's math."""
        return self.call("atan2", *self._pair(y, x))

    def pow(self, x: Reg, y: Reg) -> Reg:
        """x to the power of y, by the target's math."""
        return self.call("pow", x, y)

    def sigmoid(self, x: Reg) -> Reg:
        """1 / (1 + exp(-x)), with no overflow for large negative x."""
        return 1.0 / (self.exp(-x) + 1.0)

    def sqrt(self, x: Reg) -> Reg:
        """Square root, correctly rounded if real; of a complex number the principal one."""
        if isinstance(x, Complex):
            return complex.sqrt(self.kernel, x)
        return self.unary("math.sqrt", x)

    def abs(self, x: Reg) -> Reg:
        """Absolute value; the least signed integer stays itself. The modulus, a real register, of a
        complex one."""
        if isinstance(x, Complex):
            return complex.absolute(self.kernel, x)
        if x.dtype.kind == "uint":
            return x
        if x.dtype.is_float:
            return self.unary("math.absf", x)
        # Not math.absi, which has no way to PTX; code generators know this form.
        return self.maximum(x, self.neg(x))

    def floor(self, x: Reg) -> Reg:
        """The largest whole number not above x."""
        return self.unary("math.floor", x)

    def ceil(self, x: Reg) -> Reg:
        """The smallest whole number not below x."""
        return self.unary("math.ceil", x)

    def trunc(self, x: Reg) -> Reg:
        """The whole number next to x on the side of 0."""
        # Not math.trunc, which has no way to PTX.
        return self.select(x < 0.0, self.ceil(x), self.floor(x))

    def round_even(self, x: Reg) -> Reg:
        """The nearest whole number, of two the even one."""
        return self.unary("math.roundeven", x)


def _int_op(verb: str, dt: DType) -> str:
    unsigned = dt.kind != "int" or dt is INDEX
    if verb in ("div", "rem"):
        return f"{verb}{'ui' if unsigned else 'si'}"
    if verb == "shr":
        return "shrui" if unsigned else "shrsi"
    return f"{verb}i"
