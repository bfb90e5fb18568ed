"""Requests to servers at Unix sockets: a connection each, by h11, which uvicorn needs too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import h11

from rlx.base.frozen import frozen

__all__ = ["Exchange", "Reply", "get"]

Headers = Sequence[tuple[bytes, bytes]]

SIZE = 1 << 16

_PARTS = (h11.InformationalResponse, h11.Response, h11.Data, h11.EndOfMessage)


@frozen
class Reply:
    """A reply that is there wholly."""

    status: int
    body: bytes


class Exchange:
    """One request and its reply. OSError or EOFError where the other end breaks it off."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._http = h11.Connection(h11.CLIENT)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_unix_connection(self.path)

    def close(self) -> None:
        """Cut the connection, if there is one."""
        if self._writer is not None:
            self._writer.close()

    async def ask(self, method: str, target: bytes, headers: Headers) -> None:
        """Send the head of the request. There is no other on this connection."""
        own = [*headers, (b"connection", b"close")]
        await self._send(h11.Request(method=method, target=target, headers=own))

    async def give(self, data: bytes) -> None:
        """Send a part of the request's body."""
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """Say that the request is whole."""
        await self._send(h11.EndOfMessage())

    async def head(self) -> tuple[int, Headers]:
        """The status and the headers of the reply."""
        while not isinstance(event := await self._next(), h11.Response):
            pass  # 1xx
        return event.status_code, [*event.headers]

    async def part(self) -> bytes | None:
        """The next part of the reply's body; None at its end."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _send(self, event: h11.Event) -> None:
        assert self._writer is not None
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def _next(self) -> h11.Event:
        assert self._reader is not None
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(SIZE))
        except h11.RemoteProtocolError:
            raise EOFError(f"{self.path} broke off its reply") from None
        assert isinstance(event, _PARTS), "a connection that ends before its reply is a broken one"
        return event


async def get(path: str, target: str, headers: Headers = ()) -> Reply:
    """What a server replies to a GET."""
    exchange = Exchange(path)
    try:
        await exchange.open()
        await exchange.ask("GET", target.encode(), [(b"host", b"localhost"), *headers])
        await exchange.end()
        status, _ = await exchange.head()
        parts: list[bytes] = []
        while (part := await exchange.part()) is not None:
            parts.append(part)
        return Reply(status, b"".join(parts))
    finally:
        exchange.close()
