"""A decoder at work: the graph of its step compiled, its weights, and its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.gc_pause import importing, paused
from rlx.base.mesh import Mesh
from rlx.errors import GraphError, ModelError, ShapeError
from rlx.frontends.gguf import GGUF, Tensor
from rlx.ir.builders import public
from rlx.llm.builder import Cache, StepGraph, step_graphs
from rlx.llm.config import ModelConfig
from rlx.llm.engine import StepRows
from rlx.llm.pages import KvPagePool
from rlx.llm.share import Share
from rlx.llm.weights import model_of, read_model
from rlx.models.progress import Progress
from rlx.types import bf16, dtype, f16, f32

if TYPE_CHECKING:
    from pathlib import Path

    from rlx.llm.lora import Stack
    from rlx.llm.team import Team
    from rlx.runtime.session import CompiledGraph, Session

__all__ = ["Decoder"]

Array = np.ndarray[Any, Any]


@public
class Decoder:
    """A model that takes steps (``rlx.llm.engine.Engine``), with a cache of its own.

    ``tokens`` is how many tokens the cache has room for, of all sequences together; a page has
    ``page_size`` of them. ``progress`` forces the bar of loading on or off. One thread at a time
    may use it.

    ``adapters`` are LoRA adapters by name, of which each sequence of a step may have one, by its
    number from 1 on; those of ``merge`` are added to the weights (``rlx.llm.lora.read_adapter``).

    With ``mesh`` the ranks along its only axis, or along "model", have parts of the model, and take
    the same steps. All have the whole logits.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        *,
        device: str = "cpu",
        threads: int | None = None,
        precision: str = "f32",
        context: int | None = None,
        tokens: int | None = None,
        sequences: int = 64,
        page_size: int = 32,
        cache: str = "f16",
        max_rows: int = 512,
        adapters: Mapping[str, str | Path] | None = None,
        merge: Sequence[str | Path] = (),
        progress: bool | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        with importing():
            from rlx.runtime.session import Session

        if dtype(cache) not in (f32, f16, bf16):
            raise GraphError(f"a cache is of f32, f16 or bf16, found {cache}")
        self.config = config
        self.vocab = config.vocab
        self.context = min(config.context, context or min(config.context, 4096))
        self.max_rows = max_rows
        pages = -(-max(tokens or 0, self.context) // page_size)
        if not any(config.attends):  # no keys: a page is there for the sequence that has it
            pages, page_size = sequences, self.context
        self.cache = Cache(pages, page_size, dtype(cache), sequences, self.context, sequences)
        if config.recurrent is not None and mesh is not None:
            raise ModelError(
                f"a {config.family.name} has states, which are not cut for several ranks; load it"
                " without a mesh"
            )
        self.team = None if mesh is None else _team(mesh)
        share = Share.whole(config)
        if self.team is not None:
            share = Share.of(config, weights, self.team.axis, self.team.rank)
        self.adapters = [*(adapters or {})]
        weights, stacks = _with_adapters(config, weights, adapters or {}, merge)
        with paused():
            layers, head = step_graphs(config, weights, self.cache, precision, share, stacks)
        self._adapted = tuple(
            any(v.name == "adapter" for v in g.graph.inputs) for g in (layers, head)
        )
        self._state = {
            name: np.zeros(shape, dt.numpy)
            for name, (shape, dt) in self.cache.memories(config, len(share.kv_heads)).items()
        }
        self.pool, self.states = self._pools()
        self._table = np.full(self.cache.table, -1, np.int32)
        session = Session(device, precision, threads=threads)
        with Progress("load", len(layers.params) + len(head.params), progress) as bar:
            self.layers = _ready(session, layers, bar)
            self.head = _ready(session, head, bar)
        self._bound = self.layers.bind_state(self._state)

    def _pools(self) -> tuple[KvPagePool, KvPagePool | None]:
        """What counts the pages of keys and values, and the slots of states if there are such."""
        cache, sizes = self.cache, {name: a.nbytes for name, a in self._state.items()}
        keys = sum(n for name, n in sizes.items() if name.startswith(("keys", "values")))
        pool = KvPagePool(cache.pages, max(1, keys // cache.pages), cache.page_size)
        if self.config.recurrent is None:
            return pool, None
        return pool, KvPagePool(cache.states, (sum(sizes.values()) - keys) // cache.states, 1)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Decoder:
        """A GGUF file, or a folder of Hugging Face's; the options are those of the class."""
        return cls(*read_model(path), **options)

    @classmethod
    def from_gguf(cls, file: GGUF, **options: Any) -> Decoder:
        """An open GGUF file; the options are those of the class."""
        return cls(*model_of(file), **options)

    def step(self, rows: StepRows) -> Array:
        """Write keys and values of the rows into their pages, and return the logits of those that
        want them: f32 ``[wanted, vocab]``."""
        self._check(rows)
        if self.team is not None:
            self.team.agree(rows, logits=True)
        return self._logits(rows)

    def hidden(self, rows: StepRows) -> Array:
        """As ``step``, but the states that the head makes logits of, of all rows: f32 ``[rows,
        hidden]``."""
        self._check(rows)
        if self.team is not None:
            self.team.agree(rows, logits=False)
        return self._hidden(rows)

    def follow(self) -> None:
        """Take the steps of the first rank of the mesh, until it ends them."""
        assert self.team is not None
        for rows, logits in self.team.steps():
            (self._logits if logits else self._hidden)(rows)

    def _logits(self, rows: StepRows) -> Array:
        hidden = self._hidden(rows)
        if not len(rows.wanted):
            return np.empty((0, self.vocab), np.float32)
        if not np.array_equal(rows.wanted, np.arange(len(hidden))):
            hidden = hidden[rows.wanted]
        feeds = {"hidden": hidden}
        if self._adapted[1]:
            feeds["adapter"] = _adapter_of(rows)[rows.wanted]
        return self.head.run(feeds)[0]

    def _hidden(self, rows: StepRows) -> Array:
        table = self._table
        for s, pages in enumerate(rows.tables):
            table[s, : len(pages)] = pages
        feeds = {
            "ids": rows.ids, "positions": rows.positions, "sequence": rows.sequence,
            "table": table,
        }  # fmt: skip
        if self.states is not None:
            states = np.zeros(self.cache.sequences, np.int32)
            states[: len(rows.states)] = rows.states
            feeds["states"] = states
        if self._adapted[0]:
            feeds["adapter"] = _adapter_of(rows)
        return self._bound.run(feeds)[0]

    def warm_up(self, progress: bool | None = None) -> None:
        """Compile all that any step runs, so that none of them compiles any more. ``progress``
        forces the bar on or off; by default it is drawn for long work on a terminal."""
        with Progress("compile", 2, progress) as bar:
            for dim, compiled in (("rows", self.layers), ("wanted", self.head)):
                compiled.prepare(dims={dim: (1, self.max_rows)})
                bar.advance()

    def _check(self, rows: StepRows) -> None:
        """Refuse rows that the model or its cache has no place for."""
        cache = self.cache
        most = max(rows.adapters)
        if min(rows.adapters) < 0 or most > len(self.adapters):
            raise ShapeError(f"adapters are from 0 to {len(self.adapters)}, found {most}")
        if len(rows.tables) > cache.sequences:
            raise ShapeError(
                f"a step has {cache.sequences} sequences at most, found {len(rows.tables)}"
            )
        if self.states is not None and len(rows.states) != len(rows.tables):
            raise ShapeError(
                f"{len(rows.tables)} sequences of a model with states need a slot each, found"
                f" {len(rows.states)}"
            )
        if len(rows.ids) > self.max_rows:
            raise ShapeError(f"a step has {self.max_rows} rows at most, found {len(rows.ids)}")
        low, high = int(rows.ids.min()), int(rows.ids.max())
        if low < 0 or high >= self.vocab:
            raise ShapeError(f"tokens are from 0 to {self.vocab - 1}, found {low} to {high}")
        if int(rows.positions.max()) >= self.context:
            raise ShapeError(
                f"position {int(rows.positions.max())} is beyond the context of {self.context}"
            )


def _team(mesh: Mesh) -> Team:
    from rlx.llm.team import Team

    return Team(mesh)


def _with_adapters(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    adapters: Mapping[str, str | Path],
    merge: Sequence[str | Path],
) -> tuple[Mapping[str, Tensor], Mapping[str, Stack]]:
    """The weights with those adapters that are merged, and the others by their matrices."""
    if not adapters and not merge:
        return weights, {}
    from rlx.llm.lora import merged, read_adapter, stacked

    read = [read_adapter(path, config, weights) for path in adapters.values()]
    for path in merge:
        weights = merged(weights, read_adapter(path, config, weights))
    return weights, stacked(read)


def _adapter_of(rows: StepRows) -> Array:
    """The adapter of each row."""
    return np.asarray(rows.adapters, np.int32)[rows.sequence]


def _ready(session: Session, made: StepGraph, bar: Progress) -> CompiledGraph:
    """A graph compiled, with its params set."""
    with paused():
        compiled = session.compile(made.graph, donate=made.donate)
    for name, value in made.params.items():
        compiled.set_param(name, _fixed(value))
        bar.advance()
    return compiled


def _fixed(value: Array) -> Array:
    """An array that nobody writes to, which a param keeps without a copy."""
    if value.flags.writeable:
        value.flags.writeable = False
    return value
