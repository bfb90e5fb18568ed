"""The routes of the server, and what a client that goes away ends."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from itertools import takewhile
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rlx.errors import GraphError, ModelError, UnsupportedError
from rlx.llm.arguments import ContextError, RoomError
from rlx.llm.model import LLM
from rlx.llm.sampling import Drawn
from rlx.llm.server import requests
from rlx.llm.server.access import Access
from rlx.llm.server.fields import ApiError
from rlx.llm.server.metrics import Metrics
from rlx.llm.server.replies import Replies, embeddings
from rlx.llm.server.requests import Asked
from rlx.llm.server.worker import Event, Job, Worker

__all__ = ["make_app"]

SHORT = 8192
"""Bytes of a body whose prompt is tokens in about a millisecond."""
LIMITS = ("response_format", "grammar", "regex")
"""What may take longer to read than a prompt."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


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


class _Server:
    def __init__(
        self,
        llm: LLM,
        model: str,
        api_key: str | None,
        hosts: Collection[str] | None,
        max_requests: int,
        max_body: int,
    ) -> None:
        self.llm, self.model, self.access = llm, model, Access(api_key, hosts)
        self.max_requests, self.max_body = max_requests, max_body
        self.metrics, self.active, self.started = Metrics(), 0, int(time.time())
        self.worker = Worker(llm, self.metrics)

        def route(path: str, handler: Handler, method: str = "GET", *, free: bool = False) -> Route:
            return Route(path, self._guarded(handler, free=free), methods=[method])

        self.app = Starlette(
            routes=[
                route("/health", self.health, free=True),
                route("/metrics", self.told_metrics),
                route("/v1/models", self.models),
                route("/v1/models/{model:path}", self.one_model),
                route("/v1/completions", self.completions, "POST"),
                route("/v1/chat/completions", self.chat, "POST"),
                route("/v1/embeddings", self.embeddings, "POST"),
            ],
            exception_handlers={HTTPException: _no_such_route},
            lifespan=self._lifespan,
        )
        self.app.state.server = self

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)

    # -- requests --------------------------------------------------------------------------

    def _guarded(self, handler: Handler, *, free: bool) -> Handler:
        """A handler with its errors as the API has them."""

        async def guarded(request: Request) -> Response:
            try:
                self.access.check(request, free=free)
                response = await handler(request)
            except Exception as e:
                response = _error(_api_error(e))
            path = request.scope["route"].path
            self.metrics.requests[path, response.status_code] += 1
            return response

        return guarded

    async def _body(self, request: Request) -> tuple[Any, int]:
        """The JSON of a request, of a size that is allowed, and its bytes."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json":
            raise ApiError(f"the content-type is application/json, found {kind!r}", status=415)
        parts: list[bytes] = []
        async for part in request.stream():
            parts.append(part)
            if sum(map(len, parts)) > self.max_body:
                raise ApiError(f"a body has {self.max_body} bytes at most", status=413)
        data = b"".join(parts)
        try:
            return json.loads(data), len(data)
        except (ValueError, RecursionError) as e:
            raise ApiError(f"the body is no JSON: {e}") from None

    # -- routes ----------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Whether it serves."""
        if self.worker.alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "nothing draws answers"}, 503)

    async def told_metrics(self, request: Request) -> Response:
        """What it has done, for Prometheus."""
        return PlainTextResponse(
            self.metrics.text(self.llm.batch), media_type="text/plain; version=0.0.4"
        )

    async def models(self, request: Request) -> Response:
        """The model, and its adapters, which are asked for as models."""
        names = (self.model, *self.llm.decoder.adapters)
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def one_model(self, request: Request) -> Response:
        """A model by its name."""
        asked = request.path_params["model"]
        if asked not in (self.model, *self.llm.decoder.adapters):
            raise ApiError(f"there is no model {asked!r}", status=404, code="model_not_found")
        return JSONResponse(self._model(asked))

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name, "object": "model", "created": self.started, "owned_by": "rlx",
            "max_model_len": self.llm.context, "parent": None if name == self.model else self.model,
        }  # fmt: skip

    async def completions(self, request: Request) -> Response:
        """Texts that go on."""
        return await self._answered(request, requests.completion, chat=False)

    async def chat(self, request: Request) -> Response:
        """Answers in a conversation."""
        return await self._answered(request, requests.chat, chat=True)

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        body, _ = await self._body(request)
        with self._admitted():
            texts, packed, adapter = await asyncio.to_thread(
                requests.embedding, self.llm, body, self.model
            )
            vectors = await _unless_gone(request.receive, self._vectors(texts, adapter))
        if vectors is None:
            self.metrics.cancelled += 1
            return Response(status_code=499)
        count = sum(map(len, texts))
        return JSONResponse(embeddings(vectors, adapter or self.model, count, packed=packed))

    async def _vectors(self, texts: Sequence[Sequence[int]], adapter: str | None) -> list[Any]:
        """The vectors of texts, each between two steps."""
        return [
            await self.worker.call(lambda ids=list(ids): self.llm.embed([ids], adapter=adapter)[0])
            for ids in texts
        ]

    @contextmanager
    def _admitted(self) -> Generator[None]:
        """One of the requests that are served at a time; ApiError if there are enough."""
        if self.active >= self.max_requests:
            raise ApiError(
                f"{self.active} requests are being served; try again later", status=429,
                kind="rate_limit_error", code="rate_limit_exceeded",
            )  # fmt: skip
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    # -- answers ---------------------------------------------------------------------------

    async def _answered(
        self, request: Request, read: Callable[[LLM, Any, str], Asked], *, chat: bool
    ) -> Response:
        body, size = await self._body(request)
        with self._admitted():
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
            if await _unless_gone(request.receive, _exhaust(events)) is None:
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
            yield [_api_error(e).body()]

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
            await _unless_gone(receive, write())
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


async def _unless_gone(receive: Receive, work: Awaitable[T]) -> T | None:
    """The result of work, which is cancelled if the client goes away: then None."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, watch):
            if not one.done():
                one.cancel()
                with suppress(asyncio.CancelledError):
                    await one


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _api_error(e: Exception) -> ApiError:
    """What the API says of an error."""
    if isinstance(e, ApiError):
        return e
    if isinstance(e, RoomError):
        return ApiError(e.message, status=503, kind="server_error", code="overloaded")
    if isinstance(e, GraphError | ModelError | UnsupportedError):
        code = "context_length_exceeded" if isinstance(e, ContextError) else None
        return ApiError(e.message, code=code)
    traceback.print_exception(e)
    return ApiError("the server failed", status=500, kind="server_error")


def _error(e: ApiError) -> Response:
    return JSONResponse(e.body(), e.status)


async def _no_such_route(request: Request, e: Exception) -> Response:
    """What is asked for at no route, or by another method."""
    assert isinstance(e, HTTPException)
    found = f"{request.method} {request.url.path}"
    return _error(ApiError(f"there is no {found}: {e.detail}", status=e.status_code))
