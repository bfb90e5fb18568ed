"""The next token of each row of logits, drawn in a graph.

In this order, as in Hugging Face's ``generate``: logit bias; the repetition penalty, presence and
frequency penalties; what a grammar forbids; temperature; top-k, top-p, min-p, typical. Then one
draw by Gumbel noise under the key of the row's seed and step.

Rows whose parameters ask for the same steps run together (a ``Plan``); how many they are, and who
else is there, changes nothing for a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.frozen import field, frozen
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.builders import public
from rlx.ir.dim import Dim
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import DimLike
from rlx.ops.nn.sampling import COLDEST
from rlx.ops.random.distributions import fold_in, gumbel, key_data

if TYPE_CHECKING:
    from rlx.runtime.session import CompiledGraph

__all__ = ["Drawn", "Plan", "Row", "Sampler", "SamplingParams", "sampling_graph", "scores"]

Array = np.ndarray[Any, Any]

SHORT_LIST = 128
"""What at most so many logits can be chosen of needs no sort of all of them."""

TOP_LOGPROBS = 20
"""The most alternatives whose log probabilities are given."""


@public
@frozen
class SamplingParams:
    """How a sequence's tokens are drawn; the defaults draw from the model's own distribution.

    ``temperature`` divides the logits, and 0 takes the greatest; ``top_k`` (0: all) keeps as many,
    ``top_p`` the greatest that share so much probability, ``min_p`` those of at least so much of
    the greatest's, ``typical_p`` those whose surprise is nearest to the mean (C. Meister et al.,
    2022). ``repetition_penalty`` divides positive logits of all tokens so far, and multiplies
    negative ones (N. Keskar et al., 2019); ``presence_penalty`` and ``frequency_penalty`` are
    subtracted of tokens of the answer, once and for each time. ``logit_bias`` is added by id.
    ``seed`` makes draws the same again; None lets the engine choose. ``top_logprobs`` asks for the
    log probabilities of so many tokens beside the one drawn.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    seed: int | None = None
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        for name, low, high in RANGES:
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                raise GraphError(f"{name} is a number from {low} to {high}, found {value!r}")
        for name in ("top_k", "top_logprobs"):
            if not isinstance(getattr(self, name), int):
                raise GraphError(f"{name} is an int, found {getattr(self, name)!r}")
        for name in ("top_p", "typical_p", "repetition_penalty"):
            if getattr(self, name) == 0:
                raise GraphError(f"{name} is above 0")
        for token, bias in self.logit_bias.items():
            if token < 0 or math.isnan(bias):
                raise GraphError(f"logit_bias has numbers by ids, found {token!r}: {bias!r}")
        if self.seed is not None:
            key_data(self.seed)

    def check_vocab(self, vocab: int) -> None:
        """GraphError for a bias of a token beyond a vocabulary."""
        for token in self.logit_bias:
            if token >= vocab:
                raise GraphError(f"logit_bias names token {token}; the vocabulary has {vocab}")

    @property
    def greedy(self) -> bool:
        """Whether the greatest logit is taken, whatever the seed."""
        return self.temperature < COLDEST or self.top_k == 1


RANGES = (
    ("temperature", 0.0, 100.0), ("top_k", 0, 1 << 30), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0),
    ("typical_p", 0.0, 1.0), ("repetition_penalty", 0.0, 100.0),
    ("presence_penalty", -100.0, 100.0), ("frequency_penalty", -100.0, 100.0),
    ("top_logprobs", 0, TOP_LOGPROBS),
)  # fmt: skip


@frozen
class Row:
    """A row to draw for: its parameters, the ids of the prompt and of the answer so far, the seed,
    and which tokens a grammar lets through, as bits in u32 ``[ceil(vocab / 32)]``."""

    params: SamplingParams
    prompt: Sequence[int]
    answer: Sequence[int]
    seed: int = 0
    mask: Array | None = None


