"""Which kernels a change altered: a fixed corpus, compiled by two revisions.

    python tools/replay.py --base main [--only mir.add] [--diff] [--check]

The corpus is every sample of every op, the graph of MiniLM and a small BERT, as HIR text, for
several CPUs. The revision ``--base`` is checked out beside, and each revision takes a snapshot in a
process of its own: the text and the LLVM IR of each kernel, and the schedule. A refactoring alters
nothing. Kernels are compared by what they are and not by name; without the native runtime, so that
a base need not be built. ``--check`` makes the exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FORMAT = 1
"""Snapshots of another format are not compared."""

TARGETS = {
    "cpu:x86-64-v4": "*.mlir",
    "cpu:x86-64-v3": "*-f32-*.mlir",
    "cpu:aarch64": "*-f32-*.mlir",
}
"""The CPUs, and the files of the corpus that are compiled for them."""


# -- the corpus ---------------------------------------------------------------------------------


def write_corpus(folder: Path, only: str) -> None:
    """Write the graphs whose names hold ``only`` as text, a file each."""
    from rlx.models.bert import BertConfig, bert_encoder
    from rlx.text import graph_text
    from rlx.types import bf16, f32, i32
    from support.samples import cases  # pyright: ignore[reportMissingImports]

    def write(name: str, graph: Any) -> None:
        if only in name:
            text = graph_text(graph, places=False)
            (folder / f"{name}.mlir").write_text(text, encoding="utf-8")

    for case in cases(f32, bf16, i32):
        node = case.node()
        graph = next((v.graph for v in node.present), None)
        if graph is not None:
            graph.set_outputs(list(node.results))
            write(str(case), graph)
    small = BertConfig(vocab=20, hidden=8, layers=2, heads=2, inner=12, positions=100)
    write("model-f32-bert-small", bert_encoder(small).bind({"batch": 2, "tokens": 7}))
    minilm = BertConfig(vocab=30522, hidden=384, layers=6, heads=12, inner=1536, positions=512)
    for batch, tokens in ((1, 16), (8, 128)):
        sizes = {"batch": batch, "tokens": tokens}
        write(f"model-f32-minilm-{batch}x{tokens}", bert_encoder(minilm).bind(sizes))


# -- a snapshot ---------------------------------------------------------------------------------


def take_snapshot(corpus: Path, out: Path) -> None:
    """Compile the corpus by the ``rlx`` of this process: texts by digest, and an index of them."""
    from rlx.dialects.context import SharedContext

    index: dict[str, Any] = {}
    store, contexts = _Store(out), SharedContext()
    for target, files in TARGETS.items():
        for path in sorted(corpus.glob(files)):
            entry = _entry(path.read_text("utf-8"), target, contexts.get(), store)
            index[f"{path.stem} {target}"] = entry
    (out / "index.json").write_text(json.dumps({"format": FORMAT, "graphs": index}))


class _Store:
    """The texts of a snapshot, each in a file of its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.llvm: dict[str, str] = {}

    def keep(self, text: str, suffix: str) -> str:
        digest = f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.{suffix}"
        path = self.folder / digest
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        return digest


def _entry(text: str, target_name: str, context: Any, store: _Store) -> dict[str, Any]:
    """The digests of a graph's schedule and kernels, or the error of compiling it."""
    from rlx.dialects.context import parse
    from rlx.errors import RlxError
    from rlx.lowering.compilation import Compilation
    from rlx.lowering.pipeline import planned
    from rlx.targets import find_target

    target = find_target(target_name)
    try:
        with context:
            schedule = planned(parse(text, context), Compilation(target))
        kernels = [_kernel(k, target, store) for k in schedule.kernels]
    except RlxError as e:
        return {"error": f"{type(e).__name__}: {e.message}", "kernels": []}
    return {"schedule": store.keep(_steps(schedule), "txt"), "kernels": kernels}


def _steps(schedule: Any) -> str:
    """What the runtime is given, a line a step, without places and names in the source."""
    parts = ("arena_bytes", "packed_bytes", "params", "inputs", "outputs")
    head = [f"{part} {getattr(schedule, part)}" for part in parts]
    constants = [
        f"constant {a.dtype}{list(a.shape)} {a.tobytes().hex()}" for a in schedule.constants
    ]
    steps = [*map(repr, schedule.prologue), "main", *map(repr, schedule.main)]
    return "\n".join([*head, *constants, *steps])


def _kernel(kernel: Any, target: Any, store: _Store) -> list[str]:
    """Family, config, and the digests of text and LLVM IR, all without the kernel's name."""
    from rlx.kernels.registry import emit_kernel

    text = emit_kernel(kernel.family, "kernel", kernel.config, target.kernels)
    digest = store.keep(text.text, "mlir")
    if digest not in store.llvm:
        llvm = target.emitter.emit([text], "llvm").decode()
        store.llvm[digest] = store.keep(llvm, "ll")
    return [kernel.family, repr(kernel.config), digest, store.llvm[digest]]


# -- the comparison -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A kernel of a snapshot: what it is for, and its code's digests."""

    family: str
    target: str
    config: str
    text: str
    llvm: str


@dataclass
class Difference:
    """What two snapshots do not share; each kernel with the graphs that have it."""

    changed: dict[tuple[Kernel, Kernel], set[str]]
    added: dict[Kernel, set[str]]
    gone: dict[Kernel, set[str]]
    schedules: list[str]
    errors: list[str]
    kernels: int

    @property
    def empty(self) -> bool:
        return not (self.changed or self.added or self.gone or self.schedules or self.errors)


