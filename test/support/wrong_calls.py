"""Wrong calls of the whole public surface, made from signatures.

``surface`` lists what users can call: functions, classes, methods and ops. ``calls`` gives each
arguments that fit (``support.right_arguments``), and replaces one of them at a time by what does
not, leaves them out, adds some and misspells one. ``judge`` says what is wrong with the answer:
only an RlxError with a readable message, or a result, is right.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import random
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.base.dims import SymDim
from rlx.compat.names import NAMES as OTHERS
from rlx.errors import RlxError
from rlx.ir.builders import builder
from rlx.ir.op import Op
from rlx.ops import BUILDERS, load_all
from support.right_arguments import BY_NAME, BY_TYPE, F32, INSTANCES, World
from support.samples import cases

__all__ = ["Call", "Entry", "calls", "judge", "random_call", "surface"]

_PACKAGE = f"{Path(rlx.__file__).parent}/"


def wrong_values() -> dict[str, Callable[[World], Any]]:
    """What stands in the place of an argument, by a name for it."""
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    other = rlx.Graph("other").input("other", [2, 3])
    return {
        "None": lambda w: None,
        "42": lambda w: 42,
        "-1": lambda w: -1,
        "2**70": lambda w: 2**70,
        "1.5": lambda w: 1.5,
        "nan": lambda w: float("nan"),
        "'s'": lambda w: "s",
        "b'b'": lambda w: b"b",
        "[]": lambda w: [],
        "[None]": lambda w: [None],
        "{}": lambda w: {},
        "object()": lambda w: Thing(),
        "int": lambda w: int,
        "lambda": lambda w: lambda *a: 42,
        "a Value": lambda w: w.x,
        "a Value of another graph": lambda w: other,
        "SymDim": lambda w: SymDim.symbol("n"),
        "objects": lambda w: np.array([None, Thing()]),
        "structured": lambda w: np.zeros(2, [("a", "f4"), ("b", "i8")]),
        "0-d": lambda w: np.array(1.5),
        "huge": lambda w: np.broadcast_to(F32(0), (1, 2**45)),
        "True": lambda w: True,
        "deep": lambda w: deep,
        "generator": lambda w: (i for i in range(3)),
        "{'a': None}": lambda w: {"a": None},
        "{1: 2}": lambda w: {1: 2},
        "(1, 's')": lambda w: (1, "s"),
        "1j": lambda w: 1j,
        "'\\0'": lambda w: "\0",
        "a graph": lambda w: w.graph,
        "10**6": lambda w: 10**6,
    }


WRONG = wrong_values()


class Thing:
    """An object that is nothing which a call takes."""

    def __repr__(self) -> str:
        return "a thing"


class Entry(NamedTuple):
    """Something to call: a name, what gives it, and its signature without ``self``."""

    label: str
    get: Callable[[World], Callable[..., Any]]
    signature: inspect.Signature
    fitting: Callable[[World], tuple[list[Any], dict[str, Any]]] | None = None


LONG = {
    ("threads", "42"), ("runs", "2**70"), ("runs", "10**6"), ("steps", "2**70"), ("steps", "10**6"),
    ("epochs", "2**70"), ("epochs", "10**6"), ("rlx.sparse.from_dense", "huge"),
}  # fmt: skip
"""Parameters, or entries, with values that are right, and take long or change the process."""


class Call(NamedTuple):
    """One wrong call: how it is told, and what makes it."""

    label: str
    make: Callable[[], tuple[Callable[..., Any], list[Any], dict[str, Any]]]


SKIPPED = re.compile(
    r"rlx\.(errors\.|knobs\.|ops\.load|Device\b|Op\b|HirOp\b|If\b|While\b|Scan\b|Backend\b"
    r"|register_backend|Chain|RlxError|attr\b|operand\b|optional\b|Pass\b|QuantScheme|maybe_dump"
    r"|Error\b|LowerError\b|DeviceFallbackError|base\.dims\.|prelude\.|training\.State\b|FusionReport|optim\.(Schedule|Slots|Optimizer|At)\b|training\.Data\b)"
)
"""What is no call of a user's: errors, declarations, and what a user writes, not calls."""


