"""The routes of the server, and what a client that goes away ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from itertools import takewhile
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rlx.errors import GraphError
from rlx.llm.model import LLM
from rlx.llm.sampling import Drawn
from rlx.llm.server import requests
from rlx.llm.server.replies import Replies, embeddings
from rlx.llm.server.requests import Asked
from rlx.llm.server.service import Service, api_error, unless_gone
from rlx.llm.server.worker import Event, Job, Worker

__all__ = ["make_app"]

SHORT = 8192
"""Bytes of a body whose prompt is tokens in about a millisecond."""
LIMITS = ("response_format", "grammar", "regex")
"""What may take longer to read than a prompt."""


def make_app(
    llm: LLM,
    *,
    model: str,
    api_key: str | None = None,
    hosts: Collection[str] | None = None,
    max_requests: int = 256,
    max_body: int = 1 << 20,
) -> Starlette:
    """The server of a model as an ASGI application. ``model`` is its name in the API.

    Whoever asks needs ``api_key``, if there is one, and a Host header of ``hosts``, if they are
    given. At most ``max_requests`` are served at a time, of ``max_body`` bytes. GraphError for an
    adapter that is called as the model is.
    """
    if model in llm.decoder.adapters:
        raise GraphError(
            f"the model and one of its adapters are called {model!r}; give another name"
        )
    return _Server(llm, model, api_key, hosts, max_requests, max_body).app


class _Server(Service):
    def __init__(
        self,
        llm: LLM,
        model: str,
        api_key: str | None,
        hosts: Collection[str] | None,
        max_requests: int,
        max_body: int,
    ) -> None:
        super().__init__(model, api_key, hosts, max_requests, max_body)
        self.llm, self.longest = llm, llm.context
        self.worker = Worker(llm, self.metrics)
        self.serve(
            {
                "/v1/completions": self.completions,
                "/v1/chat/completions": self.chat,
                "/v1/embeddings": self.embeddings,
            },
            self._lifespan,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The model, and its adapters, which are asked for as models."""
        return (self.model, *self.llm.decoder.adapters)

    @property
    def why_not(self) -> str | None:
        """Why it does not serve; None if it does."""
        return None if self.worker.alive else "nothing draws answers"

    def told(self) -> str:
        """What it has done, for Prometheus."""
        return self.metrics.text(self.llm.batch)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)

    # -- routes ----------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        """Texts that go on."""
        return await self._answered(request, requests.completion, chat=False)

    async def chat(self, request: Request) -> Response:
        """Answers in a conversation."""
        return await self._answered(request, requests.chat, chat=True)

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        body, _ = await self.body(request)
        with self.admitted():
            texts, packed, adapter = await asyncio.to_thread(self._embedded, body)
            vectors = await unless_gone(request.receive, self._vectors(texts, adapter))
        if vectors is None:
            self.metrics.cancelled += 1
            return Response(status_code=499)
        count = sum(map(len, texts))
        return JSONResponse(embeddings(vectors, adapter or self.model, count, packed=packed))

    def _embedded(self, body: Any) -> tuple[list[list[int]], bool, str | None]:
        texts, packed, name = requests.embedding(body, self.names)
        return [self.llm.ids(t) for t in texts], packed, None if name == self.model else name

    async def _vectors(self, texts: Sequence[Sequence[int]], adapter: str | None) -> list[Any]:
        """The vectors of texts, each between two steps."""
        return [
            await self.worker.call(lambda ids=list(ids): self.llm.embed([ids], adapter=adapter)[0])
            for ids in texts
        ]

    # -- answers ---------------------------------------------------------------------------

    async def _answered(
        self, request: Request, read: Callable[[LLM, Any, str], Asked], *, chat: bool
    ) -> Response:
        body, size = await self.body(request)
        with self.admitted():
            # What is read in less time than a thread takes to wake is read here.
            if size <= SHORT and isinstance(body, dict) and not any(body.get(n) for n in LIMITS):
                asked = read(self.llm, body, self.model)
            else:
                asked = await asyncio.to_thread(read, self.llm, body, self.model)
            replies = Replies(asked, self.llm.tokenizer, chat=chat)
            client = asked.client or (request.client.host if request.client else "")
            events = self._events(Job(asked.answers, client))
            if asked.stream:
                self.active += 1  # the stream's own
                return _EventStream(self._lines(events, replies), self._stream_ended)
            if await unless_gone(request.receive, _exhaust(events)) is None:
                self.metrics.cancelled += 1
                return Response(status_code=499)
            return JSONResponse(replies.whole())

    async def _events(self, job: Job) -> AsyncGenerator[list[Event]]:
        """What comes of a job's answers, as much at a time as there is, until all have ended;
        leaving it ends them."""
        metrics, at = self.metrics, time.monotonic()
        seen: dict[int, float] = {}
        self.worker.submit(job)
        left = len(job.answers)
        try:
            while left:
                events = [await job.events.get()]
                while not job.events.empty():
                    events.append(job.events.get_nowait())
                now = time.monotonic()
                known = [*takewhile(lambda e: e.error is None, events)]
                for event in known:
                    times = metrics.between if event.index in seen else metrics.first
                    times.add(now - seen.get(event.index, at))
                    seen[event.index] = now
                    left -= event.finish is not None
                if known:
                    yield known
                if len(known) < len(events) and (error := events[len(known)].error) is not None:
                    raise error
        finally:
            self.worker.cancel(job)
            metrics.prompt_tokens += sum(len(a.prompt) for a in job.answers)
            metrics.cached_tokens += sum(a.cached for a in job.answers)

    async def _lines(
        self, groups: AsyncGenerator[list[Event]], replies: Replies
    ) -> AsyncGenerator[list[dict[str, Any] | None]]:
        """The chunks of a stream, those together that are there together; None at its end."""
        chunks: list[dict[str, Any] | None] = [*replies.first()]
        try:
            if chunks:
                yield chunks
            held: dict[int, list[Drawn]] = {}
            left = len(replies.asked.answers)
            async with aclosing(groups):
                async for events in groups:
                    chunks = []
                    for event in events:
                        drawn = held.setdefault(event.index, [])
                        if event.drawn is not None:
                            drawn.append(event.drawn)
                        if event.text or event.calls or event.finish is not None:
                            chunks.append(replies.part(event, drawn))
                            held[event.index] = []
                        left -= event.finish is not None
                    if not left:
                        chunks += [*replies.last(), None]
                    if chunks:
                        yield chunks
        except (GeneratorExit, asyncio.CancelledError):
            self.metrics.cancelled += 1
            raise
        except Exception as e:
            yield [api_error(e).body()]

    def _stream_ended(self) -> None:
        self.active -= 1


class _EventStream(Response):
    """Chunks as server-sent events; a client that goes away ends them."""

    def __init__(
        self, chunks: AsyncGenerator[list[dict[str, Any] | None]], ended: Callable[[], None]
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._chunks, self._ended = chunks, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}

        async def write() -> bool:
            await send(start)
            async with aclosing(self._chunks) as chunks:
                async for some in chunks:
                    data = "".join(map(_line, some)).encode()
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return True

        try:
            await unless_gone(receive, write())
        finally:
            self._ended()


def _line(chunk: dict[str, Any] | None) -> str:
    """A chunk as an event; None is the end's."""
    text = "[DONE]" if chunk is None else json.dumps(chunk, ensure_ascii=False)
    return f"data: {text}\n\n"


async def _exhaust(events: AsyncGenerator[list[Event]]) -> bool:
    async with aclosing(events):
        async for _ in events:
            pass
    return True
