"""The checkpoints of a step, which many ranks write and read together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlx.base.mesh import Axis
from rlx.errors import CheckpointError
from rlx.ir.graph import Graph
from rlx.ops.collective.all_reduce import AllReduce
from rlx.runtime.session import CompiledGraph, Session
from rlx.training import checkpoint, slices
from rlx.training.graphs import Plan
from rlx.types import TensorType, i64

__all__ = ["Checkpoints"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")


class Checkpoints:
    """Saves and loads the state of a plan on a rank: a file where there is one alone, and a folder
    of slices where there is a mesh. All its ranks call each method.

    The stages along ``parted`` have plans of their own: ``stages`` are the tensors of all of them
    that are kept, and the first stage that has each.
    """

    def __init__(
        self,
        plan: Plan,
        session: Session,
        seat: slices.Seat,
        stages: Mapping[str, tuple[TensorType, int]] | None = None,
        parted: str = "",
    ) -> None:
        self.plan, self.seat, self.stages, self.parted = plan, seat, stages, parted
        self.own, self.whole = plan.state(), plan.state(whole=True)
        self._max: CompiledGraph | None = None
        if math.prod(ranks for _, ranks in seat.shape) > 1:
            self._max = session.compile(_largest(plan, seat))

    def agreed(self, number: int) -> int:
        """The largest of the numbers that the ranks give."""
        return number if self._max is None else int(self._max.run({"x": np.asarray(number)})[0])

    def exists(self, path: Path) -> bool:
        """Whether a rank sees a checkpoint there."""
        return bool(self.agreed(int(slices.exists(path))))

    def save(self, path: Path, state: Mapping[str, Array], names: Sequence[str]) -> None:
        """Write what goes from one batch to the next."""
        if self.plan.ranks is None or self.plan.ranks.mesh is None:
            checkpoint.save(path, state, names, self.plan.settings)
            return
        first = self.seat.number == 0
        number = self._together(lambda: slices.next_generation(path) if first else 0, "read", path)
        number = self.agreed(number)
        tensors = self._held(names)
        stage = dict(zip(dict(self.seat.shape), self.seat.at, strict=True)).get(self.parted, 0)
        mine = {n: self._slice(n, state[n]) for n in names if tensors[n].at == stage}
        held = {n: a for n, a in mine.items() if a.size}
        self._together(lambda: slices.write(path, number, self.seat, held), "write", path)
        made = slices.Slices(
            number, self.seat.shape, self.seat.axis, self.plan.settings, tensors, self.parted
        )
        self._together(lambda: slices.finish(path, made) if first else None, "write", path)

    def load(self, path: Path, state: Mapping[str, Array], names: Sequence[str]) -> str:
        """Put what was saved, by any number of ranks, in the place of the state, all or nothing;
        how it was trained."""
        found, settings = self._together(lambda: self._read(path, names), "read", path)
        for name, a in found.items():
            flat = state[name].reshape(-1)
            flat[: a.size], flat[a.size :] = a, 0
        return settings

    def _read(self, path: Path, names: Sequence[str]) -> tuple[dict[str, Array], str]:
        """What this rank holds of what was saved, flat."""
        if path.is_dir():
            wanted = {n: (self.whole[n], *self._range(n)) for n in names}
            return slices.read(path, self.seat, wanted, self._held(names), self.parted)
        types = {n: held.type for n, held in self._held(names).items()}
        arrays = {n: np.empty(t.static_shape, t.dtype.numpy) for n, t in types.items()}
        settings = checkpoint.load(path, arrays, list(types))
        return {n: arrays[n].reshape(-1)[slice(*self._range(n))] for n in names}, settings

    def _held(self, names: Sequence[str]) -> dict[str, slices.Held]:
        """What a checkpoint has, where this rank keeps tensors of these names."""
        found = self.stages or {n: (self.whole[n], 0) for n in names}
        return {n: slices.Held(t, self._elements(t), at) for n, (t, at) in found.items()}

    def _each(self, name: str) -> int:
        """How many elements of a tensor a rank writes, and holds where tensors are cut."""
        return self._elements(self.whole[name])

    def _elements(self, whole: TensorType) -> int:
        ranks = self.plan.ranks
        return math.prod((whole if ranks is None else ranks.slice_of(whole)).static_shape)

    def _is_cut(self, name: str) -> bool:
        return self.own[name] != self.whole[name]

    def _range(self, name: str) -> tuple[int, int]:
        """Which elements of a tensor this rank holds."""
        size, each = math.prod(self.whole[name].static_shape), self._each(name)
        if not self._is_cut(name):
            return 0, size
        begin = min(self.seat.slot * each, size)
        return begin, min(begin + each, size)

    def _slice(self, name: str, held: Array) -> Array:
        """What this rank writes of a tensor, flat, of what it holds of it."""
        size, each = math.prod(self.whole[name].static_shape), self._each(name)
        begin = min(self.seat.slot * each, size)
        end = min(begin + each, size)
        flat = held.reshape(-1)
        return flat[: end - begin] if self._is_cut(name) else flat[begin:end]

    def _together(self, action: Callable[[], T], what: str, path: Path) -> T:
        """What an action gives, if it fails on no rank. CheckpointError on all of them, else."""
        failed, found = 0, list[T]()
        error: CheckpointError | None = None
        try:
            found.append(action())
        except CheckpointError as e:
            error, failed = e, 1 + self.seat.number
        failed = self.agreed(failed)
        if error is not None:
            raise error
        if failed:
            raise CheckpointError(f"rank {failed - 1} could not {what} {path}: its error says why")
        return found[0]


def _largest(plan: Plan, seat: slices.Seat) -> Graph:
    """The largest of the numbers that all ranks of the mesh give."""
    g = Graph(f"{plan.graph.name}_agreed")
    v = g.input("x", [], i64)
    for name, ranks in seat.shape:
        v = AllReduce.build(v, Axis(name, ranks), "max")
    g.set_outputs([v])
    return g
