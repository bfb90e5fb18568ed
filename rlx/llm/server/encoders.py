"""The server of a sentence encoder, or of a cross-encoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rlx.llm.server import requests
from rlx.llm.server.fields import ApiError
from rlx.llm.server.replies import embeddings, ranked
from rlx.llm.server.service import Service, unless_gone
from rlx.models.embed import Embed
from rlx.models.rerank import Rerank

__all__ = ["make_encoder_app"]

AT_ONCE = 32
"""The texts of a request that are encoded, or ranked, before those of another have their turn."""

T = TypeVar("T")


def make_encoder_app(
    encoder: Embed | Rerank,
    *,
    model: str,
    api_key: str | None = None,
    hosts: Collection[str] | None = None,
    max_requests: int = 256,
    max_body: int = 1 << 22,
) -> Starlette:
    """The server of an encoder as an ASGI application: embeddings by one for sentences, rankings by
    a cross-encoder. The options are those of ``make_app``."""
    return _Encoder(encoder, model, api_key, hosts, max_requests, max_body).app


class _Encoder(Service):
    def __init__(self, encoder: Embed | Rerank, *options: Any) -> None:
        super().__init__(*options)
        self.encoder, self.longest = encoder, encoder.max_tokens
        # One runs at a time: each takes all threads.
        self.thread = ThreadPoolExecutor(1, "rlx-encode")
        if isinstance(encoder, Rerank):
            posts = {"/v1/rerank": self.rerank}
        else:
            posts = {"/v1/embeddings": self.embeddings}
        self.serve(posts, self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        yield
        await asyncio.to_thread(self.thread.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        body, _ = await self.body(request)
        with self.admitted():
            texts, packed, name = requests.embedding(body, self.names)
            return await self._answer(
                request,
                self._vectors(texts),
                lambda vectors, tokens: embeddings(vectors, name, tokens, packed=packed),
            )

    async def _answer(
        self, request: Request, work: Coroutine[Any, Any, tuple[T, int]],
        reply: Callable[[T, int], Any],
    ) -> Response:  # fmt: skip
        """The reply of what work finds, with its tokens; none where the client has gone."""
        found = await unless_gone(request.receive, work)
        if found is None:
            self.metrics.cancelled += 1
            return Response(status_code=499)
        self.metrics.prompt_tokens += found[1]
        return JSONResponse(reply(*found))

    async def _vectors(self, texts: Sequence[str | list[int]]) -> tuple[list[Any], int]:
        """The vectors of texts, and how many tokens these are."""
        assert isinstance(self.encoder, Embed)
        for ids in texts:
            if not isinstance(ids, str):
                _check(ids, self.encoder)
        return await self._in_parts(texts, lambda some: _encoded(self.encoder, some))

    async def _in_parts(
        self, texts: Sequence[T], work: Callable[[Sequence[T]], tuple[Iterable[Any], int]]
    ) -> tuple[list[Any], int]:
        """What work makes of texts, and how many tokens these are. Between parts others have their
        turn, and work ends if it is cancelled."""
        found, tokens = list[Any](), 0
        for at in range(0, len(texts), AT_ONCE):
            some = texts[at : at + AT_ONCE]
            more, count = await self._run(lambda some=some: work(some))
            found, tokens = [*found, *more], tokens + count
        return found, tokens

    async def rerank(self, request: Request) -> Response:
        """Documents in the order of how well they answer a query."""
        body, _ = await self.body(request)
        with self.admitted():
            asked = requests.ranking(body, self.names)
            return await self._answer(
                request,
                self._ranked(asked),
                lambda best, tokens: ranked(best, asked, self.model, tokens),
            )

    async def _ranked(self, asked: requests.Ranking) -> tuple[list[tuple[int, float]], int]:
        """The best documents of all, with their scores, and how many tokens these are."""
        encoder, query = self.encoder, asked.query
        assert isinstance(encoder, Rerank)
        logits, tokens = await self._in_parts(
            asked.documents,
            lambda some: (
                encoder._logits(query, some, AT_ONCE, progress=False),
                encoder.count_tokens(query, some),
            ),
        )
        return encoder._best(np.array(logits, np.float32), asked.top), tokens


def _encoded(encoder: Any, texts: Sequence[str | list[int]]) -> tuple[list[Any], int]:
    """Vectors of texts and of ids, in their order, and how many tokens these are."""
    words = [t for t in texts if isinstance(t, str)]
    by_words = iter(encoder.encode(words, progress=False) if words else ())
    vectors = [next(by_words) if isinstance(t, str) else _of_ids(encoder, t) for t in texts]
    known = sum(len(t) for t in texts if not isinstance(t, str))
    return vectors, known + (encoder.count_tokens(words) if words else 0)


def _of_ids(encoder: Embed, ids: list[int]) -> Any:
    row = np.array([ids], np.int64)
    return encoder.encode_ids(row, np.ones_like(row))[0]


def _check(ids: list[int], encoder: Embed) -> None:
    """ApiError for ids that the encoder has no place for."""
    if len(ids) > encoder.max_tokens:
        raise ApiError(
            f"a text has {encoder.max_tokens} tokens at most, found {len(ids)}", param="input",
            code="context_length_exceeded",
        )  # fmt: skip
    if min(ids) < 0 or max(ids) >= encoder.config.vocab:
        raise ApiError(
            f"tokens are from 0 to {encoder.config.vocab - 1}, found {min(ids)} to {max(ids)}",
            param="input",
        )
