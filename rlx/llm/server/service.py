"""What servers of all kinds of models have: their errors as the API has them, limits, and the
routes that say what is served."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive

from rlx.errors import GraphError, ModelError, UnsupportedError
from rlx.llm.arguments import ContextError, RoomError
from rlx.llm.server.access import Access
from rlx.llm.server.fields import ApiError
from rlx.llm.server.metrics import Metrics

__all__ = ["Service", "api_error", "unless_gone"]

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """A server of a model called ``model``. Whoever asks needs ``api_key``, if there is one, and a
    Host header of ``hosts``, if they are given. At most ``max_requests`` are served at a time, of
    ``max_body`` bytes."""

    app: Starlette
    longest: int
    """The most tokens of a request."""

    def __init__(
        self,
        model: str,
        api_key: str | None,
        hosts: Collection[str] | None,
        max_requests: int,
        max_body: int,
    ) -> None:
        self.model, self.access = model, Access(api_key, hosts)
        self.max_requests, self.max_body = max_requests, max_body
        self.metrics, self.active, self.started = Metrics(), 0, int(time.time())

    @property
    def names(self) -> tuple[str, ...]:
        """What may be asked for, the model first."""
        return (self.model,)

    @property
    def why_not(self) -> str | None:
        """Why it does not serve; None if it does."""
        return None

    def told(self) -> str:
        """What it has done, for Prometheus."""
        return self.metrics.text(None)

    def serve(self, posts: Mapping[str, Handler], lifespan: Any) -> None:
        """Make the application, with handlers of what is posted by their paths."""

        def route(path: str, handler: Handler, method: str = "GET", *, free: bool = False) -> Route:
            return Route(path, self.guarded(handler, free=free), methods=[method])

        self.app = Starlette(
            routes=[
                route("/health", self.health, free=True),
                route("/metrics", self.told_metrics),
                route("/v1/models", self.models),
                route("/v1/models/{model:path}", self.one_model),
                *(route(path, handler, "POST") for path, handler in posts.items()),
            ],
            exception_handlers={HTTPException: _no_such_route},
            lifespan=lifespan,
        )
        self.app.state.server = self

    def guarded(self, handler: Handler, *, free: bool) -> Handler:
        """A handler with its errors as the API has them."""

        async def guarded(request: Request) -> Response:
            try:
                self.access.check(request, free=free)
                response = await handler(request)
            except Exception as e:
                response = _error(api_error(e))
            path = request.scope["route"].path
            self.metrics.requests[path, response.status_code] += 1
            return response

        return guarded

    async def body(self, request: Request) -> tuple[Any, int]:
        """The JSON of a request, of a size that is allowed, and its bytes."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "application/json":
            raise ApiError(f"the content-type is application/json, found {kind!r}", status=415)
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > self.max_body:
                raise ApiError(f"a body has {self.max_body} bytes at most", status=413)
        try:
            return json.loads(data), len(data)
        except (ValueError, RecursionError) as e:
            raise ApiError(f"the body is no JSON: {e}") from None

    @contextmanager
    def admitted(self) -> Generator[None]:
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

    # -- routes ----------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Whether it serves."""
        why = self.why_not
        return JSONResponse({"status": why or "ok"}, 200 if why is None else 503)

    async def told_metrics(self, request: Request) -> Response:
        """What it has done."""
        return PlainTextResponse(self.told(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """All that may be asked for."""
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self.names]})

    async def one_model(self, request: Request) -> Response:
        """A model by its name."""
        asked = request.path_params["model"]
        if asked not in self.names:
            raise ApiError(f"there is no model {asked!r}", status=404, code="model_not_found")
        return JSONResponse(self._model(asked))

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name, "object": "model", "created": self.started, "owned_by": "rlx",
            "max_model_len": self.longest, "parent": None if name == self.model else self.model,
        }  # fmt: skip


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T | None:
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


def api_error(e: Exception) -> ApiError:
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
    # Names of fields may have lone surrogates, which are no UTF-8.
    return Response(json.dumps(e.body()), e.status, media_type="application/json")


async def _no_such_route(request: Request, e: Exception) -> Response:
    """What is asked for at no route, or by another method."""
    assert isinstance(e, HTTPException)
    found = f"{request.method} {request.url.path}"
    return _error(ApiError(f"there is no {found}: {e.detail}", status=e.status_code))