@frozen
class Drawn:
    """A token, its log probability by the model alone, and those of the likeliest tokens."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@frozen
class Plan:
    """Which steps a row needs. ``candidates`` is how many logits are put in order for filters: 0
    where there is none, -1 for all."""

    greedy: bool
    touched: bool
    masked: bool
    candidates: int
    typical: bool
    top: bool

    @staticmethod
    def of(row: Row) -> Plan:
        """The steps that a row's parameters ask for: they depend on the row alone."""
        p = row.params
        penalties = p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty
        filters = not p.greedy and bool(p.top_k or p.top_p < 1)
        short = 0 < p.top_k <= SHORT_LIST
        return Plan(
            greedy=p.greedy,
            touched=bool(penalties or p.logit_bias),
            masked=row.mask is not None,
            candidates=(SHORT_LIST if short else -1) if filters else 0,
            typical=not p.greedy and p.typical_p < 1,
            top=p.top_logprobs > 0,
        )


# -- the graph -----------------------------------------------------------------------------


def sampling_graph(plan: Plan, vocab: int) -> Graph:
    """The graph of a plan: ``logits`` f32 ``[rows, vocab]`` and the rows' parameters to tokens i64
    ``[rows]``, their log probabilities f32 ``[rows]``, and where the plan says so the likeliest
    tokens and theirs, ``[rows, 20]``."""
    g = Graph("sample")
    rows = Dim("rows")
    logits = g.input("logits", [rows, vocab])
    x = scores(g, logits, plan)
    if not plan.greedy:
        keys = fold_in(g.input("seed", [rows, 2], "u32"), g.input("step", [rows], "u32"))
        x = x + gumbel(keys, (vocab,))
    token = x.argmax(-1)
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.take_along_axis(token.reshape((rows, 1)), -1).reshape((rows,))
    outputs = {"token": token, "logprob": chosen}
    if plan.top:
        values, ids = logprobs.topk(min(TOP_LOGPROBS, vocab), -1)
        outputs |= {"top_logprobs": values, "top_ids": ids}
    g.set_outputs(outputs)
    return g


