"""Entries of the cache as files: a line that says what follows, a manifest, and the bytes kept.

    rlx-cache 1 KIND KEY MANIFEST_BYTES PAYLOAD_BYTES DIGEST

The digest is of all else in the file, so that a byte that is changed, missing or left over anywhere
makes the entry a damaged one.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any, BinaryIO

from rlx.base.cached import cached_property
from rlx.base.digest import digest
from rlx.base.frozen import frozen
from rlx.runtime.cache.key import Key, Part

__all__ = [
    "FORMAT",
    "HEAD_BYTES",
    "Damaged",
    "Entry",
    "head",
    "key_of",
    "pack",
    "pieces",
    "read",
    "read_manifest",
    "unpack",
]

FORMAT = 1
"""The number of the format of entries; each has a directory of its own."""

WORDS = 7
"""Words of the first line."""

HEAD_BYTES = 256
"""No first line is longer."""

MANIFEST_BYTES = 64 << 20
"""No manifest is longer when it is unpacked."""


class Damaged(Exception):
    """A file that is no whole entry, or that of another key."""


@frozen
class Entry:
    """What is kept under a key: the bytes, and the manifest as it lies in the file."""

    payload: bytes
    packed: bytes

    @staticmethod
    def of(key: Key, payload: bytes, note: Any = None) -> Entry:
        """A new entry, with a note for readers (JSON)."""
        manifest = {
            "kind": key.kind,
            "parts": [[p.name, p.text] for p in key.parts],
            "created": time.time(),
            "note": note,
        }
        return Entry(payload, zlib.compress(json.dumps(manifest).encode(), 1))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """``kind``, the key's ``parts``, when it was ``created``, and the writer's ``note``."""
        return read_manifest(self.packed)

    @property
    def note(self) -> Any:
        """What the writer added for readers; JSON."""
        return self.manifest["note"]


def pack(key: Key, entry: Entry) -> bytes:
    """The file of an entry."""
    return b"".join(pieces(key, entry))


def pieces(key: Key, entry: Entry) -> list[bytes]:
    """The file of an entry, piece by piece: a large payload is not copied."""
    packed, payload = entry.packed, entry.payload
    first = f"rlx-cache {FORMAT} {key.kind} {key.digest} {len(packed)} {len(payload)}"
    whole = digest(first.encode(), packed, payload, size=20)
    return [f"{first} {whole}\n".encode(), packed, payload]


def head(data: bytes) -> tuple[str, str, int, int]:
    """Kind and digest of the key in a file's first line, and where its manifest lies; Damaged if it
    is no such line."""
    end = data.find(b"\n", 0, HEAD_BYTES)
    words = data[: max(end, 0)].split(b" ")
    if len(words) != WORDS or words[:2] != [b"rlx-cache", b"%d" % FORMAT]:
        raise Damaged("it does not begin as an entry")
    if not words[4].isdigit():
        raise Damaged("its sizes are no numbers")
    kind, name = words[2].decode("ascii", "replace"), words[3].decode("ascii", "replace")
    return kind, name, end + 1, end + 1 + int(words[4])


def unpack(data: bytes, kind: str, name: str) -> Entry:
    """The entry of a kind and a key (its digest) in a file; Damaged says what is wrong with it."""
    *_, middle = head(data)
    return joined(data[:middle], data[middle:], kind, name)


def read(file: BinaryIO, kind: str, name: str) -> Entry:
    """As ``unpack``, of an open file."""
    *_, middle = head(file.read(HEAD_BYTES))
    file.seek(0)
    # The payload is read to where it stays, at once. A damaged line may say any number.
    size = os.fstat(file.fileno()).st_size
    front = file.read(min(middle, size))
    return joined(front, file.read(size - len(front)), kind, name)


def joined(front: bytes, payload: bytes, kind: str, name: str) -> Entry:
    """The entry of a first line and a manifest, which are ``front``, and a payload."""
    *found, begin, middle = head(front)
    if found != [kind, name]:
        raise Damaged("it is the entry of another key")
    *words, size, own = front[: begin - 1].split(b" ")
    total = len(front) + len(payload)
    if not size.isdigit() or middle + int(size) != total:
        raise Damaged(f"its first line does not fit its {total} bytes")
    packed = front[begin:]
    if digest(b" ".join([*words, size]), packed, payload, size=20).encode() != own:
        raise Damaged("its digest does not fit its contents")
    return Entry(payload, packed)


def read_manifest(packed: bytes) -> dict[str, Any]:
    """A manifest; Damaged if it is none."""
    try:
        unpacker = zlib.decompressobj()
        found = json.loads(unpacker.decompress(packed, MANIFEST_BYTES))
        key_of(found)
        return {**found, "created": float(found["created"]), "note": found["note"]}
    except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as e:
        raise Damaged(f"its manifest is malformed: {e}") from None


def key_of(manifest: dict[str, Any]) -> Key:
    """The key that a manifest lists."""
    parts = tuple(Part(str(name), str(text)) for name, text in manifest["parts"])
    return Key(str(manifest["kind"]), parts)
