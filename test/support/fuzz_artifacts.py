"""Artifacts and entries of the compile cache, changed: what is read of them must be what was
written, or a refusal."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from rlx.compiler.driver import compile_graph
from rlx.runtime import container
from rlx.runtime.artifact import Artifact
from rlx.runtime.cache.entry import Damaged, Entry, pack, unpack
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.executable import Executable
from rlx.targets import find_target
from rlx.targets.cpu import make_target
from support.fuzzing import Target
from support.mutation import mutated_bytes
from support.random_graphs import random_case

__all__ = ["ARTIFACT", "ENTRY"]


class File(NamedTuple):
    """A changed file: its bytes, and those that it was made of, or None if its checksums were made
    to fit."""

    data: bytes
    whole: bytes | None


def _artifacts() -> list[bytes]:
    """The files of small graphs for a CPU and a GPU, each read once."""
    targets = [make_target(), find_target("opencl")]
    files = [
        bytes(compile_graph(random_case(n, 6).graph, targets[n % 4 == 3])[0]) for n in range(8)
    ]
    for data in files:
        _loaded(Artifact.from_bytes(data))
    return files


def _loaded(artifact: Artifact) -> None:
    """Take an artifact as far as it goes without a device."""
    if artifact.target == "cpu":
        Executable(artifact)


def _changed_artifact(files: list[bytes], r: random.Random) -> File:
    """Half of them are changed under checksums that fit; not in machine code, which is trusted
    under its own."""
    data = r.choice(files)
    if r.random() < 0.5:
        return File(mutated_bytes(data, r, range(256)), data)
    parts = {name: bytes(part) for name, part in container.parts_of(data).items()}
    name = r.choice([n for n in parts if not n.startswith("objects/")])
    parts[name] = mutated_bytes(parts[name], r)
    return File(b"".join(container.chunks(parts)), None)


def _attempt_artifact(file: File) -> None:
    artifact = Artifact.from_bytes(file.data)
    assert file.whole is None or file.data == file.whole, "a damaged artifact was taken"
    _loaded(artifact)


def _entries() -> list[tuple[Key, bytes]]:
    """Entries of the cache, with their keys."""
    made: list[tuple[Key, bytes]] = []
    for n, payload in enumerate((b"", b"object" * 40, *_artifacts()[:2])):
        key = Key(
            "graph" if n % 2 else "kernel", (Part("kernel", f"number {n}"), Part("mlir", "1"))
        )
        made.append((key, pack(key, Entry.of(key, payload, {"places": [n]}))))
    return made


def _changed_entry(entries: list[tuple[Key, bytes]], r: random.Random) -> tuple[Key, File]:
    key, data = r.choice(entries)
    return key, File(mutated_bytes(data, r, range(128)), data)


def _attempt_entry(given: tuple[Key, File]) -> None:
    key, file = given
    entry = unpack(file.data, key.kind, key.digest)
    assert file.data == file.whole, "a damaged entry was taken"
    assert entry.manifest["kind"] == key.kind


def _shown(given: Any) -> str:
    file = given if isinstance(given, File) else given[1]
    return file.data.hex()


ARTIFACT = Target(_artifacts, _changed_artifact, _attempt_artifact, _shown)
ENTRY = Target(_entries, _changed_entry, _attempt_entry, _shown, allowed=(Damaged,))
