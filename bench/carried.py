"""Checks and times on a GPU where nothing can compile: made here, carried there, and run.

    PYTHONPATH=test python -m bench.carried make FOLDER cuda:sm_90a
    PYTHONPATH=test python -m bench.carried run FOLDER

``make`` compiles artifacts: the samples of the ops, ``BATCH`` to a program, and programs of many
products by packed weights and of attention over pages. ``run`` needs RLX without its
compiler, and NumPy: it draws the operands, compares the samples with the interpreter, and times the
programs on arrays that lie on the device. Weights are many enough that no cache holds them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.errors import RlxError, UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.targets.gpu.drivers import shared_driver
from rlx.types import DTYPES, u8

Array = np.ndarray[Any, Any]

OPS = (
    "mir.dequantize_blocks", "mir.dequant_matmul", "mir.dequant_matmul_rows", "mir.quantize_rows",
    "mir.quantize", "mir.dequantize", "mir.paged_attention", "mir.gather", "mir.matmul",
    "mir.attention", "mir.softmax", "mir.rms_norm", "mir.reduce_sum",
)  # fmt: skip
"""The ops whose samples are checked first; the others follow while there is time."""

BATCH = 40
"""Samples of a program."""

SCHEMES = ("q4_0", "q8_0", "q4_k", "q6_k")
WEIGHTS = ((4096, 4096), (4096, 14336))
"""(K, N) of the weights of an 8B llama."""
ROWS = (1, 16, 512)
TYPES = ("f32", "f16")
CACHED = 256 << 20
"""Bytes of weights, or of keys and values, that no cache holds."""

SEQUENCES, HEADS, KEY_HEADS, DIM, PAGE = 8, 32, 8, 128, 16
CONTEXTS = (2048, 8192)

SECONDS = 0.2
"""Of a measurement."""


@dataclass(frozen=True)
class Timed:
    """A program of ``count`` equal computations. ``moved`` are the bytes that one of them must read
    and write, and ``flops`` its operations."""

    name: str
    file: str
    count: int
    moved: int
    flops: int
    scheme: str = ""
    tokens: int = 0


# -- programs ------------------------------------------------------------------------------


def block_products(scheme: str, m: int, k: int, n: int, dtype: str) -> tuple[rlx.Graph, Timed]:
    """Products of rows by as many weights as no cache holds."""
    row = scheme_named(scheme)
    assert isinstance(row, BlockScheme)
    size = k // row.block * row.bytes
    count = max(2, -(-CACHED // (n * size)))
    g = rlx.Graph("products")
    x = g.input("x", (m, k), dtype)
    weights = [g.param(f"w{i}", (n, size), u8) for i in range(count)]
    g.set_outputs([x.dequant_matmul(w, scheme=scheme) for w in weights])
    name = f"{scheme} {dtype} {m}x{k}x{n}"
    moved = n * size + m * (k + n) * (4 if dtype == "f32" else 2)
    return g, Timed(name, name.replace(" ", "_") + ".rlxa", count, moved, 2 * m * n * k, scheme)


def paged(tokens: int, dtype: str) -> tuple[rlx.Graph, Timed]:
    """A step of decoding of several sequences, each over the same number of tokens."""
    pages = tokens // PAGE
    slots, width = SEQUENCES * tokens, KEY_HEADS * DIM
    each = 2 * slots * width * (4 if dtype == "f32" else 2)
    count = max(2, -(-CACHED // each))
    g = rlx.Graph("paged")
    q = g.input("q", (SEQUENCES, HEADS * DIM))
    table = g.input("table", (SEQUENCES, pages), "i32")
    own, at = (g.input(n, (SEQUENCES,), "i32") for n in ("sequence", "positions"))
    caches = [[g.param(f"{c}{i}", (slots, width), dtype) for c in "kv"] for i in range(count)]
    g.set_outputs(
        [
            g.paged_attention(
                q, k, v, table, own, at, num_heads=HEADS, kv_heads=KEY_HEADS, page_size=PAGE,
                scale=DIM**-0.5,
            )
            for k, v in caches
        ]
    )  # fmt: skip
    name = f"paged {dtype} {SEQUENCES}x{tokens}"
    flops = 4 * SEQUENCES * tokens * HEADS * DIM
    return g, Timed(name, name.replace(" ", "_") + ".rlxa", count, each, flops, tokens=tokens)


def limits() -> Iterator[tuple[rlx.Graph, Timed]]:
    """What the device reaches: a copy, and a large product."""
    g = rlx.Graph("copy")
    g.set_outputs([-g.input("x", (CACHED // 4,))])
    yield g, Timed("-x, 256 MiB", "limit_copy.rlxa", 1, 2 * CACHED, 0)
    for dtype in ("f32", "bf16"):
        g, n = rlx.Graph("product"), 4096
        g.set_outputs([g.input("x", (n, n), dtype) @ g.input("y", (n, n), dtype)])
        size = 4 if dtype == "f32" else 2
        yield g, Timed(f"x @ y, {dtype} {n}", f"limit_{dtype}.rlxa", 1, 3 * n * n * size, 2 * n**3)


def programs() -> Iterator[tuple[rlx.Graph, Timed]]:
    """All that is timed."""
    yield from limits()
    for scheme in SCHEMES:
        for m in ROWS:
            for dtype in TYPES if m > 1 else TYPES[:1]:
                for k, n in WEIGHTS:
                    yield block_products(scheme, m, k, n, dtype)
    for tokens in CONTEXTS:
        yield paged(tokens, "f16")


# -- making --------------------------------------------------------------------------------


def make(folder: Path, target: str, *, samples: bool) -> None:
    """Compile everything for a target."""
    folder.mkdir(parents=True, exist_ok=True)
    timed: list[Timed] = []
    for graph, what in programs():
        rlx.compile_artifact(graph, target).save(folder / what.file)
        timed.append(what)
        print(what.name, flush=True)
    checks: list[dict[str, Any]] = []
    for number, batch in enumerate(batches(target.partition(":")[0]) if samples else ()):
        for part in compiled(batch, target):
            file = f"samples_{number:03}_{len(checks):03}.rlxa"
            part[1].save(folder / file)
            checks.append({"file": file, "cases": [str(c) for c in part[0]]})
            print(file, flush=True)
    index = {"target": target, "timed": [asdict(t) for t in timed], "checks": checks}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")


def _support(name: str) -> Any:
    """A module of the tests."""
    return importlib.import_module(f"support.{name}")


def batches(target: str) -> list[list[Any]]:
    """Samples of every op, by the programs that they share; those of ``OPS`` first."""
    sets = _support("conformance")
    found = [c for c in sets.SETS["covering"](target) if not sets.lacking(target, c)]
    first = [c for c in found if c.op.name in OPS]
    rest = [c for c in found if c.op.name not in OPS]
    return [part[i : i + BATCH] for part in (first, rest) for i in range(0, len(part), BATCH)]


def compiled(batch: list[Any], target: str) -> list[tuple[list[Any], rlx.Artifact]]:
    """A batch as one program; where one of it is refused, in halves without that one."""
    graph = _support("op_graphs").OpGraph.of_cases("cases", batch).graph
    try:
        return [(batch, rlx.compile_artifact(graph, target))]
    except UnsupportedError as e:
        if len(batch) == 1:
            print(f"{batch[0]} is refused: {e.message}", flush=True)
            return []
        half = len(batch) // 2
        return compiled(batch[:half], target) + compiled(batch[half:], target)


# -- running -------------------------------------------------------------------------------


def run(folder: Path, seconds: float) -> bool:
    """Check, then time, then check the rest while there is time; whether all was right."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    session = rlx.Session(index["target"].partition(":")[0])
    driver = shared_driver(session.device)
    print(f"{driver} runs what is made for {index['target']}", flush=True)
    start = time.monotonic()
    chosen = [
        c for c in index["checks"] if any(name.rsplit("-", 2)[0] in OPS for name in c["cases"])
    ]
    good = check(session, folder, chosen, start + seconds)
    timed = [Timed(**t) for t in index["timed"]]
    print("| program | one of them | GB/s | TFLOP/s | first run |\n|---|---|---|---|---|")
    for what in timed:
        try:
            print(measure(session, folder, what), flush=True)
        except RlxError as e:
            good = False
            print(f"| {what.name} | failed: {e.message} |", flush=True)
    rest = [c for c in index["checks"] if c not in chosen]
    return check(session, folder, rest, start + seconds) and good


