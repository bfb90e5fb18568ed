"""The base class of ops. One class per op holds every fact about it; everything else is derived.

    class Tanh(Unary, name="mir.tanh"):
        '''Hyperbolic tangent of every element.'''
        x: Value = operand("any float tensor")
        ...

From the class come the builder method and the operator, the MLIR op with its verifier, the
interpreter, the gradient and batching transforms, the common lowering, the generated tests, the
``.pyi`` stub and the reference page. This module imports nothing of MLIR.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, dataclass_transform

import numpy as np

from rlx.base.dims import is_known, same_shape
from rlx.errors import DTypeError, GraphError, RlxError, a_type
from rlx.ir.attrs import DIMS, OFFSETS, normalise, with_ranges
from rlx.ir.declared import check_name, enter
from rlx.ir.location import Location, caller, located
from rlx.ir.pure import Fixed
from rlx.ir.value import Value, bytes_of
from rlx.types import DTYPES, DType, TensorType

if TYPE_CHECKING:
    from rlx.ir.factors import Parts

__all__ = [
    "Attr",
    "Bad",
    "Cost",
    "Op",
    "Operand",
    "Sample",
    "attr",
    "bad",
    "located",
    "op_class",
    "operand",
    "optional",
    "registry",
    "sample",
    "variadic",
]

Array = np.ndarray[Any, Any]

REQUIRED: Any = object()


class Operand:
    """A declared operand: read as an attribute of a node it gives the Value (or None), or for a
    variadic one the tuple of them."""

    def __init__(self, doc: str, *, optional: bool = False, variadic: bool = False) -> None:
        self.doc, self.optional, self.variadic = doc, optional, variadic
        self.name, self.index = "", -1

    def __get__(self, node: Op | None, owner: type[Op]) -> Any:
        if node is None:
            return self
        return node.operands[self.index :] if self.variadic else node.operands[self.index]


class Attr:
    """A declared attribute; ``kind`` is the annotation's text, which decides how it is stored."""

    def __init__(self, default: Any, doc: str) -> None:
        self.default, self.doc = default, doc
        self.name = self.kind = ""

    def __get__(self, node: Op | None, owner: type[Op]) -> Any:
        return self if node is None else node.attrs[self.name]


def operand(doc: str = "") -> Any:
    """Declare an operand."""
    return Operand(doc)


def optional(doc: str = "") -> Any:
    """Declare an operand that may be absent (None)."""
    return Operand(doc, optional=True)


def variadic(doc: str = "") -> Any:
    """Declare the last operand as any number of them, annotated ``tuple[Value, ...]``. The op then
    takes its attributes by name only."""
    return Operand(doc, variadic=True)


def attr(default: Any = REQUIRED, doc: str = "") -> Any:
    """Declare an attribute. Its annotation is one of bool, int, float, str, DType, ``tuple[int,
    ...]``, ``tuple[Dim, ...]``, ``Array`` or ``Graph``; with no default it must be given."""
    return Attr(default, doc)


class Cost(NamedTuple):
    """Work of one execution: floating-point (or integer) operations, and bytes moved."""

    flops: int
    bytes: int


class Sample(NamedTuple):
    """Operand types and attributes on which an op must work; tests are generated from it.

    A type is text such as ``"2x3xT"``: T stands for each of the op's ``dtypes`` in turn, any
    other element type is fixed; None is an absent optional operand. ``data`` says for an operand
    by position what values it takes: "normal" (the default), "positive", "unit" (in (-1, 1)),
    "above_one", "nonzero", "bool", "index:N" (integers in [0, N)), or "hidden" (some are -inf, also
    whole rows); for matrices "spd" (symmetric positive definite), "dominant" (a large diagonal) or
    "spread" (eigenvalues apart from each other). ``derivatives`` is how many there are of a
    differentiable op: 2 stands for any number, with 1 second ones are an UnsupportedError, with 0
    all are.
    """

    types: tuple[str | None, ...]
    attrs: dict[str, Any]
    data: dict[int, str]
    derivatives: int


class Bad(NamedTuple):
    """Operand types and attributes that the op must refuse, with a part of the message."""

    types: tuple[str | None, ...]
    match: str
    error: type[RlxError]
    attrs: dict[str, Any]


