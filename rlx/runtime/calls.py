"""What is given to a call: inputs, and arrays for the outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.arrays import as_array, typed_array
from rlx.errors import GraphError, NameError, ShapeError, UnsupportedError
from rlx.graph import Graph
from rlx.ops.base import caller
from rlx.ops.value import Value
from rlx.runtime.encoding import Array, Signature
from rlx.types import DTYPES

__all__ = [
    "array_of_bytes",
    "check_outputs",
    "check_params",
    "check_state",
    "lies_on_a_device",
    "memory_is_the_hosts",
    "not_one_mapping",
    "of_the_host",
    "shape_of",
    "written_to",
]

_HOST = 1
"""DLPack's number for the host's memory."""


def of_the_host(value: Any, signature: Signature) -> Array:
    """What was given for an input, as an array of the host."""
    return as_array(value, signature, "input")


def memory_is_the_hosts(device: str) -> UnsupportedError:
    """The error of a call that is for devices with memory of their own."""
    return UnsupportedError(
        f"device {device!r} computes in the host's memory, where arrays are NumPy's", caller()
    )


def not_one_mapping(named: Iterable[str]) -> GraphError:
    """The error of a run whose inputs are several arguments, or those of these names."""
    shown = ", ".join(f"{name!r}: {name}" for name in named) or "'x': array, 'y': array"
    return GraphError(f"run takes its inputs as one mapping; write run({{{shown}}})", caller())


def lies_on_a_device(value: Any) -> bool:
    """Whether an array says that it is in the memory of a device."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] != _HOST


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
    given: tuple[Sequence[Any], Mapping[str, Array]],
) -> None:
    """Refuse arrays that do not fit the outputs, or that lie over what was ``given``: inputs, and
    params by name."""
    if not isinstance(outputs, Sequence):
        raise GraphError(f"outputs are NumPy arrays in a list, found {outputs!r}", caller())
    if len(outputs) != len(expected):
        raise ShapeError(f"{len(expected)} outputs expected, found {len(outputs)}", caller())
    inputs, params = given
    taken = [(f"input {v.name!r}", a) for v, a in zip(graph.inputs, inputs, strict=True)]
    taken += [(f"param {name!r}", a) for name, a in params.items()]
    for i, (out, (_, dt, shape)) in enumerate(zip(outputs, expected, strict=True)):
        if not isinstance(out, np.ndarray):
            found = type(out).__name__
            raise GraphError(f"output {i} is a {found}, expected a NumPy array", caller())
        as_array(out, (str(i), dt, shape), "output")
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise ShapeError(f"output {i} must be contiguous and writable", caller())
        for what, a in taken:
            if isinstance(a, np.ndarray) and np.may_share_memory(out, a):
                raise GraphError(
                    f"output {i} shares memory with {what}; give it its own array", caller()
                )
        taken.append((f"output {i}", out))


def written_to(name: str, value: Any) -> Any:
    """What was given as state, as an array of the same memory, or an array of a device.

    GraphError for what is no array, ShapeError for one that cannot be written in place: in a copy
    of it the results would be lost.
    """
    if lies_on_a_device(value):
        return value
    a = value
    if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack__"):
        try:
            a = np.from_dlpack(a)
        except (BufferError, RuntimeError, TypeError, ValueError):
            return value  # as an input it is refused with the reason
    if not isinstance(a, np.ndarray):
        raise GraphError(
            f"state {name!r} is a {type(value).__name__}, expected an array, which the run writes",
            caller(),
        )
    if not (a.flags.c_contiguous and a.flags.writeable):
        raise ShapeError(f"state {name!r} must be contiguous and writable", caller())
    return a


def check_state(
    graph: Graph,
    state: Mapping[str, Any],
    given: tuple[Sequence[Any], Mapping[str, Array]],
    donated: Any,
) -> None:
    """Refuse ``state`` unless it is the inputs of which the numbers are ``donated``, and memory of
    which shares none with what else was ``given``, inputs, and params by name: a run writes it."""
    inputs, params = given
    names = [str(v.name) for v in graph.inputs]
    wanted = [names[i] for i in donated]
    if set(wanted) != set(state):
        listed = ", ".join(map(repr, wanted)) or "none"
        found = ", ".join(map(repr, state)) or "none"
        raise GraphError(f"the donated inputs are {listed}; found {found} as state", caller())
    whats = [*(f"input {n!r}" for n in names), *(f"param {n!r}" for n in params)]
    places = sorted((*_extent(a), i) for i, a in enumerate([*inputs, *params.values()]))
    last, end, kind = -1, 0, ""
    for space, begin, stop, i in places:
        if space == kind and begin < end and begin < stop and (i in donated or last in donated):
            one, other = (i, last) if i in donated else (last, i)
            raise GraphError(
                f"state {names[one]!r} shares memory with {whats[other]}, and is written"
                " while that is read; give it its own array",
                caller(),
            )
        if space != kind or stop > end:
            last, end, kind = i, stop, space


def _extent(a: Any) -> tuple[str, int, int]:
    """Where an array lies: the kind of memory, the first byte, and the end."""
    if isinstance(a, np.ndarray):
        begin = a.__array_interface__["data"][0]
        return "host", begin, begin + a.nbytes
    return a.extent
