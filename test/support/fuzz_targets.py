"""What ``tools/fuzz.py`` fuzzes, by name."""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.dialects.context import make_context
from rlx.dialects.export import to_mlir
from rlx.errors import RlxError
from rlx.models.safetensors import SafeTensors
from rlx.ops import BUILDERS
from rlx.runtime import _native
from rlx.schedule.codec import main_words
from rlx.schedule.steps import For, If, Place, While
from support.fuzz_artifacts import ARTIFACT, ENTRY
from support.fuzz_gguf import GGUF
from support.fuzz_onnx import ONNX
from support.fuzz_signatures import SIGNATURES
from support.fuzz_splat import SPLAT
from support.fuzz_steps import STEPS
from support.fuzzing import Target
from support.mutation import mutated_bytes, mutated_text, mutated_value
from support.random_graphs import random_case
from support.text import transformed

__all__ = ["TARGETS", "objects"]

LIT = Path(__file__).resolve().parents[1] / "lit"


# -- IR text -----------------------------------------------------------------------------------


class Texts(NamedTuple):
    """Valid texts, each with what may be done to it, and the words that replace tokens."""

    valid: list[tuple[str, tuple[str, ...]]]
    words: list[str]


HIGH = ("", "--simplify", "--canonicalize,cse", "--hir-to-mir,legalize,fuse", "lir", "asm")
LOW = ("lir", "llvm", "asm", "--canonicalize,cse")
EXTRA_WORDS = (
    "tensor<2x3xf32>", "tensor<?xf32>", "tensor<*xf32>", "tensor<0xi1>", "memref<?xf32>", "f16",
    "i1", "i7", "ui64", "none", "index", "()", "[]", "{}", "array<i64>", "array<i64: -1>", "@main",
    "dense<>", '"\\00"', "loc(unknown)", "^bb0", "%0#1", "unit", "affine_map<(d0) -> (d0)>", "nan",
    "0x7FC0", "!llvm.ptr", "module", "private", "-9223372036854775808", "1e400", "true", "scf.if",
    "func.call", "lir.view", "mir.fused", "mir.yield",
)  # fmt: skip


def _texts() -> Texts:
    valid: list[tuple[str, tuple[str, ...]]] = []
    for seed in range(16):
        graph = random_case(seed, 5).graph
        p = rlx.inspect_pipeline(graph, "cpu:x86-64-v3")
        valid += [(p.hir, HIGH), (p.mir, HIGH), (p.fused, HIGH), (p.lir, LOW), (p.lir, LOW)]
    valid.append(((LIT / "Inputs" / "control.lir").read_text(), LOW))
    for path in LIT.rglob("*.mlir"):
        low = LOW if "LIR" in str(path) else HIGH
        valid += [(part, low) for part in path.read_text().split("// -----")]
    words = {w for text, _ in valid for w in text.split() if len(w) < 60}
    return Texts(valid, sorted(words | set(EXTRA_WORDS)))


def _changed_text(texts: Texts, r: random.Random) -> tuple[str, str]:
    text, ways = r.choice(texts.valid)
    return mutated_text(text, r, texts.words), r.choice(ways)


@cache
def _context(_: int) -> Any:
    return make_context()


def _attempt_text(given: tuple[str, str]) -> None:
    transformed(*given, shared=_context(os.getpid()))


# -- files of weights --------------------------------------------------------------------------


def _weights() -> tuple[dict[str, Any], bytes]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for i, (dt, shape) in enumerate(
        [("F32", [2, 3]), ("I64", [4]), ("BF16", [0, 5]), ("BOOL", [])]
    ):
        size = int(np.prod(shape)) * {"F32": 4, "I64": 8, "BF16": 2, "BOOL": 1}[dt]
        header[f"t{i}"] = {
            "dtype": dt,
            "shape": shape,
            "data_offsets": [len(data), len(data) + size],
        }
        data += bytes(size)
    return header, data


def _changed_weights(prepared: tuple[dict[str, Any], bytes], r: random.Random) -> bytes:
    header, data = prepared
    if r.random() < 0.6:
        for _ in range(r.choice((1, 1, 2, 4))):
            header = mutated_value(header, r)
    text = json.dumps(header, default=str).encode()
    raw = len(text).to_bytes(8, "little") + text + data
    return mutated_bytes(raw, r, range(8 + len(text))) if r.random() < 0.6 else raw


