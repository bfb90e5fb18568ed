"""A compiled case called again in other ways, all of which must give the same bits.

The number of threads, how an input lies in memory, what shares memory with it and what ran before
are no part of a graph's meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.errors import FaultError
from rlx.ir.graph import Graph
from rlx.runtime import _native
from rlx.runtime.session import CompiledGraph
from support.random_graphs import Array, Case, parts

__all__ = ["THREADS", "differing_call", "donations", "run", "unlike"]

Arrays = Mapping[str, Array]
Results = list[Array] | str
"""What a run gave, or the message of its fault."""

THREADS = (1, 2, 3, 5)


def differing_call(f: CompiledGraph, case: Case, first: list[Array]) -> str | None:
    """The first way of calling that gives other bits than ``first``, in words, or None."""
    rng = np.random.default_rng([case.seed, 3])
    for what, call in _calls(f, case, rng):
        found, expected = call()
        message = unlike(found, first if expected is None else expected)
        if message is not None:
            return f"{what}: {message}"
    return None


def donations(g: Graph, seed: int) -> tuple[tuple[int, int], ...]:
    """Pairs of inputs with outputs of their types, at random; as many as there are."""
    rng = np.random.default_rng([seed, 4])
    free = [int(o) for o in rng.permutation(len(g.outputs))]
    pairs: list[tuple[int, int]] = []
    for i in (int(i) for i in rng.permutation(len(g.inputs))):
        fit = [o for o in free if g.outputs[o].type == g.inputs[i].type]
        if fit:
            pairs.append((i, fit[0]))
            free.remove(fit[0])
    return tuple(pairs)


Call = Callable[[], tuple[Results, list[Array] | str | None]]


def _calls(f: CompiledGraph, case: Case, rng: np.random.Generator) -> Generator[tuple[str, Call]]:
    for n in THREADS:
        yield f"{n} threads", lambda n=n: (_threaded(f, case.feeds, n), None)
    yield "inputs that are views", lambda: (run(f, _viewed(case.feeds, rng)), None)
    yield "several calls at once", lambda: (_at_once(f, case.feeds), None)
    yield "after a run on other numbers", lambda: (_after_others(f, case.feeds, rng), None)
    if case.params:
        yield "params that are views", lambda: (_set_again(f, case, rng), None)
    if f.options.get("donate"):
        for n in (1, 3):
            yield f"in place, {n} threads", lambda n=n: (_in_place(f, case.feeds, n), None)
    for names in _alike(case.feeds, rng):
        yield f"one array for {names}", lambda names=names: _as_one(f, case.feeds, names, rng)


# -- the calls -------------------------------------------------------------------------------------


def run(f: CompiledGraph, feeds: Arrays) -> Results:
    """The results of a run, or the message of its fault."""
    try:
        return f.run(feeds)
    except FaultError as e:
        return str(e)


@contextmanager
def _threads(n: int) -> Generator[None]:
    before = _native.num_threads()
    _native.set_threads(n)
    try:
        yield
    finally:
        _native.set_threads(before)


def _threaded(f: CompiledGraph, feeds: Arrays, n: int) -> Results:
    with _threads(n):
        return run(f, feeds)


def _at_once(f: CompiledGraph, feeds: Arrays) -> Results:
    """Of three calls from three threads, one that differs from the others, or the first."""
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: run(f, feeds), range(3)))
    return next((r for r in found if unlike(r, found[0]) is not None), found[0])


def _after_others(f: CompiledGraph, feeds: Arrays, rng: np.random.Generator) -> Results:
    """A run after one on nan and another on large numbers: nothing of these is read again."""
    outs = run(f, feeds)
    for value in (np.nan, 3e4):
        other = {n: np.full_like(a, value) if a.dtype.kind in "fcV" else a
                 for n, a in feeds.items()}  # fmt: skip
        run(f, other)
    if not isinstance(outs, str):
        f.run_into(feeds, outs)
        f.run_into(feeds, outs)
    return outs


def _set_again(f: CompiledGraph, case: Case, rng: np.random.Generator) -> Results:
    """A run after the params were other ones, and came back as views of memory that was then
    overwritten."""
    for name, a in case.params.items():
        f.set_param(name, a[::-1].copy() if a.ndim else a.copy())
    run(f, case.feeds)
    for name, a in _viewed(case.params, rng).items():
        own = a.copy() if np.may_share_memory(a, case.params[name]) else a
        f.set_param(name, own)
        _overwrite(own)
    return run(f, case.feeds)


def _overwrite(a: Array) -> None:
    """Write other bytes over all of the memory that an array is a view of."""
    while isinstance(a.base, np.ndarray):
        a = a.base
    a.flags.writeable = True
    a.reshape(-1, order="A").view(np.uint8).fill(7)


def _in_place(f: CompiledGraph, feeds: Arrays, n: int) -> Results:
    """All outputs in order, those of donated inputs from the state."""
    pairs = dict(f.options["donate"])
    names = [str(v.name) for v in f.graph.inputs]
    state = {names[i]: np.array(feeds[names[i]]) for i in pairs}
    with _threads(n):
        rest = iter(f.run_in_place({k: a for k, a in feeds.items() if k not in state}, state))
    over = {o: names[i] for i, o in pairs.items()}
    return [state[over[o]] if o in over else next(rest) for o in range(len(f.graph.outputs))]


def _as_one(
    f: CompiledGraph, feeds: Arrays, names: tuple[str, str], rng: np.random.Generator
) -> tuple[Results, Results]:
    """Two inputs that are one array, or parts of one that overlap, and the same as copies."""
    a, b = names
    flat = np.concatenate([feeds[a].ravel(), feeds[a].ravel()[:1]])
    size, shape = feeds[a].size, feeds[a].shape
    first = flat[:size].reshape(shape)
    second = first if rng.random() < 0.5 else flat[len(flat) - size :].reshape(shape)
    shared = {**feeds, a: first, b: second}
    return run(f, shared), run(f, {n: x.copy() for n, x in shared.items()})


# -- arrays ----------------------------------------------------------------------------------------


def _alike(feeds: Arrays, rng: np.random.Generator) -> list[tuple[str, str]]:
    """A pair of names of arrays of one type, if there is one."""
    pairs = [
        (a, b)
        for a in feeds
        for b in feeds
        if a != b and (feeds[a].dtype, feeds[a].shape) == (feeds[b].dtype, feeds[b].shape)
    ]
    return [pairs[int(rng.integers(len(pairs)))]] if pairs else []


def _viewed(arrays: Arrays, rng: np.random.Generator) -> dict[str, Array]:
    """The same arrays as views of other memory; numbers as they are."""
    picked = rng.integers(len(_LAYOUTS), size=len(arrays))
    return {
        n: _LAYOUTS[int(i)](a) if a.ndim else a
        for i, (n, a) in zip(picked, arrays.items(), strict=True)
    }


def _backwards(a: Array) -> Array:
    return np.flip(np.flip(a).copy())


def _apart(a: Array) -> Array:
    """Every second element of every axis, with ones between."""
    room = np.full([2 * d for d in a.shape], 1, a.dtype)
    out = room[tuple(slice(1, None, 2) for _ in a.shape)]
    out[...] = a
    return out


def _read_only(a: Array) -> Array:
    out = a.copy()
    out.flags.writeable = False
    return out


def _broadcast(a: Array) -> Array:
    """An axis of equal elements with a stride of 0, where there is one."""
    for axis in range(a.ndim):
        one = np.take(a, [0], axis) if a.shape[axis] else a
        if np.broadcast_to(one, a.shape).tobytes() == a.tobytes():
            return np.broadcast_to(one, a.shape)
    return a


_LAYOUTS: tuple[Callable[[Array], Array], ...] = (
    np.asfortranarray, _backwards, _apart, _read_only, _broadcast,
)  # fmt: skip


def unlike(found: Any, expected: Any) -> str | None:
    """How results differ, or None."""
    if isinstance(found, str) or isinstance(expected, str):
        return None if found == expected else f"{found!r} and {expected!r}"
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.tobytes() != b.tobytes():
            wrong = np.argwhere(_bits(a) != _bits(b))
            if len(wrong):
                at = tuple(int(i) for i in wrong[0])[: a.ndim]
                return f"output {i} has other bits at {list(at)}: {a[at]} and {b[at]}"
    return None


def _bits(a: Array) -> Array:
    """The bytes of each element along a further axis; those of nan, of which nothing but that is
    said, are the same for all."""
    a = np.array(parts(a) if np.iscomplexobj(a) else a)
    if a.dtype.kind in "fV":
        a[np.isnan(a)] = np.nan
    return a.reshape(*a.shape, 1).view(np.uint8)
