"""Arguments of a call: inputs, and arrays for the outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import GraphError, NameError, ShapeError, UnsupportedError, a_type
from rlx.ir.arrays import as_array, typed_array
from rlx.ir.attrs import flagged
from rlx.ir.given import unknown
from rlx.ir.graph import Graph, sizes_of, symbols_of
from rlx.ir.op import caller
from rlx.ir.value import Value
from rlx.precision import Types
from rlx.runtime.encoding import Array, places_of
from rlx.types import DTYPES

if TYPE_CHECKING:
    from rlx.schedule.plan import Signature

__all__ = [
    "array_of_bytes",
    "binding_of",
    "check_module",
    "check_outputs",
    "check_params",
    "check_plain",
    "check_state",
    "checked_feeds",
    "checked_threads",
    "lies_on_a_device",
    "memory_is_the_hosts",
    "named_inputs",
    "not_one_mapping",
    "of_the_host",
    "places_of_sizes",
    "shape_of",
    "written_to",
]

_HOST = 1
"""DLPack's number for the host's memory."""


def of_the_host(value: Any, signature: Signature) -> Array:
    """What was given for an input, as an array of the host."""
    return as_array(value, signature, "input", flat=True)


def memory_is_the_hosts(device: str) -> UnsupportedError:
    """The error of a call that is for devices with memory of their own."""
    return UnsupportedError(
        f"device {device!r} computes in the host's memory, where arrays are NumPy's", caller()
    )


def not_one_mapping(named: Iterable[str]) -> GraphError:
    """The error of a run whose inputs are several arguments, or those of these names."""
    shown = ", ".join(f"{name!r}: {name}" for name in named) or "'x': array, 'y': array"
    return GraphError(f"run takes its inputs as one mapping; write run({{{shown}}})", caller())


def check_plain(types: Types, what: str, instead: str) -> None:
    """UnsupportedError for a session's precision where it would change nothing: in what has its
    element types already. ``instead`` says what to do."""
    if types.changes:
        raise UnsupportedError(
            f"{what} has its element types already, and the session's precision ({types}) would not"
            f" be applied; {instead}, or take a session without one",
            caller(),
        )


def checked_threads(n: Any) -> int:
    """A number of threads; GraphError for what is none."""
    if isinstance(n, bool) or not isinstance(n, int) or n.bit_length() > 63:
        raise GraphError(f"threads is a number from 1 on, found {n!r}", caller())
    return n


def lies_on_a_device(value: Any) -> bool:
    """Whether an array says that it is in the memory of a device."""
    where = getattr(value, "__dlpack_device__", None)
    try:
        return where is not None and where()[0] != _HOST
    except Exception:  # the library's own: it is refused, with the reason, where it is read
        return False


def binding_of(
    graph: Graph, params: Mapping[str, Array], feeds: Mapping[str, Any]
) -> dict[str, int]:
    """The sizes of the symbolic dims, read off the inputs' shapes; ShapeError if they clash."""
    leaves = [(str(v.name), v.type, shape_of(feeds[str(v.name)], v)) for v in graph.inputs]
    # Of the others an artifact may have no array, but what it was packed into.
    sized = [v for v in graph.params if not v.type.is_static]
    leaves += [(str(v.name), v.type, params[str(v.name)].shape) for v in sized]
    sizes = sizes_of(leaves)
    unbound = sorted(s for s in graph.symbols if s not in sizes)
    if unbound:
        raise ShapeError(
            f"no input tells the size of {', '.join(unbound)}; compile with dims={{...}}", caller()
        )
    return sizes


def places_of_sizes(graph: Graph) -> list[tuple[str, int, int, int]] | None:
    """What tells the sizes of a graph's symbols, by name: of each an input, an axis, and the factor
    and the number in the dim there. None if that is not said by inputs alone."""
    inputs: list[Signature] = [(str(v.name), v.dtype.name, v.type.shape) for v in graph.inputs]  # type: ignore[misc]
    told = places_of(inputs)
    if len(told) != len(graph.symbols) or symbols_of(v.type for v in graph.params):
        return None
    return [(inputs[at][0], axis, by, number) for at, axis, by, number in told.values()]


