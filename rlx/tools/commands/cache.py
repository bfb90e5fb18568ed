"""``rlx cache list|explain|verify|clear``: what the compile cache holds, and why it missed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from rlx.errors import NameError
from rlx.runtime.cache import shared
from rlx.runtime.cache.entry import Damaged, Entry, key_of
from rlx.runtime.cache.explain import nearest
from rlx.runtime.cache.key import Key
from rlx.runtime.cache.store import Found, Store, load, manifest_of

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
                "key", nargs="?", metavar="KEY", help="an entry's; by default the last miss"
            )


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
    return 0


def _explain(store: Store, args: argparse.Namespace) -> int:
    if args.key:
        _print_entry(load(_named(store, args.key).path))
        return 0
    miss = store.last_miss()
    if miss is None:
        print("nothing has been missed")
        return 0
    key, when = key_of(miss.manifest), miss.manifest["created"]
    print(f"the last miss, {_age(time.time() - when)} ago, was {key.kind} {key.digest[:SHOWN]}")
    near = nearest(store, key, before=when)
    if near is None:
        print(f"there was no other {key.kind} to compare it with")
        return 0
    print(
        f"the nearest entry, {_age(time.time() - near.created)} old, is {near.key.digest[:SHOWN]}"
    )
    print("\n".join(near.differences))
    return 0


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
    print(f"{store.clear()} files removed from {store.folder}")
    return 0


ACTIONS: dict[str, tuple[Callable[[Store, argparse.Namespace], int], str]] = {
    "list": (_list, "every entry: key, kind, when it was last used, size, and what it is"),
    "explain": (_explain, "the parts of a key, or why the last miss was one"),
    "verify": (_verify, "check the digest of every entry"),
    "clear": (_clear, "remove every entry"),
}


def _named(store: Store, prefix: str) -> Found:
    fitting = [f for f in store.entries() if f.path.name.startswith(prefix)]
    if len(fitting) != 1:
        raise NameError(
            f"{len(fitting)} entries have a key that begins with {prefix!r}; one should"
        )
    return fitting[0]


def _print_entry(entry: Entry) -> None:
    key = key_of(entry.manifest)
    print(f"{key.kind} {key.digest}, {_age(time.time() - entry.manifest['created'])} old")
    for part in key.parts:
        print(f"{part.name} ({part.digest[:SHOWN]}):")
        print("\n".join(f"  {line}" for line in part.text.split("\n")))


def _what(found: Found) -> str:
    """An entry in a few words."""
    try:
        key = key_of(manifest_of(found.path))
    except Damaged as e:
        return f"damaged: {e}"
    return _DESCRIBED.get(key.kind, lambda key: "")(key)


def _artifact(key: Key) -> str:
    parts = {p.name: p.text for p in key.parts}
    lines = parts["graph"].split("\n")
    nodes = sum(line.startswith("%") for line in lines)
    inputs = [line.removeprefix("input ") for line in lines if line.startswith("input ")]
    return f"{nodes} nodes of {', '.join(inputs)} with {parts['dims']} for {parts['features']}"


_DESCRIBED: dict[str, Callable[[Key], str]] = {
    "artifact": _artifact,
    "kernel": lambda key: key.parts[0].text.split("|")[0],
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
