"""``rlx cache list|explain|verify|clear``: what the compile cache holds, and why it missed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from rlx import knobs
from rlx.errors import ArtifactError, NameError
from rlx.runtime.cache import shared
from rlx.runtime.cache.entry import Damaged, key_of
from rlx.runtime.cache.explain import nearest
from rlx.runtime.cache.key import Key
from rlx.runtime.cache.packed import PackedFolder
from rlx.runtime.cache.store import Found, Store, load, manifest_of
from rlx.tools.graphs import check_sizes
from rlx.tools.options import add_dims

__all__ = ["add_arguments", "run"]

SHOWN = 12
"""Digits of a key that a list shows; any that tell entries apart name one."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    actions = p.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (_, text) in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        if name == "explain":
            action.add_argument(
                "what", nargs="?", metavar="GRAPH|KEY",
                help="a graph's text, as rlx.save writes it, or the key of an entry, or the first"
                " digits of one; by default the last miss",
            )  # fmt: skip
            add_dims(action)


def run(args: argparse.Namespace) -> int:
    """Do what the action says; 1 if verify finds damage."""
    store = shared.store()
    if store is None:
        print("the compile cache is off (RLX_CACHE)")
        return 0
    return ACTIONS[args.action][0](store, args)


def _list(store: Store, args: argparse.Namespace) -> int:
    entries = store.entries()
    for found in entries:
        used, size = _age(time.time() - found.used), _size(found.size)
        print(f"{found.path.name[:SHOWN]}  {found.kind:9s}{used:>9s}{size:>11s}  {_what(found)}")
    total = _size(sum(f.size for f in entries))
    print(f"{len(entries)} entries, {total} of {_size(store.limit)}, in {store.folder}")
    packed = _packed(store)
    if files := packed.files():
        total = _size(sum(size for _, size, _ in files))
        print(f"{len(files)} packed weights, {total} of {_size(packed.limit)}, in {packed.path}")
    return 0


def _packed(store: Store) -> PackedFolder:
    return PackedFolder(store.root, knobs.packed_size.get())


def _explain(store: Store, args: argparse.Namespace) -> int:
    if not args.what:
        return _explain_miss(store)
    if Path(args.what).exists():
        return _explain_graph(store, args.what, dict(args.dim))
    path = _named(store, args.what).path
    try:
        entry = load(path)
    except Damaged as e:
        raise ArtifactError(f"{path}: the entry is damaged: {e}") from None
    key = key_of(entry.manifest)
    print(f"{key.kind} {key.digest}, {_age(time.time() - entry.manifest['created'])} old")
    for part in key.parts:
        print(f"{part.name} ({part.digest[:SHOWN]}):")
        print("\n".join(f"  {line}" for line in part.text.split("\n")))
    return 0


def _explain_miss(store: Store) -> int:
    miss = store.last_miss()
    if miss is None:
        print("nothing has been missed")
        return 0
    key, when = key_of(miss.manifest), miss.manifest["created"]
    print(f"the last miss, {_age(time.time() - when)} ago, was {key.kind} {key.digest[:SHOWN]}")
    _compare(store, key, when)
    return 0


def _explain_graph(store: Store, path: str, dims: dict[str, int]) -> int:
    """Whether a graph, compiled for this machine with no options, would be found."""
    import rlx
    from rlx.lowering.compilation import Options
    from rlx.runtime.cache.artifacts import key_of_graph
    from rlx.targets.cpu.features import selected

    graph = rlx.load(path)
    bound = graph.bind(dims) if dims else graph
    check_sizes(path, bound.symbols)
    key = key_of_graph(bound, "cpu", selected().name, Options(), store)
    if isinstance(key, str):
        print(f"it is never kept: {key}")
    elif store.read(key) is not None:
        print(f"it is there: {key.kind} {key.digest[:SHOWN]}")
    else:
        print(f"it is not there: {store.why(key)}")
        _compare(store, key)
    return 0


def _compare(store: Store, key: Key, before: float | None = None) -> None:
    near = nearest(store, key, before)
    if near is None:
        print(f"there is no other {key.kind} to compare it with")
        return
    age = _age(time.time() - near.created)
    print(f"the nearest entry, {age} old, is {near.key.digest[:SHOWN]}")
    print("\n".join(near.differences))


def _verify(store: Store, args: argparse.Namespace) -> int:
    entries, damaged = store.entries(), 0
    for found in entries:
        try:
            load(found.path)
        except Damaged as e:
            damaged += 1
            print(f"{found.path}: {e}")
    end = "; what is damaged is made again when it is next needed" if damaged else ""
    print(f"{len(entries)} entries, {damaged} damaged{end}")
    return int(damaged > 0)


def _clear(store: Store, args: argparse.Namespace) -> int:
    gone = store.clear() + _packed(store).clear()
    left = len(store.entries())
    print(f"{gone} files removed from {store.folder}" + f"; {left} entries are left" * (left > 0))
    return int(left > 0 and not gone)  # beside some that were removed others may be new


ACTIONS: dict[str, tuple[Callable[[Store, argparse.Namespace], int], str]] = {
    "list": (_list, "every entry: key, kind, when it was last used, size, and what it is"),
    "explain": (_explain, "whether a graph is there or why not; an entry's parts; the last miss"),
    "verify": (_verify, "check the digest of every entry"),
    "clear": (_clear, "remove every entry"),
}


def _named(store: Store, prefix: str) -> Found:
    fitting = [f for f in store.entries() if f.path.name.startswith(prefix)]
    if len(fitting) != 1:
        found = f"{len(fitting)} entries have" if fitting else "no entry has"
        raise NameError(
            f"there is no file {prefix!r}, and {found} a key that begins so; rlx cache list shows"
            " the keys"
        )
    return fitting[0]


def _what(found: Found) -> str:
    """An entry in a few words."""
    try:
        key = key_of(manifest_of(found.path))
    except Damaged as e:
        return f"damaged: {e}"
    return _DESCRIBED.get(key.kind, lambda key: "")(key)


def _artifact(key: Key) -> str:
    parts = {p.name: p.text for p in key.parts}
    lines = parts.get("graph", "").split("\n")
    nodes = sum(line.startswith("%") for line in lines)
    inputs = [line.removeprefix("input ") for line in lines if line.startswith("input ")]
    dims, features = (parts.get(name, "?") for name in ("dims", "features"))
    return f"{nodes} nodes, inputs {', '.join(inputs) or 'none'}, dims {dims}, for {features}"


_DESCRIBED: dict[str, Callable[[Key], str]] = {
    "artifact": _artifact,
    "kernel": lambda key: "".join(p.text.split("|")[0] for p in key.parts[:1]),
    "sources": lambda key: "the digest of RLX's own files",
}


def _age(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def _size(n: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n / unit:.1f} {name}"
    return f"{n} B"