def shape_of(value: Any, v: Value) -> tuple[int, ...]:
    """The shape of what was given for an input; DTypeError if that is no array of its type."""
    if lies_on_a_device(value):
        return tuple(value.shape)  # its type is checked where it is used
    return typed_array(value, str(v.name), v.dtype.name, "input").shape


def array_of_bytes(name: str, data: bytes, dtype: str) -> Array:
    """The flat array of a dtype ("f32") in the bytes for a param. GraphError for no dtype of RLX's,
    ShapeError for bytes that are no whole number of elements."""
    if dtype not in DTYPES:
        raise GraphError(f"no dtype is called {dtype!r}; there are {', '.join(DTYPES)}", caller())
    a = np.frombuffer(data, np.uint8)
    if a.size % DTYPES[dtype].bytes:
        raise ShapeError(f"param {name!r} of {dtype} takes {DTYPES[dtype].bytes} bytes an element,"
                         f" found {a.size} bytes", caller())  # fmt: skip
    return a.view(DTYPES[dtype].numpy)


def check_params(names: Collection[str], have: Collection[str]) -> None:
    """Refuse a run, by a NameError, unless the params of these ``names`` all ``have`` a value."""
    if len(have) == len(names):
        return
    unset = [name for name in names if name not in have]
    listed = ", ".join(map(repr, unset))
    raise NameError(
        f"no value was set for param{'s' * (len(unset) > 1)} {listed};"
        f" call set_param({unset[0]!r}, array)",
        caller(),
    )


def check_outputs(
    graph: Graph,
    outputs: Sequence[Array],
    expected: Sequence[Signature],
    inputs: Sequence[Any],
) -> None:
    """Refuse arrays that do not fit the outputs, or that lie over ``inputs``. Nobody can write the
    memory of a param."""
    if not isinstance(outputs, Sequence):
        raise GraphError(f"outputs are NumPy arrays in a list, found {outputs!r}", caller())
    if len(outputs) != len(expected):
        raise ShapeError(f"{len(expected)} outputs expected, found {len(outputs)}", caller())
    taken = [(f"input {v.name!r}", a) for v, a in zip(graph.inputs, inputs, strict=True)]
    for i, (out, (_, dt, shape)) in enumerate(zip(outputs, expected, strict=True)):
        if not isinstance(out, np.ndarray):
            found = a_type(out)
            raise GraphError(f"output {i} is {found}, expected a NumPy array", caller())
        as_array(out, (str(i), dt, shape), "output")
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise ShapeError(f"output {i} must be contiguous and writable", caller())
        for what, a in taken:
            if isinstance(a, np.ndarray) and np.may_share_memory(out, a):
                raise GraphError(
                    f"output {i} shares memory with {what}; give it its own array", caller()
                )
        taken.append((f"output {i}", out))


SHOWN = 8
"""Inputs at most of a call that an error writes."""


def checked_feeds(names: Sequence[str], held: Mapping[str, Any], given: Any) -> Mapping[str, Any]:
    """What was ``given`` by name, with what is ``held`` for the rest. GraphError for what is no
    mapping, NameError for an input that is unknown or missing."""
    if not isinstance(given, Mapping):
        raise GraphError(f"inputs are given by name, found {a_type(given)};"
                         " write {'x': array}", caller())  # fmt: skip
    taken: Mapping[str, Any] = given
    for name in taken:
        if name not in names:
            raise unknown(name, names, "input")
    feeds = {**held, **taken} if held else taken
    missing = [n for n in names if n not in feeds]
    if missing:
        which = "s " * (len(missing) > 1) or " "
        wanted = [n for n in names if n not in held]
        words = [f"{n!r}: array" for n in wanted[:SHOWN]] + ["..."] * (len(wanted) > SHOWN)
        raise NameError(
            f"nothing was given for the input{which}{str(missing)[1:-1]};"
            f" write run({{{', '.join(words)}}})",
            caller(),
        )
    return feeds