def sample(
    *types: str | None, data: dict[int, str] | None = None, derivatives: int = 2, **attrs: Any
) -> Sample:
    """Write a Sample: ``sample("2x3xT", "3xT", axis=1, data={1: "positive"})``."""
    return Sample(types, attrs, data or {}, derivatives)


def bad(*types: str | None, match: str, error: type[RlxError], **attrs: Any) -> Bad:
    """Write a Bad: ``bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError)``."""
    return Bad(types, match, error, attrs)


_serials = count()

registry: dict[str, type[Op]] = {}
"""Every loaded op class by its full name ("mir.tanh")."""


def op_class(name: str) -> type[Op]:
    """The class of an op by full name, loading its family on first use; GraphError if unknown."""
    if name not in registry:
        from rlx.ops import load

        load(name)
    return registry[name]


@cache
def _fields_of(base: type) -> tuple[tuple[str, str, Operand | Attr], ...]:
    """The operands and attributes that a class declares itself, with their names and kinds."""
    found: list[tuple[str, str, Operand | Attr]] = []
    for key, kind in inspect.get_annotations(base).items():
        f = base.__dict__.get(key)
        if isinstance(f, Operand | Attr):
            found.append((key, kind if isinstance(kind, str) else kind.__name__, f))
    return tuple(found)


