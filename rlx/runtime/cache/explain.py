"""Why something was not in the cache: the entry whose key is nearest, and what differs."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.runtime.cache.entry import Damaged, key_of
from rlx.runtime.cache.key import Key
from rlx.runtime.cache.store import Store, manifest_of

__all__ = ["Near", "nearest"]


@frozen
class Near:
    """An entry, and how its key differs from one that was looked for, part by part."""

    key: Key
    created: float
    differences: list[str]

    def __str__(self) -> str:
        more = len(self.differences) - 1
        others = f" ({more} more part{'s' * (more > 1)} differ{'s' * (more == 1)})" * bool(more)
        first = " ".join(self.differences[0].split())
        return f"the nearest entry is {self.key.digest[:12]}: {first}{others}"


def nearest(store: Store, key: Key, before: float | None = None) -> Near | None:
    """The entry with the fewest other parts, of those the one used last; None if there is no entry
    of the kind. ``before`` leaves out what was created since."""
    best: Near | None = None
    for found in store.entries():
        if found.kind != key.kind or found.path.name == key.digest:
            continue
        try:
            manifest = manifest_of(found.path)
            other = key_of(manifest)
        except Damaged:
            continue
        if before is not None and manifest["created"] >= before:
            continue
        near = Near(other, manifest["created"], key.differences(other))
        if near.differences and (best is None or len(near.differences) < len(best.differences)):
            best = near
    return best
