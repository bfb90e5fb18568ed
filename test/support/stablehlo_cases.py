"""Random programs of one op of StableHLO each: its types, shapes and attributes drawn anew.

``GENERATORS`` has a function of a random generator by the op's name, which gives the text of a
program and arrays for it. Every other program of elements has special numbers among its operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from support.stablehlo import Array, drawn, program, types_of

__all__ = ["GENERATORS", "case"]

Rng = np.random.Generator
Program = tuple[str, str, str]
"""The body, the types of inputs, and of outputs."""

FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
COMPLEX = ("complex<f32>", "complex<f64>")
INTS = (*SIGNED, *UNSIGNED)
REAL = (*FLOATS, *INTS)
ANY = (*REAL, "i1", *COMPLEX)

GENERATORS: dict[str, Callable[[Rng], Program]] = {}


def case(name: str, seed: int) -> tuple[str, list[Array]]:
    """A program of an op, and arrays for it."""
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    text = whole(*GENERATORS[name](rng))
    low, high = RANGES.get(name, (-4, 4))
    arrays = drawn(text, rng, low, high)
    if name in SPECIAL and seed % 2:
        arrays = [_special(a, rng) for a in arrays]
    return text, arrays


def whole(body: str, inputs: str, outputs: str) -> str:
    """The text of a program. One of complex numbers takes and gives their parts, since the package
    cannot pass them to the interpreter."""
    text = program(body, inputs, outputs)
    if "complex" not in inputs + outputs:
        return text
    inner = text.split("\n", 1)[1].rsplit("}", 1)[0].replace("public @main", "private @inner")
    taken, given, lines, last = [], [], [], []
    for i, of in enumerate(types_of(inputs)):
        parts = _parts_of(of)
        names = [f"%p{i}_{j}" for j in range(len(parts))]
        taken += [f"{name}: {part}" for name, part in zip(names, parts, strict=True)]
        lines.append(
            f"%w{i} = stablehlo.complex {', '.join(names)} : {of}" if len(parts) > 1 else ""
        )
        given.append(f"%w{i}" if len(parts) > 1 else names[0])
    found = types_of(outputs)
    call = f"%f:{len(found)} = func.call @inner({', '.join(given)})"
    lines.append(f"{call} : ({', '.join(types_of(inputs))}) -> ({', '.join(found)})")
    for i, of in enumerate(found):
        part, *more = _parts_of(of)
        for word in ("real", "imag") if more else ():
            lines.append(f"%{word}{i} = stablehlo.{word} %f#{i} : ({of}) -> {part}")
            last.append((f"%{word}{i}", part))
        if not more:
            last.append((f"%f#{i}", part))
    names, kinds = (", ".join(words) for words in zip(*last, strict=True))
    main = f"func.func public @main({', '.join(taken)}) -> ({kinds}) {{"
    return "\n".join(["module {", main, *filter(None, lines), f"return {names} : {kinds}", "}",
                      inner, "}"])  # fmt: skip


def _parts_of(of: str) -> list[str]:
    part = re.sub(r"complex<(\w+)>", r"\1", of)
    return [part, part] if part != of else [of]


def _special(a: Array, rng: Rng) -> Array:
    """The array with a third of its elements among those at the ends of its type."""
    if a.dtype == bool or not a.size:
        return a
    if a.dtype.kind in "iu":
        info = np.iinfo(a.dtype)
        ends = [info.min, info.max, info.max - 1, 0, 1]
    else:
        ends = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 1e4]
    found = np.where(rng.random(a.shape) < 1 / 3, rng.choice(np.array(ends, a.dtype), a.shape), a)
    return found.astype(a.dtype)


def shape(rng: Rng, least: int = 0, most: int = 3, empty: bool = True) -> list[int]:
    """A few dims; now and then one is 0."""
    found = [int(d) for d in rng.integers(1, 5, int(rng.integers(least, most + 1)))]
    if empty and found and rng.random() < 0.05:
        found[int(rng.integers(len(found)))] = 0
    return found


def t(dims: Sequence[int], kind: str) -> str:
    """The text of a type."""
    return f"tensor<{''.join(f'{d}x' for d in dims)}{kind}>"


def ints(values: Sequence[int]) -> str:
    """The text of an attribute of integers."""
    return f"array<i64{': ' if len(values) else ''}{', '.join(map(str, values))}>"


def pick(rng: Rng, values: Sequence[str]) -> str:
    """One of some words."""
    return values[int(rng.integers(len(values)))]


def some(rng: Rng, count: int, least: int = 0) -> list[int]:
    """Some numbers below a count, in order."""
    many = int(rng.integers(least, count + 1))
    return sorted(int(i) for i in rng.permutation(count)[:many])


def generator(*names: str) -> Callable[[Callable[[Rng], Program]], Callable[[Rng], Program]]:
    """The function makes programs of an op."""

    def f(make: Callable[[Rng], Program]) -> Callable[[Rng], Program]:
        for name in names:
            GENERATORS[name] = make
        return make

    return f


# -- elements ------------------------------------------------------------------------------

UNARY: dict[str, Sequence[str]] = {
    **dict.fromkeys(("ceil", "floor", "round_nearest_afz", "round_nearest_even"), FLOATS),
    **dict.fromkeys(("cbrt",), FLOATS),
    **dict.fromkeys(
        ("cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic",
         "rsqrt", "sine", "sqrt", "tan", "tanh"),
        (*FLOATS, *COMPLEX),
    ),
    "abs": (*SIGNED, *FLOATS), "negate": (*REAL, *COMPLEX), "sign": (*SIGNED, *FLOATS, *COMPLEX),
    "not": (*INTS, "i1"), "popcnt": INTS, "count_leading_zeros": INTS,
}  # fmt: skip
BINARY: dict[str, Sequence[str]] = {
    "add": ANY, "multiply": ANY, "subtract": (*REAL, *COMPLEX), "divide": (*REAL, *COMPLEX),
    "maximum": (*REAL, "i1"), "minimum": (*REAL, "i1"), "remainder": REAL,
    "power": (*REAL, *COMPLEX), "atan2": FLOATS,
    **dict.fromkeys(("and", "or", "xor"), (*INTS, "i1")),
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), INTS),
}  # fmt: skip
RANGES = {
    **dict.fromkeys(("log", "log_plus_one", "sqrt", "rsqrt"), (0.1, 4)),
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), (0, 70)),
    "divide": (1, 7), "remainder": (1, 7), "power": (1, 4), "dynamic_slice": (-2, 6),
    "dynamic_update_slice": (-2, 6), "gather": (-2, 6), "scatter": (-2, 6), "case": (-2, 4),
    "dynamic_gather": (-2, 6),
}  # fmt: skip
SPECIAL = {*UNARY, "add", "multiply", "subtract", "maximum", "minimum", "compare", "clamp",
           "select", "is_finite", "convert", "reduce_precision", "atan2", "and", "or",
           "xor"}  # fmt: skip


def _elementwise(name: str, kinds: Sequence[str], count: int) -> Callable[[Rng], Program]:
    def make(rng: Rng) -> Program:
        of = t(shape(rng), pick(rng, kinds))
        operands = ", ".join(f"%{c}" for c in "ab"[:count])
        return f"%r = stablehlo.{name} {operands} : {of}", f"{of} " * count, of

    return make


for _table, _count in ((UNARY, 1), (BINARY, 2)):
    for _name, _kinds in _table.items():
        generator(_name)(_elementwise(_name, _kinds, _count))


@generator("is_finite")
def _is_finite(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, FLOATS)
    of, to = t(dims, kind), t(dims, "i1")
    return f"%r = stablehlo.is_finite %a : ({of}) -> {to}", of, to


@generator("compare")
def _compare(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ANY)
    words = ("EQ", "NE") if kind in COMPLEX else ("EQ", "NE", "LT", "LE", "GT", "GE")
    of, to = t(dims, kind), t(dims, "i1")
    return (
        f"%r = stablehlo.compare {pick(rng, words)}, %a, %b : ({of}, {of}) -> {to}",
        f"{of} {of}", to,
    )  # fmt: skip


@generator("select")
def _select(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ANY)
    of, by = t(dims, kind), t(dims if rng.random() < 0.7 else [], "i1")
    return f"%r = stablehlo.select %a, %b, %c : {by}, {of}", f"{by} {of} {of}", of


@generator("clamp")
def _clamp(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, (*REAL, "i1"))
    of = t(dims, kind)
    ends = [of if rng.random() < 0.5 else t([], kind) for _ in range(2)]
    types = f"({ends[0]}, {of}, {ends[1]}) -> {of}"
    return f"%r = stablehlo.clamp %a, %b, %c : {types}", f"{ends[0]} {of} {ends[1]}", of


@generator("convert")
def _convert(rng: Rng) -> Program:
    dims = shape(rng)
    of, to = t(dims, pick(rng, ANY)), t(dims, pick(rng, ANY))
    return f"%r = stablehlo.convert %a : ({of}) -> {to}", of, to


@generator("bitcast_convert")
def _bitcast(rng: Rng) -> Program:
    same = [("i32", "ui32", "f32"), ("i16", "ui16", "f16", "bf16"), ("i64", "ui64", "f64"),
            ("i8", "ui8")]  # fmt: skip
    kinds, dims = same[int(rng.integers(len(same)))], shape(rng)
    of, to = t(dims, pick(rng, kinds)), t(dims, pick(rng, kinds))
    return f"%r = stablehlo.bitcast_convert %a : ({of}) -> {to}", of, to


@generator("reduce_precision")
def _reduce_precision(rng: Rng) -> Program:
    of = t(shape(rng), pick(rng, FLOATS))
    form = pick(rng, ("e5m10", "e8m7", "e8m23", "e11m52"))
    return f"%r = stablehlo.reduce_precision %a, format = {form} : {of}", of, of


@generator("complex")
def _complex(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ("f32", "f64"))
    of, to = t(dims, kind), t(dims, f"complex<{kind}>")
    return f"%r = stablehlo.complex %a, %b : {to}", f"{of} {of}", to


@generator("real", "imag")
def _parts(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ("f32", "f64"))
    of, to = t(dims, f"complex<{kind}>"), t(dims, kind)
    return (
        f"%x = stablehlo.real %a : ({of}) -> {to}\n%y = stablehlo.imag %a : ({of}) -> {to}\n"
        f"%r = stablehlo.subtract %x, %y : {to}", of, to,
    )  # fmt: skip


# -- movement ------------------------------------------------------------------------------


@generator("iota")
def _iota(rng: Rng) -> Program:
    dims = shape(rng, 1)
    to = t(dims, pick(rng, (*REAL, *COMPLEX)))
    return f"%r = stablehlo.iota dim = {rng.integers(len(dims))} : {to}", "", to


@generator("reshape")
def _reshape(rng: Rng) -> Program:
    dims, kind = shape(rng, 1), pick(rng, ANY)
    cut = int(rng.integers(len(dims)))
    to = [*dims[:cut], int(np.prod(dims[cut:])), 1]
    return (
        f"%r = stablehlo.reshape %a : ({t(dims, kind)}) -> {t(to, kind)}",
        t(dims, kind),
        t(to, kind),
    )


@generator("transpose")
def _transpose(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ANY)
    order = [int(i) for i in rng.permutation(len(dims))]
    of, to = t(dims, kind), t([dims[i] for i in order], kind)
    return f"%r = stablehlo.transpose %a, dims = {order} : ({of}) -> {to}", of, to


@generator("broadcast_in_dim")
def _broadcast(rng: Rng) -> Program:
    to, kind = shape(rng, 1, 4), pick(rng, ANY)
    axes = [int(i) for i in rng.permutation(len(to))[: int(rng.integers(0, len(to) + 1))]]
    dims = [to[i] if rng.random() < 0.7 else 1 for i in axes]
    of = t(dims, kind)
    return (
        f"%r = stablehlo.broadcast_in_dim %a, dims = {axes} : ({of}) -> {t(to, kind)}",
        of,
        t(to, kind),
    )


@generator("concatenate")
def _concatenate(rng: Rng) -> Program:
    dims, kind = shape(rng, 1), pick(rng, ANY)
    axis = int(rng.integers(len(dims)))
    sizes = [int(n) for n in rng.integers(0, 4, int(rng.integers(1, 4)))]
    parts = [t([*dims[:axis], n, *dims[axis + 1 :]], kind) for n in sizes]
    to = t([*dims[:axis], sum(sizes), *dims[axis + 1 :]], kind)
    named = ", ".join(f"%{'abc'[i]}" for i in range(len(parts)))
    body = f"%r = stablehlo.concatenate {named}, dim = {axis} : ({', '.join(parts)}) -> {to}"
    return body, " ".join(parts), to


@generator("reverse")
def _reverse(rng: Rng) -> Program:
    dims = shape(rng, 1)
    of = t(dims, pick(rng, ANY))
    return f"%r = stablehlo.reverse %a, dims = {some(rng, len(dims))} : {of}", of, of


@generator("slice")
def _slice(rng: Rng) -> Program:
    dims, kind = shape(rng, 1), pick(rng, ANY)
    cuts, to = [], []
    for d in dims:
        low = int(rng.integers(0, d + 1))
        high, step = int(rng.integers(low, d + 1)), int(rng.integers(1, 4))
        cuts.append(f"{low}:{high}:{step}")
        to.append(-(-(high - low) // step))
    of = t(dims, kind)
    return f"%r = stablehlo.slice %a [{', '.join(cuts)}] : ({of}) -> {t(to, kind)}", of, t(to, kind)


@generator("pad")
def _pad(rng: Rng) -> Program:
    dims, kind = shape(rng), pick(rng, ANY)
    while True:
        low, high = (rng.integers(-2, 3, len(dims)).tolist() for _ in range(2))
        between = rng.integers(0, 3, len(dims)).tolist()
        to = [
            a + b + d + max(d - 1, 0) * n
            for d, a, b, n in zip(dims, low, high, between, strict=True)
        ]
        if min(to, default=0) >= 0:
            break
    of = t(dims, kind)
    return (
        f"%r = stablehlo.pad %a, %b, low = {low}, high = {high}, interior = {between}"
        f" : ({of}, {t([], kind)}) -> {t(to, kind)}", f"{of} {t([], kind)}", t(to, kind),
    )  # fmt: skip


@generator("dynamic_slice")
def _dynamic_slice(rng: Rng) -> Program:
    dims, kind, at = shape(rng, 1, 3, empty=False), pick(rng, ANY), t([], pick(rng, INTS))
    sizes = [int(rng.integers(0, d + 1)) for d in dims]
    of, to = t(dims, kind), t(sizes, kind)
    places = ["%b", "%c", "%d"][: len(dims)]
    types = ", ".join([of, *[at] * len(dims)])
    return (
        f"%r = stablehlo.dynamic_slice %a, {', '.join(places)}, sizes = {sizes}"
        f" : ({types}) -> {to}", types, to,
    )  # fmt: skip


@generator("dynamic_update_slice")
def _dynamic_update_slice(rng: Rng) -> Program:
    dims, kind, at = shape(rng, 1, 3, empty=False), pick(rng, ANY), t([], pick(rng, INTS))
    of, part = t(dims, kind), t([int(rng.integers(0, d + 1)) for d in dims], kind)
    places = ["%c", "%d", "%e"][: len(dims)]
    types = ", ".join([of, part, *[at] * len(dims)])
    return (
        f"%r = stablehlo.dynamic_update_slice %a, %b, {', '.join(places)} : ({types}) -> {of}",
        types, of,
    )  # fmt: skip