def _attempt_weights(raw: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        tensors = SafeTensors(file.name)
        for name in tensors:
            assert tensors[name].nbytes >= 0
            tensors[name].tobytes()


# -- the graph API -----------------------------------------------------------------------------


def _calls() -> list[str]:
    return sorted(BUILDERS)


def _random_calls(methods: list[str], r: random.Random) -> list[tuple[str, int]]:
    return [(r.choice(methods), r.randrange(2**32)) for _ in range(12)]


def _attempt_calls(calls: list[tuple[str, int]]) -> None:
    """A dozen calls on one graph, with whatever lies about for arguments; what a call gives lies
    about for the next. Each must give values or an error of ours."""
    g = rlx.Graph("fuzz")
    values: list[Any] = [
        g.input("x", [2, 3]), g.input("i", [4], "i64"), g.input("b", [2, 3], "bool"), 
        g.param("w", [3, 2]), g.input("n", ["n", 3]), g.input("empty", [0, 3]), g.input("s", []),
        g.input("h", [1, 2, 4, 8], "f16"),
    ]  # fmt: skip
    odd = [
        0, 1, -1, 2, 3, 7, 2**40, 2**63, -(2**70), 0.5, float("nan"), 1j, True, None, "n", "f16",
        "", "sum", "bhsd", b"\0", (), [], [0], [0, 1], (1, 0), [-1], [2, 3], [3, 2], ["n", 3],
        [2**62, 4], [1.5], [None], {}, {"a": 1}, np.ones((2, 3), np.float32), np.arange(3),
        np.zeros((0,)), np.array(["a"]), np.int8(3), slice(0, 1), object(),
    ]  # fmt: skip
    keywords = ("axis", "axes", "shape", "perm", "to", "num_heads", "layout", "mode", "keepdims")
    for method, seed in calls:
        r = random.Random(seed)
        args = [
            r.choice(values) if r.random() < 0.6 else r.choice(odd)
            for _ in range(r.randrange(1, 5))
        ]
        keys = r.sample(keywords, r.randrange(3))
        kwargs = {k: r.choice(odd) for k in keys if r.random() < 0.5}
        try:
            made = getattr(g, method)(*args, **kwargs)
        except RlxError as error:
            assert error.message and error.location is not None, f"{method}: {error!r}"
            continue
        values += [
            v
            for v in (made if isinstance(made, tuple | list) else [made])
            if isinstance(v, rlx.Value)
        ]
    g.set_outputs(values[-3:])
    str(to_mlir(g, _context(os.getpid())))


# -- schedules for the native runtime ----------------------------------------------------------


def _schedules() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The arguments of Weights and of Program for random graphs."""
    from rlx.compiler.driver import compile_graph
    from rlx.runtime.artifact import Variant
    from rlx.runtime.weights import Code, plain
    from rlx.targets.cpu import make_target

    out: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for seed in range(12):
        artifact, _ = compile_graph(random_case(seed, 6).graph, make_target())
        variant = artifact.variants[0]
        assert isinstance(variant, Variant)
        code = Code(variant)
        constants = [plain(c) for c in code.constants]
        main, flag = variant.main, Place(_native.BASE_ARENA, 0)
        moving = For(2, main[:1], replace(flag, moves=((0, 8),)), False)
        loops = For(2, (moving,), flag, False)
        nested = While(main[:1], flag, (If(flag, main[:1], ()), loops), 3, 0)
        own = constants[: variant.prologue_constants]
        kernels = {"objects": code.objects, "kernels": code.addresses}
        out.append((
            {**kernels, "params": artifact.params, "constants": own,
             "packed_bytes": variant.packed_bytes, "prologue": variant.prologue_words},
            {**kernels, "constants": constants, "inputs": artifact.inputs,
             "outputs": artifact.outputs, "arena_bytes": variant.arena_bytes + 64,
             "main": main_words([*main, nested])},
        ))  # fmt: skip
    return out


def _changed_schedule(schedules: Any, r: random.Random) -> Any:
    pair = list(r.choice(schedules))
    for _ in range(r.choice((1, 1, 2, 3))):
        which = r.randrange(2)
        fixed = ("objects", "constants", "kernels")
        key = r.choice([k for k in pair[which] if k not in fixed])
        value = pair[which][key]
        change = _changed_words if isinstance(value, bytes) else mutated_value
        pair[which] = {**pair[which], key: change(value, r)}
    return pair


def _changed_words(data: bytes, r: random.Random) -> bytes:
    """Words of steps with one changed, or bytes that are none."""
    if not data or len(data) % 8 or r.random() < 0.1:
        return mutated_bytes(data, r)
    words = list(struct.unpack(f"<{len(data) // 8}q", data))
    at = r.randrange(len(words))
    words[at] = r.choice((0, -1, 1, words[at] + 1, words[at] - 1, 2 * words[at], 2**40, 2**62))
    return struct.pack(f"<{len(words)}Q", *(w % 2**64 for w in words))


def _attempt_schedule(pair: Any) -> None:
    _native.Program(weights=_native.Weights(**pair[0]), **pair[1])


# -- objects -----------------------------------------------------------------------------------


def objects() -> list[bytes]:
    """The objects of random graphs, the smallest first."""
    from rlx.compiler.driver import compile_graph
    from rlx.targets.cpu import make_target

    found: set[bytes] = set()
    for seed in range(6):
        artifact, _ = compile_graph(random_case(seed, 6).graph, make_target())
        found.update(artifact.variants[0].objects.values())
    return sorted(found, key=len)


def _changed_object(objects: list[bytes], r: random.Random) -> bytes:
    data = r.choice(objects)
    start = int.from_bytes(data[40:48], "little")
    return mutated_bytes(data, r, [*range(64), *range(start, len(data))])


def _attempt_object(data: bytes) -> None:
    loaded = _native.Object(data)
    for name in loaded.symbols():
        loaded.symbol(name)


NATIVE = (_native.Error, TypeError, RlxError)
"""A TypeError is nanobind's: an argument of another type."""

TARGETS: dict[str, Target] = {
    "text": Target(_texts, _changed_text, _attempt_text, lambda given: f"{given[1]}\n{given[0]}"),
    "safetensors": Target(_weights, _changed_weights, _attempt_weights),
    "signatures": SIGNATURES,
    "calls": Target(_calls, _random_calls, _attempt_calls),
    "schedule": Target(_schedules, _changed_schedule, _attempt_schedule, allowed=NATIVE),
    "steps": STEPS,
    "object": Target(objects, _changed_object, _attempt_object, allowed=NATIVE),
    "artifact": ARTIFACT,
    "entry": ENTRY,
    "gguf": GGUF,
    "onnx": ONNX,
    "splat": SPLAT,
}