def compare(base: dict[str, Any], now: dict[str, Any]) -> Difference:
    """The difference of two indexes. A kernel of the same code under another config is the same;
    one of the same config and other code is changed."""
    old, new = _kernels(base), _kernels(now)
    codes = [{(k.family, k.target, k.text, k.llvm) for k in found} for found in (old, new)]
    gone = {k: g for k, g in old.items() if (k.family, k.target, k.text, k.llvm) not in codes[1]}
    added = {k: g for k, g in new.items() if (k.family, k.target, k.text, k.llvm) not in codes[0]}
    by_config = {(k.family, k.target, k.config): k for k in gone}
    changed: dict[tuple[Kernel, Kernel], set[str]] = {}
    for k in list(added):
        before = by_config.get((k.family, k.target, k.config))
        if before in gone:
            changed[before, k] = gone.pop(before) | added.pop(k)
    both = sorted(base.keys() & now.keys())
    schedules = [g for g in both if base[g].get("schedule") != now[g].get("schedule")]
    errors = [
        f"{g}: {base[g].get('error', 'compiled')} -> {now[g].get('error', 'compiles')}"
        for g in both
        if base[g].get("error") != now[g].get("error")
    ]
    return Difference(changed, added, gone, schedules, errors, len(new))


def _kernels(index: dict[str, Any]) -> dict[Kernel, set[str]]:
    found: dict[Kernel, set[str]] = defaultdict(set)
    for graph, entry in index.items():
        name, target = graph.split(" ")
        for family, config, text, llvm in entry["kernels"]:
            found[Kernel(family, target, config, text, llvm)].add(name)
    return dict(found)


def report(d: Difference, base: Path, now: Path, diff: bool) -> Iterator[str]:
    """The lines that say what differs, the sums last."""
    for (before, after), graphs in sorted(d.changed.items(), key=lambda item: str(item[0])):
        what = "text" if before.text != after.text else "LLVM IR alone"
        yield f"changed  {after.family:12s} {after.target:14s} {what}, in {_listed(graphs)}"
        if diff:
            name = (lambda k: k.text) if before.text != after.text else (lambda k: k.llvm)
            old, new = (
                (p / name(k)).read_text("utf-8").splitlines()
                for p, k in ((base, before), (now, after))
            )
            yield from difflib.unified_diff(old, new, "base", "now", lineterm="", n=1)
    for word, kernels in (("added", d.added), ("gone", d.gone)):
        for k, graphs in sorted(kernels.items(), key=lambda item: str(item[0])):
            yield f"{word:8s} {k.family:12s} {k.target:14s} in {_listed(graphs)}"
    if d.schedules:
        yield f"schedule of {_listed(set(d.schedules), 8)}"
    yield from (f"error    {e}" for e in d.errors)
    yield (
        f"{len(d.changed)} of {d.kernels} kernels changed, {len(d.added)} added, "
        f"{len(d.gone)} gone; {len(d.schedules)} schedules and {len(d.errors)} errors changed"
    )


def _listed(names: set[str], most: int = 3) -> str:
    shown = sorted(names)[:most]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown) + more


# -- two revisions --------------------------------------------------------------------------------


def replay(base: str, only: str, folder: Path) -> tuple[Difference, Path, Path]:
    """Take both snapshots, side by side, and compare them."""
    corpus, old, new, tree = (folder / name for name in ("corpus", "base", "now", "tree"))
    for made in (corpus, old, new):
        made.mkdir()
    write_corpus(corpus, only)
    _git("worktree", "add", "--quiet", "--detach", str(tree), base)
    try:
        running = [_start(tree, corpus, old), _start(ROOT, corpus, new)]
        codes = [process.wait() for process in running]
    finally:
        _git("worktree", "remove", "--force", str(tree))
    if any(codes):
        raise SystemExit(f"replay: a snapshot failed (base {codes[0]}, now {codes[1]})")
    found = [json.loads((p / "index.json").read_text()) for p in (old, new)]
    if found[0]["format"] != found[1]["format"]:
        raise SystemExit("replay: the base takes snapshots of another format; choose a later base")
    return compare(found[0]["graphs"], found[1]["graphs"]), old, new


def _start(tree: Path, corpus: Path, out: Path) -> subprocess.Popen[bytes]:
    """A snapshot by a revision's own script; one from before there was any has this one."""
    own = tree / "tools" / "replay.py"
    script = own if own.exists() else Path(__file__)
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(script), "--snapshot", str(corpus), str(out)]
    return subprocess.Popen(command, env=env, cwd=tree)


def _git(*arguments: str) -> None:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"replay: git {arguments[0]}: {done.stderr.strip()}")


def main(argv: list[str] | None = None) -> int:
    """Compare this checkout with ``--base``; 1 if it differs and ``--check`` is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--base", default="main", help="the revision to compare with")
    add("--only", default="", help="the graphs whose names hold this")
    add("--diff", action="store_true", help="show how the text of kernels changed")
    add("--check", action="store_true", help="exit with 1 if anything differs")
    add("--snapshot", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.snapshot:
        take_snapshot(*args.snapshot)
        return 0
    sys.path[:0] = [str(ROOT), str(ROOT / "test")]
    with tempfile.TemporaryDirectory(prefix="rlx-replay-") as folder:
        found, old, new = replay(args.base, args.only, Path(folder))
        for line in report(found, old, new, args.diff):
            print(line)
    return int(args.check and not found.empty)


if __name__ == "__main__":
    sys.exit(main())