def check(session: rlx.Session, folder: Path, checks: list[Any], until: float) -> bool:
    """Run samples against the interpreter, and say what is wrong."""
    near = _support("tolerances")
    known = {str(c): c for c in _support("samples").cases()}
    right, wrong, left = 0, dict[str, str](), 0
    for part in checks:
        if time.monotonic() > until:
            left += len(part["cases"])
            continue
        batch = [known[name] for name in part["cases"]]
        made = _support("op_graphs").OpGraph.of_cases("cases", batch)
        try:
            f = session.load(folder / part["file"])
            for seed, special in ((0, False), (1, True)):
                feeds = made.feeds(seed, special=special)
                expected = interpret(made.graph, feeds)
                for case, a, b in zip(made.owners, f.run(feeds), expected, strict=True):
                    try:
                        near.assert_close(a, b, near.tolerance_of(case.op.name, b))
                    except AssertionError as e:
                        said = f"seed {seed}, special={special}: {' '.join(str(e).split())[:300]}"
                        wrong.setdefault(str(case), said)
        except RlxError as e:
            wrong.update({name: f"{type(e).__name__}: {e.message[:300]}" for name in part["cases"]})
        right += sum(name not in wrong for name in part["cases"])
    for name, said in wrong.items():
        print(f"WRONG {name}: {said}", flush=True)
    print(f"samples: {right} agree, {len(wrong)} do not, {left} were left out", flush=True)
    return not wrong


