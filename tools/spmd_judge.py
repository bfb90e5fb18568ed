"""Counts the collectives that XLA's SPMD partitioner puts into the annotated graphs of the tests.

    python tools/spmd_judge.py [--write]

It prints a row a graph, XLA's collectives beside ours, and with ``--write`` keeps XLA's in
``test/distributed/fixtures/spmd.json``, which a test holds ours against. Needs JAX. Bytes are those
that a rank sends if it goes round a ring, of XLA's as of ours; a reduction of several tensors in
one counts as one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("test", "")]

import jax  # noqa: E402 -- after its flags
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import rlx  # noqa: E402
from rlx.distributed.partition.choose import sent  # noqa: E402
from support.jax_graphs import function_of  # noqa: E402  # pyright: ignore[reportMissingImports]
from support.mesh_graphs import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    GRAPHS,
    Annotated,
)

FIXTURE = ROOT / "test" / "distributed" / "fixtures" / "spmd.json"

KINDS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
}  # fmt: skip
LINE = re.compile(
    r"= (\(?[^=]*?\)?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\((.*)$",
    re.MULTILINE,
)
SHAPE = re.compile(r"(pred|[subf]+\d+)\[([\d,]*)\]")
WIDTHS = {"pred": 1, "bf16": 2}


def text_of(case: Annotated) -> str:
    """The program of a rank that XLA makes."""
    sizes = case.mesh.shape
    count = prod(sizes.values())
    devices = np.array(jax.devices()[:count]).reshape(tuple(sizes.values()))
    mesh = Mesh(devices, tuple(sizes))

    def sharding(spec: rlx.P | None) -> NamedSharding | None:
        return None if spec is None else NamedSharding(mesh, PartitionSpec(*spec))

    given = {str(v.name): v for v in case.graph.inputs}
    ins = {n: sharding(case.specs.get(n)) for n in given}
    types = {n: jax.ShapeDtypeStruct(v.type.static_shape, v.dtype.numpy) for n, v in given.items()}
    jitted = jax.jit(
        function_of(case.graph), in_shardings=(ins,), out_shardings=[sharding(s) for s in case.out]
    )
    return str(jitted.lower(types).compile().as_text())


def groups_of(rest: str) -> int:
    """How many ranks a group has."""
    named = re.search(r"replica_groups=mesh\[([^]]*)\].*?\{([^}]*)\}", rest)
    if named:
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return prod(int(sizes[a]) for a in re.findall(r"'(\w+)'", named[2]))
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]", rest)
    if iota:
        return int(iota[2])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    if not listed:
        raise SystemExit(
            f"the ranks of a collective are written in a way that is not known: {rest}"
        )
    return len(listed[1].split(","))


def collectives(text: str) -> dict[str, Any]:
    """How many there are in a program, of how many tensors, and their bytes."""
    count = tensors = 0
    total = 0.0
    for shapes, kind, rest in LINE.findall(re.sub(r"/\*.*?\*/", "", text)):
        found = SHAPE.findall(shapes)
        ranks = groups_of(rest)
        size = sum(_bytes(t, dims) for t, dims in found)
        count, tensors = count + 1, tensors + (1 if kind == "all-to-all" else len(found))
        if kind == "collective-permute":
            total += size
        else:
            whole = size * ranks if kind == "reduce-scatter" else size
            total += sent(KINDS[kind], whole, ranks)
    return {"count": count, "tensors": tensors, "bytes": round(total)}


def _bytes(kind: str, dims: str) -> int:
    width = WIDTHS.get(kind) or int(re.sub(r"\D", "", kind)) // 8
    return width * prod(int(d) for d in dims.split(",") if d)


def main() -> None:
    parser = argparse.ArgumentParser(description="XLA's collectives beside ours")
    parser.add_argument("--write", action="store_true", help="keep XLA's counts for the test")
    parser.add_argument("--only", default="", help="graphs whose name has this in it")
    args = parser.parse_args()
    found: dict[str, Mapping[str, Any]] = {}
    for name, make in GRAPHS.items():
        if args.only not in name:
            continue
        case = make()
        theirs = collectives(text_of(case))
        report = rlx.shard(case.graph, case.mesh, case.specs, out=case.out).report
        assert report is not None
        worse = report.count > theirs["count"] or report.bytes > theirs["bytes"]
        print(
            f"{name:32} XLA {theirs['count']:3} of {theirs['tensors']:3} tensors"
            f" {theirs['bytes']:9} B   ours {report.count:3} {report.bytes:9} B"
            + ("  MORE" if worse else "")
        )
        found[name] = theirs
    if args.write:
        FIXTURE.parent.mkdir(exist_ok=True)
        FIXTURE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