@dataclass_transform(kw_only_default=False, field_specifiers=(operand, optional, variadic, attr))
class Op(Fixed):
    """A node: one use of an op on Values. Construction checks and infers; nodes never change.

    A subclass names itself (``name="mir.tanh"``), declares operands then attributes, and defines

    - ``infer``: result type(s), raising ShapeError or DTypeError for operands that do not fit;
    - ``reference``: the meaning, in numpy, of operand arrays to result array(s);
    - one of ``scalar`` (pointwise: a formula over kernel registers), ``loops`` (a loop nest),
      ``expand`` (other ops) or ``kernel`` (``rlx.ir.foreign_kernel``); a composite has ``expand``
      and maybe a kernel family of its own;
    - ``vjp``, ``jvp`` and ``batch``, or declares ``differentiable = False``;
    - ``samples`` and ``bads`` for the generated tests, ``dtypes`` that T in them ranges over.
    """

    name: ClassVar[str] = ""
    dialect: ClassVar[str] = ""
    operand_fields: ClassVar[tuple[Operand, ...]] = ()
    attr_fields: ClassVar[tuple[Attr, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    """Of operands, then of attributes."""
    attr_labels: ClassVar[tuple[str, ...]] = ()
    """What errors call the attributes."""
    dtypes: ClassVar[tuple[DType, ...]] = ()
    samples: ClassVar[Sequence[Sample]] = ()
    bads: ClassVar[Sequence[Bad]] = ()
    result_count: ClassVar[int] = 1
    flops_per_element: ClassVar[int] = 1
    """Arithmetic for an element of a result, a function such as exp as one operation; 0 for what
    only moves data."""
    differentiable: ClassVar[bool] = True
    pointwise: ClassVar[bool] = False
    commutes: ClassVar[bool] = False
    """Whether the two operands may change places without a change of a bit."""

    linear: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """Groups of operands in which the op is linear: of parts of sums in the place of a group it
    gives parts of the sum of results."""

    meets: ClassVar[bool] = False
    """Whether the ranks of a mesh meet in it: it runs in every call, in the order of the graph, and
    never while compiling."""

    reference: ClassVar[Callable[..., Any]]
    """``reference(self, *arrays)`` -> array or tuple of arrays, dtypes as ``infer`` says."""
    expand: ClassVar[Callable[..., Any]]
    """``expand(self)`` -> Value or tuple of Values, built from the operands by other ops."""
    scalar: ClassVar[Callable[..., Any]]
    """``scalar(self, k, *regs)`` -> register: the value of one element (16-bit floats as f32)."""
    loops: ClassVar[Callable[..., None]]
    """``loops(self, b)``: the loop nest on a ``rlx.kernels.fallback.emit.LoopBuilder``."""
    kernel: ClassVar[Callable[..., Any]]
    """``kernel(self)`` -> CKernel, MlirKernel or PythonKernel: one from outside, for CPUs."""
    vjp: ClassVar[Callable[..., Any]]
    """``vjp(self, *cotangents)`` -> a Value or None for every operand."""
    record: ClassVar[Callable[..., Any]]
    """``record(self)`` -> the results, computed so that a reverse derivative finds what it needs of
    the computation, and a dict of nodes with Values, which their ``vjp`` is given as ``record``,
    with ``wanted``: for every operand whether its cotangent is asked for."""
    jvp: ClassVar[Callable[..., Any]]
    """``jvp(self, *tangents)`` (None where an operand has none) -> tangent(s) of the result(s)."""
    batch: ClassVar[Callable[..., Any]]
    """``batch(self, operands, batched)``: the op on operands of which those marked carry a new
    leading axis -> result(s), all with the new leading axis; a result may be a pair of the Value
    and whether it has the axis."""

    factors: ClassVar[Callable[..., Any]]
    """``factors(self)`` -> Factors (``rlx.ir.factors``): along which dims ranks share the work."""

    run: ClassVar[Callable[..., Any]]
    """``run(self, call, *arrays)``, in place of ``reference`` for an op with bodies: ``call(graph,
    arrays)`` gives the outputs of one."""

    operands: tuple[Value | None, ...]
    present: tuple[Value, ...]
    """The operands that are there."""
    attrs: dict[str, Any]
    results: tuple[Value, ...]
    location: Location
    serial: int
    """Nodes that are made later have greater ones."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            return  # a shared base, not an op
        check_name(registry, cls, name)
        cls.name, cls.dialect = name, name.split(".")[0]
        operands: list[Operand] = []
        attrs: list[Attr] = []
        for base in reversed(cls.__mro__):
            for key, kind, f in _fields_of(base):
                f.name = key
                if isinstance(f, Operand):
                    f.index = len(operands)
                    operands.append(f)
                else:
                    f.kind = kind
                    attrs.append(f)
        cls.operand_fields, cls.attr_fields = tuple(operands), tuple(attrs)
        cls.field_names = tuple([f.name for f in (*operands, *attrs)])
        short = name.partition(".")[2]
        cls.attr_labels = tuple([f"{short}: attribute {a.name!r}" for a in attrs])
        enter(registry, cls, name)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._make(caller(), args, kwargs)

    def _make(self, location: Location, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.location, self.serial = location, next(_serials)
        try:
            self.operands, self.attrs = self._bind(args, kwargs)
            self.present = tuple([v for v in self.operands if v is not None])
            home = self._home()
            types = self.infer()
            many = types if isinstance(types, tuple) else (types,)
            self.results = tuple(
                [Value(t.addressable(), self, i, home) for i, t in enumerate(many)]
            )
        except RlxError as e:
            if e.location is None:
                raise type(e)(e.message, self.location) from None
            raise

    def _home(self) -> Any:
        """The graph of the operands: of those in a body and around it, the body."""
        home, first = None, None
        for v in self.operands:
            if v is None or v.graph is None or v.graph is home:
                continue
            if home is None or v.graph.depth > home.depth:
                home, first = v.graph, v
            elif not home.depth:
                raise GraphError(
                    f"{self.short}: {first!r} is of graph {home.name!r}, and {v!r} of another,"
                    f" {v.graph.name!r}; operands are of one graph"
                )
        return home

    def _bind(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names, many = self.field_names, list[Any]()
        if self.operand_fields and self.operand_fields[-1].variadic:
            first = self.operand_fields[-1].index
            args, many = args[:first], list(args[first:])
        if len(args) > len(names):
            raise GraphError(f"{self.short} takes {len(names)} arguments, found {len(args)}")
        given = dict(zip(names, args, strict=False)) | kwargs
        operands: list[Value | None] = []
        for f in self.operand_fields:
            for v in many if f.variadic else [given.pop(f.name, None)]:
                if v is None and not f.optional:
                    raise GraphError(f"{self.short} needs its operand {f.name!r}")
                if v is not None and not isinstance(v, Value):
                    kind = a_type(v)
                    raise GraphError(
                        f"{self.short}: operand {f.name!r} is {kind}, expected a Value"
                    )
                operands.append(v)
        attrs: dict[str, Any] = {}
        for a, label in zip(self.attr_fields, self.attr_labels, strict=True):
            value = given.pop(a.name, a.default)
            if value is REQUIRED:
                raise GraphError(f"{self.short} needs its attribute {a.name!r}")
            value = normalise(value, a.kind, label)
            symbolic = a.kind in (DIMS, OFFSETS)
            attrs[a.name] = with_ranges(value, operands) if symbolic else value
        if given:
            raise GraphError(f"{self.short} has no argument {next(iter(given))!r}")
        return tuple(operands), attrs

    # -- what subclasses define ------------------------------------------------------------

    def infer(self) -> TensorType | tuple[TensorType, ...]:
        """The result type, or a tuple of them; raises for operands that do not fit."""
        raise AssertionError(f"{type(self).__name__} defines no infer")

    def cost(self) -> Cost:
        """``flops_per_element``, and every operand and result moved once; 0 for a symbolic size."""
        size = sum(_count(v.type) for v in self.results)
        return Cost(self.flops_per_element * size, bytes_of([*self.present, *self.results]))

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        """The results on a rank, of the parts of the operands that ``factors`` says; an op whose
        attributes hold sizes gives those of a rank."""
        return self.with_operands(operands).results

    # -- conveniences ----------------------------------------------------------------------

    @property
    def out(self) -> Value:
        """The first result."""
        return self.results[0]

    @property
    def short(self) -> str:
        """The name without its dialect, as users write it."""
        return self.name.split(".", 1)[1]

    def with_operands(self, operands: Sequence[Value | None], **attrs: Any) -> Op:
        """The same op on other operands, at the same place in the user's code."""
        fit = not attrs and len(operands) == len(self.operands)
        try:
            if fit and all(map(_alike, operands, self.operands)):
                return self._again(tuple(operands))
            node = type(self)(*operands, **{**self.attrs, **attrs})
        except RlxError as e:
            raise type(e)(e.message, self.location) from None
        node.location = self.location
        return node

    def _again(self, operands: tuple[Value | None, ...]) -> Op:
        """The same op on operands of the same types, of which its own follow: nothing is inferred
        again, which is most of what making one takes."""
        node: Op = object.__new__(type(self))
        node.location, node.serial = self.location, next(_serials)
        node.operands, node.attrs = operands, self.attrs
        node.present = tuple([v for v in operands if v is not None])
        home = node._home()
        node.results = tuple([Value(v.type, node, i, home) for i, v in enumerate(self.results)])
        return node

    @classmethod
    def composite(cls) -> bool:
        """Whether the op is defined by other ops."""
        return hasattr(cls, "expand")

    @classmethod
    def runnable(cls) -> bool:
        """Whether a target can run the op: by a formula, by a loop nest, by a kernel that it
        brings, or by what it expands to. A literal is data."""
        ways = ("loops", "kernel", "expand")
        return cls.pointwise or any(hasattr(cls, w) for w in ways) or cls.name == "mir.constant"

    def expansion(self) -> tuple[Value, ...]:
        """What ``expand`` of a composite gives in the place of each result, at its location."""
        with located(self.location):
            made: Any = self.expand()
        return made if isinstance(made, tuple) else (made,)

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Any:
        """What the builder method does: make the node and return its result(s)."""
        node = cls(*args, **kwargs)
        return node.out if len(node.results) == 1 else node.results

    def __repr__(self) -> str:
        parts = [str(v.type) if v is not None else "none" for v in self.operands]
        parts += [f"{k}={v!r}" for k, v in self.attrs.items()]
        return f"{self.name}({', '.join(parts)})"


def _alike(a: Value | None, b: Value | None) -> bool:
    """Whether two operands have one type, about which nothing is decided."""
    if a is None or b is None:
        return a is b
    return a.dtype is b.dtype and same_shape(a.shape, b.shape)


def _count(t: TensorType) -> int:
    n = t.size
    return n if is_known(n) else 0


def placeholders(types: Sequence[TensorType | None]) -> tuple[Value | None, ...]:
    """Values with no producer, to build a node that only states an op on given types."""
    return tuple(None if t is None else Value(t) for t in types)


def type_of(text: str, t: DType | None = None) -> TensorType:
    """Parse ``"2x3xT"`` with T standing for a dtype."""
    parts = text.split("x")
    dt = t if parts[-1] == "T" else DTYPES.get(parts[-1])
    if dt is None:
        raise DTypeError(f"unknown element type in {text!r}")
    return TensorType.of([int(p) if p.isdigit() else p for p in parts[:-1]], dt)