def _public() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    places = [("rlx", rlx, [*rlx.NAMES, *OTHERS])]
    for space in (*rlx.NAMESPACES, "inspect", "base.dims"):
        module = importlib.import_module(f"rlx.{space}")
        places.append((f"rlx.{space}", module, list(getattr(module, "__all__", ()))))
    for prefix, module, names in places:
        for name in names:
            found = getattr(module, name)
            label = f"{prefix}.{name}"
            if callable(found) and id(found) not in seen and not SKIPPED.match(label):
                seen.add(id(found))
                yield label, found


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def surface() -> list[Entry]:
    """Everything that is called in the sweep, in a fixed order."""
    load_all()
    found: list[Entry] = []
    for label, thing in _public():
        signature = _signature(thing)
        is_op = inspect.isclass(thing) and issubclass(thing, Op)
        enum = inspect.isclass(thing) and issubclass(thing, str)
        if signature is not None and not is_op and not enum:
            found.append(Entry(label, lambda w, t=thing: t, signature))
        if inspect.isclass(thing) and not is_op and not enum:
            found += _methods(label, thing)
    for name in sorted(BUILDERS):
        function = builder(name)
        assert function is not None
        found.append(
            Entry(f"g.{name}", lambda w, n=name: getattr(w.graph, n), inspect.signature(function))
        )
    found += _ops()
    return found


OWN = re.compile(r"rlx\.(optim\.\w+\.(apply|shared|slots|check|decay|takes)|TensorType\.with_)")
"""Methods that are there for subclasses, or for RLX itself."""


def _methods(label: str, cls: type) -> Iterator[Entry]:
    make = INSTANCES.get(cls.__name__)
    for name in vars(cls) if issubclass(cls, rlx.GraphModule) else dir(cls):
        if OWN.match(f"{label}.{name}"):
            continue
        raw = inspect.getattr_static(cls, name)
        special = name in ("__call__", "__getitem__")
        if (name.startswith("_") and not special) or (special and name not in vars(cls)):
            continue
        if isinstance(raw, staticmethod | classmethod):
            bound = getattr(cls, name)
            yield Entry(f"{label}.{name}", lambda w, b=bound: b, inspect.signature(bound))
        elif inspect.isfunction(raw) and make is not None:
            signature = inspect.signature(raw)
            rest = list(signature.parameters.values())[1:]
            yield Entry(
                f"{label}.{name}", lambda w, m=make, n=name: getattr(m(w), n),
                signature.replace(parameters=rest),
            )  # fmt: skip


def _ops() -> Iterator[Entry]:
    """The builder of each op, on the op's own first sample."""
    first: dict[type[Op], Any] = {}
    for case in cases():
        first.setdefault(case.op, case)
    methods = {t: m for m, t in BUILDERS.items()}
    for op, case in first.items():
        signature = inspect.signature(op.build)
        names = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_POSITIONAL]

        def fitting(
            w: World, case: Any = case, names: Any = names
        ) -> tuple[list[Any], dict[str, Any]]:
            node = case.node()
            operands = list(node.operands)
            return operands, {k: v for k, v in case.sample.attrs.items() if k in names}

        if op.name not in methods:
            continue
        label, function = f"{methods[op.name]} ({op.name})", builder(methods[op.name])
        yield Entry(label, lambda w, f=function: f, signature, fitting)


def _right(p: inspect.Parameter, w: World) -> Any:
    """A fitting argument of a parameter, by its name or its annotation."""
    if p.name in BY_NAME:
        return BY_NAME[p.name](w)
    text = p.annotation if isinstance(p.annotation, str) else "Any"
    for word in re.findall(r"\w+", text):
        if word in BY_TYPE:
            return BY_TYPE[word](w)
    return w.x