def measure(session: rlx.Session, folder: Path, what: Timed) -> str:
    """A row of the table."""
    artifact = rlx.Artifact.load(folder / what.file)
    f, rng = session.load(artifact), np.random.default_rng(0)
    drawn: dict[tuple[Any, ...], Array] = {}
    for name, dtype, shape in artifact.params:
        if (dtype, shape) not in drawn:
            drawn[dtype, shape] = draw(rng, name, dtype, shape, what)
        f.set_param(name, drawn[dtype, shape])
    feeds = {
        name: session.to_device(draw(rng, name, dtype, shape, what))
        for name, dtype, shape in artifact.inputs
    }
    driver = shared_driver(session.device)
    begin = time.perf_counter()
    f.run_on_device(feeds)
    driver.sync()
    first = time.perf_counter() - begin
    found: list[float] = []
    for _ in range(5):
        rounds, begin = 0, time.perf_counter()
        while rounds < 3 or time.perf_counter() - begin < SECONDS / 5:
            f.run_on_device(feeds)
            rounds += 1
            if rounds % 8 == 0:
                driver.sync()
        driver.sync()
        found.append((time.perf_counter() - begin) / rounds / what.count)
    least = min(found)
    rate = f"{what.flops / least / 1e12:.2f}" if what.flops else ""
    return (
        f"| {what.name} x {what.count} | {least * 1e6:.2f} us | {what.moved / least / 1e9:.0f} |"
        f" {rate} | {first * 1e3:.0f} ms |"
    )


def draw(
    rng: np.random.Generator, name: str, dtype: str, shape: tuple[int, ...], what: Timed
) -> Array:
    """An operand by its name: a weight's blocks with small scales, pages in any order, each
    sequence at its last token, and normal numbers."""
    if name == "table":
        return rng.permutation(shape[0] * shape[1]).astype(np.int32).reshape(shape)
    if name == "sequence":
        return np.arange(shape[0], dtype=np.int32)
    if name == "positions":
        return np.full(shape, what.tokens - 1, np.int32)
    if dtype != "u8":
        return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype].numpy)
    row = scheme_named(what.scheme)
    assert isinstance(row, BlockScheme)
    blocks = rng.integers(0, 256, (shape[0], shape[1] // row.bytes, row.bytes), np.uint8)
    fields = blocks.view(row.fields)
    for scale in {"d", "dmin"} & {*(row.fields.names or ())}:
        fields[scale] = rng.standard_normal(fields[scale].shape).astype(np.float16) / 64
    return blocks.reshape(shape)


def main(argv: Sequence[str]) -> int:
    """The two commands of the module's docstring."""
    p = argparse.ArgumentParser("bench.carried")
    p.add_argument("what", choices=("make", "run"))
    p.add_argument("folder", type=Path)
    p.add_argument("target", nargs="?", default="cuda:sm_90a", help="what is compiled for")
    p.add_argument("--no-samples", action="store_true", help="programs to time alone")
    p.add_argument("--seconds", type=float, default=240, help="after which no sample is begun")
    args = p.parse_args(argv)
    if args.what == "make":
        make(args.folder, args.target, samples=not args.no_samples)
        return 0
    np.seterr(all="ignore")
    return int(not run(args.folder, args.seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
