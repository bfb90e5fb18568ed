"""A language model: from texts to texts."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.base.cached import cached_property
from rlx.base.gc_pause import importing
from rlx.base.mesh import Mesh
from rlx.errors import DTypeError, GraphError, ModelError, ShapeError
from rlx.frontends.gguf import GGUF
from rlx.ir.builders import public
from rlx.llm.answer import Answer, Completion
from rlx.llm.arguments import (
    ContextError,
    Prompt,
    RoomError,
    checked_ids,
    longest_answer,
    sampling_of,
    several,
)
from rlx.llm.batching.batch import Batch
from rlx.llm.decoder import Decoder
from rlx.llm.embedding import POOLINGS, embedded, pooling_of
from rlx.llm.engine import StepRows
from rlx.llm.pages import KvBlockTable
from rlx.llm.sampling import Sampler
from rlx.llm.speculation import Speculation
from rlx.models.files import check_there
from rlx.models.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from rlx.llm.calls import Tools
    from rlx.llm.grammar import Grammars, Matcher
    from rlx.llm.text import Tokenizer
    from rlx.llm.text.stops import StopText

__all__ = ["LLM"]

Array = np.ndarray[Any, Any]

GRAMMARS = {"json_schema": "json_schema", "regex": "regex", "grammar": "lark"}
"""The arguments that limit what an answer may be, and what makes their matchers."""


@public
class LLM:
    """A language model from a GGUF file or a Hugging Face folder.

        llm = rlx.LLM("model.gguf")
        print(llm.generate("Once upon a time", max_new_tokens=32)[0].text)

    ``precision`` says what rows are rounded to where they meet weights: "q8" (blocks of 8 bits,
    where weights are blocks too), "bf16", or "f32" for not at all. ``context`` is the most tokens
    of a prompt and its answer, by default the model's or 4096; ``tokens`` how many the cache of
    keys and values has room for, of all answers together, by default the context, in elements of
    type ``cache``; ``sequences`` the most answers of a step. ``device`` and ``threads`` are those
    of ``Session``; ``progress`` forces the bar of loading on or off.

    ``speculate`` has answers drawn several tokens a step, with the ids and the bits that they have
    without: "lookup" drafts what followed the last tokens earlier in the text, the path of a
    smaller model with the same vocabulary, or an LLM, what that draws. A draft has at most
    ``draft_tokens``.

    ``adapters`` are LoRA adapters by name, which answers ask for by ``adapter``: folders of PEFT,
    or GGUF files of llama.cpp. Those of ``merge`` are added to the weights as they are loaded, and
    all answers have them; matrices in blocks become f16 by that. ModelError for an adapter that
    does not fit the model.

    A prompt is a text, a list of ids, or a conversation (a list of messages such as
    ``{"role": "user", "content": "Hello"}``), which the model's chat template makes a text. May be
    used by many threads; answers that are drawn at the same time share steps.

    With ``mesh``, the ranks along its only axis, or along its axis "model", share the model: each
    has some of the heads and of the rows of matrices. All make it and call it alike, in one thread,
    and have the same answers; or the first alone calls it, and the others ``take_part``. ShapeError
    for a model that is not cut for so many ranks.
    """

    UNCHECKED = ("follow",)

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        context: int | None = None,
        precision: str = "q8",
        tokens: int | None = None,
        sequences: int = 64,
        cache: str = "f16",
        speculate: str | Path | LLM | None = None,
        draft_tokens: int = 4,
        adapters: Mapping[str, str | Path] | None = None,
        merge: str | Path | Sequence[str | Path] = (),
        progress: bool | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        self.path = os.fspath(model)
        check_there(self.path, "file or folder")
        self._file = None if os.path.isdir(self.path) else GGUF(self.path)
        made: Any = Decoder.load if self._file is None else Decoder.from_gguf
        options: dict[str, Any] = {
            "device": device, "threads": threads, "precision": precision, "context": context,
            "tokens": tokens, "sequences": sequences, "cache": cache, "progress": progress,
        }  # fmt: skip
        self.decoder: Decoder = made(
            self._file or self.path, mesh=mesh, adapters=adapters,
            merge=[merge] if isinstance(merge, str | os.PathLike) else merge, **options,
        )  # fmt: skip
        self.sampler = Sampler(self.decoder.vocab, device=device)
        self.batch = Batch(self.decoder, self.sampler.draw, sequences=sequences)
        self.lock = threading.RLock()
        """Held by who uses the decoder or the batch."""
        draft = None
        if speculate is not None and speculate != "lookup":
            draft = speculate if isinstance(speculate, LLM) else LLM(speculate, **options)
        kind = "lookup" if speculate == "lookup" else None if draft is None else "draft"
        self._speculation = Speculation(self, kind, draft, draft_tokens)
        self._seeds = None if self.decoder.team is None else _random(self.decoder.team.number())

    @property
    def vocab(self) -> int:
        """The length of a row of logits."""
        return self.decoder.vocab

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.batch.room

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. ModelError if it has none."""
        with importing():
            from rlx.llm.text import Tokenizer

        if self._file is None:
            return Tokenizer.from_dir(self.path)
        if not self.has_tokenizer:
            raise ModelError(f"{self.path} has no tokenizer: give ids for prompts")
        return Tokenizer.from_gguf(self._file.metadata)

    @cached_property
    def has_tokenizer(self) -> bool:
        """Whether the model's file has a tokenizer; without one prompts and answers are ids."""
        if self._file is None:
            return os.path.isfile(os.path.join(self.path, "tokenizer.json"))
        # "no_vocab" and "none" are what converters write for a model that has none.
        named = self._file.metadata.get("tokenizer.ggml.model", "none")
        return named not in ("none", "no_vocab")

    @cached_property
    def _grammars(self) -> Grammars:
        from rlx.llm.grammar import Grammars

        return Grammars(self.tokenizer, self.vocab)

    def warm_up(self, progress: bool | None = None) -> None:
        """Compile all that any step runs, and the usual ways to draw, so that none compiles later.
        ``progress`` forces the bar on or off."""
        with self.lock:
            self.decoder.warm_up(progress)
            self.sampler.warm_up(self.batch.schedule.limits.max_sequences)

    # -- ranks -----------------------------------------------------------------------------

    def take_part(self) -> None:
        """Take the steps that the first rank of the mesh takes, until it calls ``close``. It has to
        take one, or call ``idle``, within ``RLX_COMM_TIMEOUT``. GraphError on the first rank, and
        without a mesh."""
        if self.decoder.team is None or self.decoder.team.first:
            raise GraphError(
                "take_part is for the ranks of a mesh but the first, which takes steps"
            )
        with self.lock:
            self.decoder.follow()

    def idle(self) -> None:
        """Let ranks that ``take_part`` wait on. Nothing without a mesh."""
        if self.decoder.team is not None:
            with self.lock:
                self.decoder.team.idle()

    def close(self) -> None:
        """Let ranks that ``take_part`` return. Nothing without a mesh."""
        if self.decoder.team is not None:
            with self.lock:
                self.decoder.team.end()

    # -- prompts ---------------------------------------------------------------------------

    def _adapter(self, name: str | None) -> int:
        """The number of an adapter; 0 for none."""
        known = self.decoder.adapters
        if name is not None and name not in known:
            there = f"there are {', '.join(known)}" if known else "the model was loaded with none"
            raise GraphError(f"there is no adapter {name!r}; {there}")
        return 0 if name is None else 1 + known.index(name)

    def ids(self, prompt: Prompt, **template: Any) -> list[int]:
        """The ids of a prompt; ``template`` are values for the chat template, such as ``tools``.

        ShapeError for an empty prompt, DTypeError for what is none, GraphError for an id that the
        model does not have.
        """
        found: list[int] = []
        if isinstance(prompt, str):
            found = self.tokenizer.encode(prompt)
        elif isinstance(prompt, Sequence | np.ndarray) and len(prompt):
            if isinstance(prompt[0], Mapping):
                return self._conversation(list(prompt), **template)  # pyright: ignore
            found = checked_ids(prompt, self.vocab)
        elif not isinstance(prompt, Sequence | np.ndarray):
            raise DTypeError(
                "a prompt is a text, a list of ids or a list of messages, found"
                f" {type(prompt).__name__}"
            )
        if not len(found):
            raise ShapeError("a prompt has one token or more, found none")
        return found

    def _conversation(self, messages: list[Mapping[str, Any]], **template: Any) -> list[int]:
        from rlx.llm.calls import with_arguments

        tools = bool(template.get("tools"))
        said = with_arguments(messages, lambda: self.tokenizer.template(tools=tools))
        return self.tokenizer.prompt(said, **template)

    def answer(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        ignore_eos: bool = False,
        json_schema: Mapping[str, Any] | bool | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        template: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        parallel_tool_calls: bool = True,
        speculate: str | None = None,
        draft_tokens: int | None = None,
        adapter: str | None = None,
        **sampling: Any,
    ) -> Answer:
        """An answer of which nothing is drawn yet, for ``follow``.

        It ends after ``max_new_tokens`` (by default the context's end), at a token that ends texts
        unless ``ignore_eos``, and before any string of ``stop``. ``json_schema`` (``{}``: any
        JSON), ``regex`` or ``grammar`` (in Lark's form) is what it must meet. ``template`` are
        values for the chat template. ``tools`` are what an answer in a conversation may call
        (``rlx.llm.calls.Tools`` says how they are written); ``tool_choice`` is "auto", "none",
        "required" or the name of one. ``speculate`` is "lookup" or "draft", by the model that was
        loaded for it, and ``draft_tokens`` the most of a draft, 0 for none; by default both are as
        the model was loaded. ``adapter`` is the name of one. ``sampling`` are the fields of
        ``SamplingParams``; by default the likeliest token is taken.
        """
        offered = self._offered(tools, tool_choice, parallel_tool_calls)
        if offered is not None:
            if isinstance(prompt, str) or (len(prompt) and not isinstance(prompt[0], Mapping)):
                raise GraphError("tools are for conversations: the prompt is a list of messages")
            template = {**(template or {}), "tools": offered.definitions}
        ids = self.ids(prompt, **(template or {}))
        params = sampling_of(sampling, self.vocab)
        most = longest_answer(len(ids), self.context, max_new_tokens)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(s, str) and s for s in stops):
            raise GraphError(f"stop is a list of strings that are not empty, found {stop!r}")
        if stops and not self.has_tokenizer:
            raise ModelError(f"{self.path} has no tokenizer, which stop strings need")
        drafter, drafted = self._speculation.of(speculate, draft_tokens)
        limits = {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        limits = limits if offered is None else offered.limits(limits)
        kept = () if offered is None else offered.kept
        return Answer(
            ids, params, most=most, text=self._text(kept, stops), matcher=self._matcher(limits),
            reader=None if offered is None else offered.reader,
            ends=self.tokenizer.eos_ids if self.has_tokenizer and not ignore_eos else frozenset(),
            seed=self._new_seed() if params.seed is None else params.seed,
            drafter=drafter, draft_tokens=drafted, adapter=self._adapter(adapter),
        )  # fmt: skip

    def _offered(self, tools: Any, choice: Any, parallel: bool) -> Tools | None:
        """The tools of an answer, if it has any."""
        if not tools and choice is None:
            return None
        from rlx.llm.calls import Tools

        return Tools.of(lambda: self.tokenizer, tools, choice, parallel)

    def _text(self, kept: Iterable[str], stops: Sequence[str]) -> StopText | None:
        """What makes text of an answer's tokens; None without a tokenizer."""
        if not self.has_tokenizer:
            return None
        from rlx.llm.text.stops import StopText

        return StopText(self.tokenizer.stream(kept=kept), stops)

    def _new_seed(self) -> int:
        return int.from_bytes(os.urandom(4)) if self._seeds is None else self._seeds.getrandbits(32)

    def _matcher(self, limits: Mapping[str, Any]) -> Matcher | None:
        given = {name: value for name, value in limits.items() if value is not None}
        if not given:
            return None
        if len(given) > 1:
            raise GraphError(f"an answer meets one of {', '.join(limits)}, found {len(given)}")
        ((name, value),) = given.items()
        return getattr(self._grammars, GRAMMARS[name])(value)

    # -- answers ---------------------------------------------------------------------------

    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, progress: bool | None = None, **options: Any
    ) -> list[Completion]:
        """Answers to prompts, in their order; a single prompt is a list of one. ``options`` are
        those of ``answer``; with a ``seed``, the prompts have it and the numbers that follow.
        ``progress`` forces the bar of reading the prompts on or off.

        Raises ShapeError for a prompt without tokens, or one that has no room in the context or in
        the cache beside its answer; DTypeError for what is no prompt; GraphError for an id that the
        model does not have, an option or a value of one that there is not, a grammar that cannot be
        used, or a conversation that the chat template refuses; ModelError where the model has no
        tokenizer or no chat template and one is needed.
        """
        answers: list[Answer] = []
        seed = options.get("seed")
        for n, prompt in enumerate(several(prompts)):
            own: dict[str, Any] = {"seed": seed + n} if isinstance(seed, int) else {}
            answers.append(self.answer(prompt, **{**options, **own}))
        names: list[int] = []
        try:
            with self.lock:
                names += (self.batch.add(answer) for answer in answers)
            with Progress("prompt", sum(len(a.prompt) for a in answers), progress) as bar:
                while any(a.finish is None for a in answers):
                    self._step(bar, answers)
        finally:
            self._cancel(names)
        return [answer.completion() for answer in answers]

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Completion:
        """The answer to a conversation; ``options`` are those of ``generate``.

        Raises DTypeError for what is no list of messages, and else what ``generate`` does.
        """
        if isinstance(messages, str) or not all(isinstance(m, Mapping) for m in messages):
            raise DTypeError("chat takes a list of messages; generate takes texts and ids")
        return self.generate([messages], **options)[0]

    def stream(
        self, prompt: Prompt, *, progress: bool | None = None, **options: Any
    ) -> Iterator[str]:
        """Pieces of an answer's text as it grows: whole characters. ``options`` are those of
        ``answer``. ModelError for a model without a tokenizer."""
        self.tokenizer  # noqa: B018 # which says that there is none
        if options.get("tools"):
            raise GraphError("stream gives text alone; calls of tools are in what chat returns")
        return self.follow(self.answer(prompt, **options), progress)

    def follow(self, answer: Answer, progress: bool | None = None) -> Iterator[str]:
        """Draw an answer, and give its text as it grows; closing this ends it."""
        with self.lock:
            name = self.batch.add(answer)
        try:
            with Progress("prompt", len(answer.prompt), progress) as bar:
                while not answer.ids:
                    self._step(bar, [answer])
            while True:
                piece = answer.take()
                if piece:
                    yield piece
                if answer.finish is not None:
                    return
                self._step(None, [answer])
        finally:
            self._cancel([name])

    def _step(self, bar: Progress | None, answers: Sequence[Answer]) -> None:
        """A step, unless another thread's have ended the answers meanwhile."""
        with self.lock:
            if any(a.finish is None for a in answers):
                self.batch.step()
        if bar is not None:
            bar.advance(sum(a.read for a in answers) - bar.done)

    def _cancel(self, names: Sequence[int]) -> None:
        with self.lock:
            for name in names:
                self.batch.cancel(name)

    # -- numbers ---------------------------------------------------------------------------

    def logits(self, ids: Prompt, *, adapter: str | None = None) -> Array:
        """The logits behind every token of a prompt: f32 ``[tokens, vocab]``.

        Raises ShapeError for a prompt without tokens, or one that has no room in the context or in
        the cache; DTypeError for what is no prompt, GraphError for an id that the model does not
        have.
        """
        found, decoder, at, own = self._fitting(ids), self.decoder, 0, [self._adapter(adapter)]
        out = np.empty((len(found), self.vocab), np.float32)
        with self.lock, self._room(len(found)) as (pages, states):
            while at < len(found):
                part = found[at : at + decoder.max_rows]
                entry = (part, at, pages)
                rows = StepRows.of([entry], every=True, adapters=own, states=states)
                out[at : at + len(part)] = decoder.step(rows)
                at += len(part)
        return out

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling: str | None = None,
        adapter: str | None = None,
    ) -> Array:
        """The vectors of prompts, each of length 1: f32 ``[prompts, hidden]``.

        ``pooling`` makes one vector of the states of a text's tokens: their "mean", or the "last";
        by default what the model's files say. ModelError if they say nothing, as those of models
        that are not made for it, or something else.
        """
        how = pooling_of(self.path, self._file) if pooling is None else pooling
        if how is None:
            raise ModelError(
                f"{self.path} does not say how it makes vectors of texts; give pooling='mean' or"
                " pooling='last', which is --pooling of rlx embed"
            )
        if how not in POOLINGS:
            raise GraphError(f"pooling is one of {', '.join(POOLINGS)}, found {how!r}")
        texts, own = [self._fitting(prompt) for prompt in several(prompts)], self._adapter(adapter)
        out = np.empty((len(texts), self.decoder.config.hidden), np.float32)
        with self.lock:
            for n, ids in enumerate(texts):
                with self._room(len(ids)) as (pages, states):
                    out[n] = embedded(self.decoder, ids, pages, how, own, states)
        return out

    def _fitting(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt that has room in the context."""
        found = self.ids(prompt)
        if len(found) > self.context:
            raise ContextError(f"{len(found)} tokens have no room in a context of {self.context}")
        return found

    @contextmanager
    def _room(self, tokens: int) -> Generator[tuple[list[int], list[int]]]:
        """Pages for so many tokens, and a slot for states where the model has such. RoomError if
        answers that are being drawn hold too many."""
        pool, states = self.decoder.pool, self.decoder.states
        slot = None if states is None else states.alloc()
        try:
            if states is not None and slot is None:
                raise RoomError(
                    f"{self.batch.answers} answers that are being drawn hold the states of all"
                    " sequences; load the model with more sequences"
                )
            table = self._pages(tokens)
            try:
                yield table.pages, [] if slot is None else [slot]
            finally:
                table.release(pool)
        finally:
            if states is not None and slot is not None:
                states.free(slot)

    def _pages(self, tokens: int) -> KvBlockTable:
        """Pages for so many tokens. RoomError if there are not as many."""
        pool = self.decoder.pool
        table = KvBlockTable(pool.tokens_per_page)
        if not table.reserve(tokens, pool):
            self.batch.schedule.prefix.evict(-(-tokens // pool.tokens_per_page) - pool.free_count)
            if not table.reserve(tokens, pool):
                raise RoomError(
                    f"{tokens} tokens have no room beside {self.batch.answers} answers that are"
                    " being drawn; load the model with more tokens"
                )
        return table


def _random(seed: int) -> Random:
    from random import Random

    return Random(seed)
