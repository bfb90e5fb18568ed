"""The same elements as arrays of many kinds, to be given wherever an array is taken.

``array_likes(a)`` yields each with its name and, where there is memory that others write, a
function that does so: what has taken the elements must not follow.
"""

from __future__ import annotations

import array
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ArrayLike", "array_likes", "lazily_flagged"]

Array = np.ndarray[Any, Any]


class ArrayLike(NamedTuple):
    """Elements in some form; ``spoil`` overwrites the memory that they lie in. What is not
    ``native`` may be refused."""

    name: str
    value: Any
    spoil: Callable[[], None] = lambda: None
    native: bool = True


class Sub(np.ndarray):
    """A subclass without a meaning of its own."""


class Exporter:
    """What has ``__array__`` alone."""

    def __init__(self, a: Array) -> None:
        self.a = a

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.a


def over(room: Array) -> Callable[[], None]:
    """Overwrites all of an array's memory."""
    return lambda: room.reshape(-1, order="A").view(np.uint8).fill(7)


def array_likes(a: Array, folder: Path) -> Generator[ArrayLike]:
    """A dense array of one dim or more in all forms."""
    for name, make in _VIEWS.items():
        room, view = make(a)
        aligned = name != "unaligned"
        yield ArrayLike(name, view, over(room), aligned)
        room, view = make(a)
        frozen = view.view()
        frozen.flags.writeable = False
        yield ArrayLike(f"{name}, read-only", frozen, over(room), aligned)
    one = a.copy()
    one.flags.writeable = False

    def thaw() -> None:
        one.flags.writeable = True
        one.fill(7)

    yield ArrayLike("frozen by its owner", one, thaw)
    once = np.ascontiguousarray(a[:1])
    if np.broadcast_to(once, a.shape).tobytes() == a.tobytes():
        yield ArrayLike("broadcast", np.broadcast_to(once, a.shape), over(once))
    raw = bytearray(a.tobytes())
    seen = np.frombuffer(memoryview(raw).toreadonly(), a.dtype).reshape(a.shape)
    yield ArrayLike(
        "a read-only view of a bytearray",
        seen,
        lambda: raw.__setitem__(slice(None), bytes(len(raw))),
    )
    yield ArrayLike("bytes", np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape))
    for mode in ("r", "c", "r+"):
        path = Path(tempfile.mkstemp(dir=folder)[1])
        path.write_bytes(a.tobytes())
        mapped = np.memmap(path, a.dtype, mode=mode, shape=a.shape)  # type: ignore[call-overload]
        yield ArrayLike(
            f"memmap {mode}", mapped, over(np.asarray(mapped)) if mode != "r" else lambda: None
        )
    sub = a.copy()
    yield ArrayLike("a subclass", sub.view(Sub), over(sub))
    exported = a.copy()
    yield ArrayLike("__array__", Exporter(exported), over(exported))
    yield ArrayLike("byte-swapped", a.astype(a.dtype.newbyteorder()), native=False)
    yield ArrayLike("object", a.astype(object), native=False)
    yield ArrayLike("float64", a.astype(np.float64), native=False)
    yield ArrayLike("lists", a.tolist())
    if a.ndim == 1:
        yield ArrayLike("array.array", array.array("f", a.tolist()), native=False)


def lazily_flagged(torch: Any, a: Array) -> Generator[ArrayLike]:
    """Tensors of PyTorch, of which some are negated by a flag alone, or cannot be handed over."""
    t, written = torch.tensor(a), torch.tensor(a)
    yield ArrayLike("a tensor", written, lambda: written.fill_(7))
    yield ArrayLike("a tensor backwards", torch.tensor(a[::-1].copy()).flip(0))
    wide = torch.zeros(*a.shape, 2)
    wide[..., 1] = t
    yield ArrayLike("every second", wide[..., 1], lambda: wide.fill_(7))
    flagged = torch.complex(torch.zeros(a.shape), -torch.tensor(a)).conj().imag
    assert flagged.is_neg()
    yield ArrayLike("negated by a flag", flagged)
    yield ArrayLike("negated twice", torch._neg_view(torch._neg_view(t.clone())))
    yield ArrayLike("with gradients", t.clone().requires_grad_(), native=False)
    yield ArrayLike("sparse", t.clone().to_sparse(), native=False)
    yield ArrayLike("meta", t.to("meta"), native=False)
    yield ArrayLike("bf16", t.bfloat16(), native=False)
    yield ArrayLike(
        "quantized", torch.quantize_per_tensor(t.clone(), 0.1, 0, torch.qint8), native=False
    )


def _apart(a: Array) -> tuple[Array, Array]:
    room = np.full([2 * d for d in a.shape], 1, a.dtype)
    view = room[tuple(slice(1, None, 2) for _ in a.shape)]
    view[...] = a
    return room, view


def _backwards(a: Array) -> tuple[Array, Array]:
    room = np.flip(a).copy()
    return room, np.flip(room)


def _unaligned(a: Array) -> tuple[Array, Array]:
    room = np.zeros(a.nbytes + 1, np.uint8)
    room[1:] = np.frombuffer(a.tobytes(), np.uint8)
    return room, room[1:].view(a.dtype).reshape(a.shape)


def _field(a: Array) -> tuple[Array, Array]:
    room = np.zeros(a.shape, [("tag", "u1"), ("x", a.dtype)])
    room["x"] = a
    return room, room["x"]


def _fortran(a: Array) -> tuple[Array, Array]:
    room = np.asfortranarray(a).copy(order="F")
    return room, room


_VIEWS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "plain": lambda a: (b := a.copy(), b), "a view": lambda a: (b := a.copy(), b[:]),
    "apart": _apart, "backwards": _backwards, "unaligned": _unaligned, "a field": _field,
    "Fortran's order": _fortran,
}  # fmt: skip
