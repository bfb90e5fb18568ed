"""Digests of bytes."""

from __future__ import annotations

from typing import Any

try:
    # hashlib gives out this very class, but loads OpenSSL first: 2 ms of every process.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["digest"]


def digest(*parts: bytes | Any, size: int = 16) -> str:
    """BLAKE2b (RFC 7693) of buffers, one after the other: ``size`` bytes, two digits each."""
    whole = blake2b(digest_size=size)
    for part in parts:
        whole.update(part)
    return whole.hexdigest()