def _base(entry: Entry, w: World) -> tuple[list[Any], dict[str, Any]]:
    """Arguments that fit, all that are required."""
    if entry.fitting is not None:
        return entry.fitting(w)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for p in entry.signature.parameters.values():
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        if p.kind is p.KEYWORD_ONLY:
            if p.default is p.empty:
                kwargs[p.name] = _right(p, w)
        elif p.default is p.empty:
            args.append(_right(p, w))
    return args, kwargs


def calls(entry: Entry) -> Iterator[Call]:
    """The calls of one entry; the first is the right one."""
    yield Call(f"{entry.label}: as it is", lambda: _made(entry, lambda w, a, k: None))
    params = list(entry.signature.parameters.values())
    for i, p in enumerate(params):
        what = f"*{p.name}" if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) else p.name
        for said, wrong in WRONG.items():
            if (p.name, said) in LONG or (entry.label, said) in LONG:
                continue
            yield Call(
                f"{entry.label}: {what}={said}",
                lambda i=i, p=p, v=wrong: _made(entry, _put(i, p, v)),
            )
    positional = [p for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if positional and positional[0].default is inspect.Parameter.empty:
        yield Call(
            f"{entry.label}: nothing", lambda: _made(entry, lambda w, a, k: (a.clear(), k.clear()))
        )
    yield Call(
        f"{entry.label}: 30 arguments", lambda: _made(entry, lambda w, a, k: a.extend([None] * 30))
    )
    yield Call(f"{entry.label}: colour=1", lambda: _made(entry, lambda w, a, k: k.update(colour=1)))
    yield Call(
        f"{entry.label}: all 's'",
        lambda: _made(entry, lambda w, a, k: a.__setitem__(slice(None), ["s"] * len(a))),
    )


def _put(i: int, p: inspect.Parameter, value: Callable[[World], Any]) -> Callable[..., None]:
    def change(w: World, args: list[Any], kwargs: dict[str, Any]) -> None:
        if p.kind is p.VAR_POSITIONAL:
            args.append(value(w))
        elif p.kind is p.VAR_KEYWORD:
            kwargs["fuse"] = value(w)
        elif i < len(args) and p.kind is not p.KEYWORD_ONLY:
            args[i] = value(w)
        else:
            kwargs[p.name] = value(w)

    return change


def random_call(entries: list[Entry], r: random.Random) -> Call:
    """A call of one of the entries with one to three arguments that are wrong."""
    entry = r.choice(entries)
    params = list(entry.signature.parameters.values())
    changes: list[Any] = []
    told: list[str] = []
    for i in r.sample(range(len(params)), min(len(params), r.randint(1, 3))):
        said, p = r.choice(list(WRONG)), params[i]
        if (p.name, said) not in LONG and (entry.label, said) not in LONG:
            told.append(f"{p.name}={said}")
            changes.append(_put(i, p, WRONG[said]))

    def change(w: World, args: list[Any], kwargs: dict[str, Any]) -> None:
        for each in changes:
            each(w, args, kwargs)

    return Call(f"{entry.label}: {', '.join(told)}", lambda: _made(entry, change))


def _made(entry: Entry, change: Any) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    w = World()
    args, kwargs = _base(entry, w)
    change(w, args, kwargs)
    return entry.get(w), args, kwargs


def judge(call: Call) -> str | None:
    """What is wrong with the answer to a call; None if it is an error of ours, or a result."""
    try:
        function, args, kwargs = call.make()
        made = function(*args, **kwargs)
        if isinstance(made, Iterator) and not isinstance(made, itertools.count):
            list(itertools.islice(made, 3))
    except RlxError as error:
        return _unreadable(error)
    except TypeError as error:
        # One of Python's own that no line of RLX is a part of: a plain function, called wrongly.
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        return f"TypeError: {error}" if any(_PACKAGE in f for f in files) else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _unreadable(error: RlxError) -> str | None:
    text = error.message
    if not text or len(text) > 1500 or "Traceback" in text:
        return f"unreadable: {text[:300]!r}"
    return None