def written_to(name: str, value: Any) -> Any:
    """What was given as state, as an array of the same memory, or an array of a device.

    GraphError for what is no array, ShapeError for one that cannot be written in place: in a copy
    of it the results would be lost.
    """
    if lies_on_a_device(value):
        return value
    a = value
    for flag in ("is_neg", "is_conj"):
        if not isinstance(a, np.ndarray) and flagged(a, flag):
            raise ShapeError(
                f"state {name!r} is a tensor whose {flag}() says that its memory holds other"
                f" numbers; give its .resolve_{flag[3:]}()",
                caller(),
            )
    if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack__"):
        try:
            a = np.from_dlpack(a)
        except Exception:  # the library's own
            return value  # as an input it is refused with the reason
    if not isinstance(a, np.ndarray):
        raise GraphError(
            f"state {name!r} is {a_type(value)}, expected an array, which the run writes",
            caller(),
        )
    if not (a.flags.c_contiguous and a.flags.writeable):
        raise ShapeError(f"state {name!r} must be contiguous and writable", caller())
    return a


def check_state(
    graph: Graph,
    state: Mapping[str, Any],
    inputs: Sequence[Any],
    donated: Any,
) -> None:
    """Refuse ``state`` unless it is the inputs of which the numbers are ``donated``, and memory of
    which shares none with other ``inputs``: a run writes it."""
    names = [str(v.name) for v in graph.inputs]
    wanted = [names[i] for i in donated]
    if set(wanted) != set(state):
        listed = ", ".join(map(repr, wanted)) or "none"
        found = ", ".join(map(repr, state)) or "none"
        raise GraphError(f"the donated inputs are {listed}; found {found} as state", caller())
    places = sorted((*extent(a), i) for i, a in enumerate(inputs))
    last, end, kind = -1, 0, ""
    for space, begin, stop, i in places:
        if space == kind and begin < end and begin < stop and (i in donated or last in donated):
            one, other = (i, last) if i in donated else (last, i)
            raise GraphError(
                f"state {names[one]!r} shares memory with input {names[other]!r}, and is written"
                " while that is read; give it its own array",
                caller(),
            )
        if space != kind or stop > end:
            last, end, kind = i, stop, space


def extent(a: Any) -> tuple[str, int, int]:
    """Where an array lies: the kind of memory, the first byte, and the end."""
    if isinstance(a, np.ndarray):
        begin = a.__array_interface__["data"][0]
        return "host", begin, begin + a.nbytes
    return a.extent


def named_inputs(
    names: Sequence[str], arrays: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs of a call that gives some by place and some by name; GraphError for too many or a
    mapping of them, NameError for one that is given twice."""
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        raise GraphError(
            "a compiled graph is called with arrays, by place or by name, found a mapping; write"
            " run(inputs), or give its arrays by **inputs",
            caller(),
        )
    if len(arrays) > len(names):
        known = ", ".join(map(repr, names)) or "none"
        raise GraphError(f"found {len(arrays)} inputs, expected {len(names)}: {known}", caller())
    given = dict(zip(names, arrays, strict=False))
    for name in named:
        if name in given:
            raise NameError(f"the input {name!r} is given twice, by place and by name", caller())
    return {**given, **named}


def check_module(module: Any) -> None:
    """GraphError for what is no GraphModule: a graph, say."""
    if isinstance(module, Graph) or not hasattr(module, "stage"):
        raise GraphError(
            f"expected a GraphModule, found {a_type(module)}; compile takes a graph, and"
            " GraphModule.of(graph) makes a module of one",
            caller(),
        )