def scores(g: Graph, logits: Value, plan: Plan) -> Value:
    """The logits of which a token is drawn: those that may not be are -inf."""
    rows, vocab = logits.shape
    x = _touched(g, logits, rows) if plan.touched else logits
    if plan.masked:
        x = _masked(g.input("mask", [rows, -(-int(vocab) // 32)], "u32"), vocab).where(x, -math.inf)
    if plan.greedy:
        return x
    x = x / _column(g, "temperature", rows)
    x = _filtered(g, x, rows, plan.candidates) if plan.candidates else x
    least = x.reduce_max(-1, keepdims=True) + _column(g, "log_min_p", rows)
    x = x.lt(least).where(-math.inf, x)
    return _typical(x, _column(g, "typical_p", rows)) if plan.typical else x


def _column(g: Graph, name: str, rows: DimLike, dtype: str = "f32") -> Value:
    return g.input(name, [rows, 1], dtype)


def _touched(g: Graph, x: Value, rows: DimLike) -> Value:
    """Logits with bias and penalties, of the tokens that a row lists: each once."""
    n = Dim("touched")
    ids = g.input("ids", [rows, n], "i32")
    v = x.take_along_axis(ids, -1) + g.input("bias", [rows, n])
    repeated = _column(g, "repetition_penalty", rows)
    seen = g.input("seen", [rows, n], "bool")
    v = seen.where(v.gt(0.0).where(v / repeated, v * repeated), v)
    count = g.input("count", [rows, n])
    v = v - count * _column(g, "frequency_penalty", rows)
    v = v - count.gt(0.0).where(_column(g, "presence_penalty", rows), 0.0)
    return x.put_along_axis(ids, v, -1)


def _masked(words: Value, vocab: DimLike) -> Value:
    """Bits as bools ``[rows, vocab]``, the lowest bit of a word first."""
    rows, n = words.shape
    bits = Constant(np.arange(32, dtype=np.uint32)).out
    found = words.reshape((rows, n, 1)).right_shift(bits).bitwise_and(1)
    return found.ne(0).reshape((rows, n * 32))[:, :vocab]


def _filtered(g: Graph, x: Value, rows: DimLike, candidates: int) -> Value:
    """Top-k, then top-p of what that leaves. What is as great as the last that stays, stays too."""
    vocab = x.shape[-1]
    short = 0 < candidates < int(vocab)
    ordered = x.topk(candidates, -1)[0] if short else x.sort(-1, descending=True)
    least = ordered.take_along_axis(_column(g, "last", rows, "i32"), -1)
    kept = x.lt(least).where(-math.inf, x)
    greatest = x.reduce_max(-1, keepdims=True)
    total = (kept - greatest).exp().reduce_sum(-1, keepdims=True)
    ordered = ordered.lt(least).where(-math.inf, ordered)
    before = ((ordered - greatest).exp() / total).cumsum(-1, exclusive=True)
    stays = before.lt(_column(g, "top_p", rows))
    least = stays.where(ordered, math.inf).reduce_min(-1, keepdims=True)
    return kept.lt(least).where(-math.inf, kept)


def _typical(x: Value, mass: Value) -> Value:
    """The tokens whose surprise is nearest to its mean, until they share ``mass``."""
    logp = x.log_softmax(-1)
    p = logp.exp()
    mean = -(p.gt(0.0).where(p * logp, 0.0)).reduce_sum(-1, keepdims=True)
    far = (logp + mean).abs()
    order = far.argsort(-1)
    before = p.take_along_axis(order, -1).cumsum(-1, exclusive=True)
    stays = before.lt(mass)
    most = stays.where(far.take_along_axis(order, -1), -math.inf).reduce_max(-1, keepdims=True)
    return far.gt(most).where(-math.inf, x)


# -- running it ----------------------------------------------------------------------------


@public
class Sampler:
    """Draws tokens for rows of logits of one vocabulary. Graphs are compiled as rows need them."""

    def __init__(self, vocab: int, *, device: str = "cpu", threads: int | None = None) -> None:
        from rlx.runtime.session import Session

        self.vocab = vocab
        self._session = Session(device, threads=threads)
        self._compiled: dict[Plan, CompiledGraph] = {}

    def draw(self, logits: Array, rows: Sequence[Row]) -> list[Drawn]:
        """A token for each row of ``logits``, f32 ``[rows, vocab]``."""
        logits = np.asarray(logits)
        if logits.dtype != np.float32:
            raise DTypeError(f"logits are f32, found {logits.dtype}")
        if logits.shape != (len(rows), self.vocab):
            raise ShapeError(f"logits are [{len(rows)}, {self.vocab}], found {list(logits.shape)}")
        found: list[Drawn | None] = [None] * len(rows)
        groups: dict[Plan, list[int]] = {}
        for n, row in enumerate(rows):
            groups.setdefault(Plan.of(row), []).append(n)
        for plan, members in groups.items():
            feeds = _feeds(plan, [rows[n] for n in members], self.vocab)
            all_rows = len(members) == len(rows)
            feeds["logits"] = logits if all_rows else logits[members]
            for n, drawn in zip(members, self._run(plan, feeds, rows, members), strict=True):
                found[n] = drawn
        return [drawn for drawn in found if drawn is not None]

    def warm_up(self, most: int) -> None:
        """Compile what draws for up to ``most`` rows whose parameters are usual ones, also with the
        likeliest tokens beside: without penalties, biases, grammars, and ``typical_p``."""
        usual = (SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=40),
                 SamplingParams(top_p=0.9))  # fmt: skip
        for params in (*usual, *(replace(p, top_logprobs=1) for p in usual)):
            self._graph(Plan.of(Row(params, (), ()))).prepare(dims={"rows": (1, most)})

    def _graph(self, plan: Plan) -> CompiledGraph:
        f = self._compiled.get(plan)
        if f is None:
            f = self._compiled[plan] = self._session.compile(sampling_graph(plan, self.vocab))
        return f

    def _run(
        self, plan: Plan, feeds: dict[str, Array], rows: Sequence[Row], members: list[int]
    ) -> list[Drawn]:
        out = [np.asarray(a) for a in self._graph(plan).run(feeds)]
        drawn: list[Drawn] = []
        for at, n in enumerate(members):
            count = rows[n].params.top_logprobs
            pairs = zip(out[3][at, :count], out[2][at, :count], strict=True) if plan.top else ()
            top = tuple((int(i), float(p)) for i, p in pairs)
            drawn.append(Drawn(int(out[0][at]), float(out[1][at]), top))
        return drawn


def _feeds(plan: Plan, rows: Sequence[Row], vocab: int) -> dict[str, Array]:
    def column(values: Sequence[float]) -> Array:
        return np.array([values], np.float32).T

    params = [row.params for row in rows]
    feeds: dict[str, Array] = _touched_feeds(rows, vocab) if plan.touched else {}
    if plan.masked:
        feeds["mask"] = np.stack([_mask_of(row, vocab) for row in rows])
    if plan.greedy:
        return feeds
    feeds["temperature"] = column([p.temperature for p in params])
    feeds["log_min_p"] = column([math.log(p.min_p) if p.min_p else -math.inf for p in params])
    feeds["seed"] = np.stack([key_data(row.seed) for row in rows])
    feeds["step"] = np.array([len(row.answer) for row in rows], np.uint32)
    if plan.candidates:
        last = [min(p.top_k or vocab, vocab) - 1 for p in params]
        feeds["last"] = np.array([last], np.int32).T
        feeds["top_p"] = column([p.top_p if p.top_p < 1 else math.inf for p in params])
    if plan.typical:
        feeds["typical_p"] = column([p.typical_p for p in params])
    return feeds


def _mask_of(row: Row, vocab: int) -> Array:
    mask = np.asarray(row.mask)
    words = -(-vocab // 32)
    if mask.dtype.itemsize != 4 or mask.shape != (words,):
        raise ShapeError(f"a mask is u32 [{words}], found {mask.dtype} {list(mask.shape)}")
    return mask.view(np.uint32)


def _touched_feeds(rows: Sequence[Row], vocab: int) -> dict[str, Array]:
    """The tokens that bias or penalties touch, each once a row; what is left of the longest row's
    length repeats a row's first token, and writes what that does."""
    found: list[dict[int, tuple[float, bool, int]]] = []
    for row in rows:
        touched = {int(t): (0.0, True, 0) for t in row.prompt}
        for t in row.answer:
            touched[int(t)] = (0.0, True, touched.get(int(t), (0.0, True, 0))[2] + 1)
        row.params.check_vocab(vocab)
        for t, bias in row.params.logit_bias.items():
            _, seen, count = touched.get(int(t), (0.0, False, 0))
            touched[int(t)] = (float(bias), seen, count)
        found.append(touched or {0: (0.0, False, 0)})
    longest = max(map(len, found))
    width = 1 << (longest - 1).bit_length()
    shape = (len(rows), width)
    ids, bias = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    seen, count = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    for n, touched in enumerate(found):
        filled = [*touched.items()]
        filled += [filled[0]] * (width - len(filled))
        ids[n] = [t for t, _ in filled]
        bias[n], seen[n], count[n] = zip(*(values for _, values in filled), strict=True)
    feeds = {"ids": ids, "bias": bias, "seen": seen, "count": count}
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        feeds[name] = np.array([[getattr(row.params, name) for row in rows]], np.float32).T
    return feeds
