"""One server before several replicas: each request goes to the one with the fewest."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from rlx.llm.server.access import Access
from rlx.llm.server.exchange import Exchange, Headers, Reply, get
from rlx.llm.server.fields import ApiError
from rlx.llm.server.replicas import Replica, Replicas

__all__ = ["Front"]

OF_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"expect",
     b"x-forwarded-for", b"x-forwarded-proto")
)  # fmt: skip
"""Headers that a request to a replica has its own of, or none."""

OF_SERVER = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"))
"""Headers of replies that this server has its own of."""

SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


class Front:
    """The server of a model's replicas as an ASGI application. ``access`` says who may ask.

    A client that goes away is cut off from its replica, which ends its answers. A request whose
    replica fails is answered so, and not asked again of another, which it might bring down too.
    """

    def __init__(self, replicas: Replicas, access: Access) -> None:
        self.replicas, self.access = replicas, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        assert scope["type"] == "http"
        request = Request(scope)
        own = {"/health": self.health, "/metrics": self.metrics}.get(request.url.path)
        try:
            self.access.check(request, free=own == self.health)
            if own is None or request.method != "GET":
                return await self._forward(scope, receive, send)
            response = await own(request)
        except ApiError as e:
            response = JSONResponse(e.body(), e.status)
        await response(scope, receive, send)

    async def health(self, request: Request) -> Response:
        """Whether any replica serves, and what each does."""
        told = [
            {"replica": r.number, "status": "ok" if r.serving else r.why, "pid": r.pid,
             "requests": r.active, "restarts": r.restarts}
            for r in self.replicas.replicas
        ]  # fmt: skip
        well = sum(r.serving for r in self.replicas.replicas)
        status = "ok" if well == len(told) else f"{well} of {len(told)} replicas serve"
        return JSONResponse({"status": status, "replicas": told}, 200 if well else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics of all replicas, each sample with the number of its replica."""
        key = request.headers.get("authorization", "").encode("latin-1")
        asked = [r for r in self.replicas.replicas if r.serving]
        found = await asyncio.gather(
            *(get(r.socket, "/metrics", [(b"authorization", key)]) for r in asked),
            return_exceptions=True,
        )
        texts = {
            str(r.number): reply.body.decode()
            for r, reply in zip(asked, found, strict=True)
            if isinstance(reply, Reply) and reply.status == 200
        }
        text = merged([*self._own_metrics()], texts)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _own_metrics(self) -> Iterable[str]:
        for name, kind, text, of in (
            ("rlx_replica_up", "gauge", "Whether a replica serves.", lambda r: int(r.serving)),
            ("rlx_replica_requests", "gauge", "Requests at a replica.", lambda r: r.active),
            ("rlx_replica_served_total", "counter", "Requests it was given.", lambda r: r.served),
            ("rlx_replica_restarts_total", "counter", "Its starts again.", lambda r: r.restarts),
        ):
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} {kind}"
            for r in self.replicas.replicas:
                yield f'{name}{{replica="{r.number}"}} {of(r)}'

    # -- requests --------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        tried: list[Replica] = []
        while (replica := self.replicas.least_loaded(tried)) is not None:
            replica.active += 1
            exchange = Exchange(replica.socket)
            try:
                try:
                    await exchange.open()
                except OSError:  # it ends just now, and was told nothing
                    tried.append(replica)
                    continue
                replica.served += 1
                return await _Passing(replica, exchange, scope, receive, send).run()
            finally:
                exchange.close()
                replica.active -= 1
        raise ApiError(
            "no replica of the server serves now; try again later", status=503,
            kind="server_error", code="unavailable",
        )  # fmt: skip


class _Passing:
    """A request on its way to a replica, and the reply on its way back."""

    def __init__(
        self, replica: Replica, exchange: Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.replica, self.exchange = replica, exchange
        self.scope, self.receive, self.send = scope, receive, send
        self.headers: Headers | None = None
        """The reply's, once they have been passed on."""

    async def run(self) -> None:
        """Pass on both, until the reply has ended or the client is gone."""
        there = asyncio.create_task(self._there())
        back = asyncio.create_task(self._back())
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if back.done():
                back.result()
        except (OSError, EOFError):
            await self._broken()
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)

    async def _there(self) -> None:
        """Pass on the request; ends when the client is gone."""
        client = self.scope.get("client")
        own = [h for h in self.scope["headers"] if h[0] not in OF_CONNECTION]
        if client is not None:
            own.append((b"x-forwarded-for", client[0].encode()))
        target, query = self.scope["raw_path"], self.scope["query_string"]
        try:
            await self.exchange.ask(self.scope["method"], target + b"?" * bool(query) + query, own)
            while (message := await self.receive())["type"] == "http.request":
                if message.get("body"):
                    await self.exchange.give(message["body"])
                if not message.get("more_body"):
                    await self.exchange.end()
                    break
        except ConnectionError:
            pass  # a reply may be there all the same, such as that the body is too large
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _back(self) -> None:
        """Pass on the reply."""
        status, headers = await self.exchange.head()
        kept = [h for h in headers if h[0].lower() not in OF_SERVER]
        await self.send({"type": "http.response.start", "status": status, "headers": kept})
        self.headers = kept
        while (part := await self.exchange.part()) is not None:
            await self._body(part, more=True)
        await self._body(b"", more=False)

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def _broken(self) -> None:
        """Tell the client that the replica has failed."""
        error = ApiError(
            await self.replica.reason(), status=503, kind="server_error", code="unavailable"
        )
        if self.headers is None:
            await JSONResponse(error.body(), error.status)(self.scope, self.receive, self.send)
            return
        kinds = [value for name, value in self.headers if name.lower() == b"content-type"]
        if kinds and kinds[0].startswith(b"text/event-stream"):
            await self._body(f"data: {json.dumps(error.body())}\n\n".encode(), more=True)
            await self._body(b"", more=False)
        # Else the reply stays short of its length, and the server cuts the connection.


def merged(own: Iterable[str], texts: Mapping[str, str]) -> str:
    """Metrics of replicas in one text: families together, as Prometheus reads them."""
    families: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for replica, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                about = families.setdefault(family, [])
                if line not in about:
                    about.append(line)
            elif found := SAMPLE.fullmatch(line):
                name, labels, value = found.groups()
                inner = f'replica="{replica}"{"," if labels else ""}{labels or ""}'
                samples.setdefault(family, []).append(f"{name}{{{inner}}} {value}")
    lines = [*own]
    for family, about in families.items():
        lines += about + samples.get(family, [])
    return "\n".join(lines) + "\n"
