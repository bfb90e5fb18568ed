"""Who may ask a server."""

from __future__ import annotations

import hmac
from collections.abc import Collection

from starlette.requests import Request

from rlx.llm.server.fields import ApiError

__all__ = ["Access"]


class Access:
    """Whoever asks needs ``api_key``, if there is one, and a Host header of ``hosts``, if they are
    given."""

    def __init__(self, api_key: str | None, hosts: Collection[str] | None) -> None:
        self.hosts = hosts
        self.key = None if api_key is None else f"Bearer {api_key}".encode()

    def check(self, request: Request, *, free: bool = False) -> None:
        """ApiError for a request that may not be made. One that is ``free`` needs no key."""
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self.hosts is not None and name not in self.hosts:
            raise ApiError(f"this server is not {name!r}", status=421)
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes that came
        if self.key is not None and not free and not hmac.compare_digest(given, self.key):
            raise ApiError("the API key is missing or wrong", status=401, code="invalid_api_key")
