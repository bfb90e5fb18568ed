"""Steps of language models of random weights: a token after few or many, prompts, and eight
sequences side by side.

The weights are those of GGUF files (``bench.llm_models``), and both engines read the same. A case
is one step, from tokens to logits. Of a decoded token ``moved`` is what must be read: the weights,
and keys and values of the tokens before. The models are written on first use into
``~/.cache/rlx-bench``, and the logits that others are compared with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array, Case, Run
from bench.llm_models import MIXES, SHAPES, Shape, token_bytes, write

CONTEXT = 2560
TOLERANCE = 0.12
"""Of logits, from those of rows that are not rounded: the engines round them to 8 bits, and
llama.cpp is up to 0.11 off on the Llama shape in Q4_K_M."""

Part = tuple[list[int], int, int]
"""Tokens of a sequence, how many stand before them, and its number."""
Step = Callable[[list[Part]], Array]
"""The logits of each part's last token."""


def kept(name: str, make: Callable[[Path], Any]) -> Path:
    """A file among those that are kept, which is made if it is not there."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = base / "rlx-bench" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_stem(f"half-{path.stem}")
        make(half)
        half.rename(path)
    return path


def model_file(shape: str, mix: str) -> Path:
    """The file of a model."""
    return kept(f"{shape}-{mix}.gguf", lambda path: write(path, SHAPES[shape], mix))


@lru_cache(maxsize=1)
def rlx_step(
    path: Path, threads: int, sequences: int, precision: str = "q8", warm: bool = True
) -> Step:
    """RLX's step; ``warm`` says that it is compiled for the sizes of a call before that, and not in
    the background meanwhile."""
    from rlx.llm.decoder import Decoder
    from rlx.llm.engine import StepRows
    from rlx.llm.pages import KvBlockTable

    room = CONTEXT // sequences
    decoder = Decoder.load(
        path, threads=threads, precision=precision, context=room, tokens=CONTEXT,
        sequences=sequences,
    )  # fmt: skip
    tables = [KvBlockTable(decoder.pool.tokens_per_page) for _ in range(sequences)]
    for table in tables:
        table.reserve(room, decoder.pool)

    known: set[tuple[int, int]] = set()

    def step(parts: list[Part]) -> Array:
        sizes = sum(len(ids) for ids, _, _ in parts), len(parts)
        if warm and sizes not in known:
            decoder.layers.prepare(dims={"rows": sizes[0]})
            decoder.head.prepare(dims={"wanted": sizes[1]})
            known.add(sizes)
        return decoder.step(StepRows.of([(ids, at, tables[s].pages) for ids, at, s in parts]))

    return step


@lru_cache(maxsize=1)
def llama_step(path: Path, threads: int, sequences: int) -> Step:
    """llama.cpp's step."""
    from bench.runtimes.llama_cpp import LlamaCpp

    model = LlamaCpp(path, threads, CONTEXT // sequences, sequences)

    def step(parts: list[Part]) -> Array:
        return model.step(
            [
                (token, at + i, s, i == len(ids) - 1)
                for ids, at, s in parts
                for i, token in enumerate(ids)
            ]
        )

    return step


def tokens(count: int, vocab: int) -> list[int]:
    """Any tokens."""
    return np.random.default_rng(count).integers(0, vocab, count).tolist()


def call(step: Step, vocab: int, rows: int, past: int, sequences: int) -> Run:
    """A step of ``rows`` tokens of each sequence, after ``past``."""
    for s in range(sequences):
        for at in range(0, past, 512):
            step([(tokens(past, vocab)[at : at + 512], at, s)])
    parts = [(tokens(rows, vocab), past, s) for s in range(sequences)]
    return lambda: step(parts)


def step_flops(s: Shape, rows: int, past: int, sequences: int) -> float:
    """Of the products of a step: by the layers' weights and over keys and values for each row, and
    by the head for each sequence."""
    layer = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads) + 3 * s.hidden * s.inner
    attention = 2 * s.heads * s.head_dim * (past + rows / 2)
    each = rows * s.layers * (layer + attention) + s.hidden * s.vocab
    return 2.0 * sequences * each


def cache_bytes(s: Shape, count: int) -> int:
    """Of keys and values of tokens, f16."""
    return 2 * 2 * s.layers * s.kv_heads * s.head_dim * count


def case(shape: str, mix: str, name: str, rows: int, past: int, sequences: int) -> Case:
    """A step of a model."""
    s = SHAPES[shape]

    def run(made: Callable[..., Step], case: Case, threads: int) -> Run:
        step = made(model_file(shape, mix), threads, sequences)
        return call(step, s.vocab, rows, past, sequences)

    def reference(case: Case) -> Array:
        model_file(shape, mix)  # before the processes of the engines look for it
        if not compared:
            return np.empty((0, s.vocab), np.float32)
        made = partial(rlx_step, precision="f32", warm=False)
        own = f"{shape}-{mix}-{rows}-{past}-{sequences}.npy"
        count = os.cpu_count() or 1
        return np.load(kept(own, lambda path: np.save(path, run(made, case, count)())))

    def checked(logits: Array) -> Array:
        return logits if compared else logits[:0]

    compared = rows * sequences + past <= 256  # rows of f32 take long
    own = {"rlx": partial(run, rlx_step), "llama_cpp": partial(run, llama_step)}
    return Case(
        f"{shape} {mix} {name}", _never, {}, tolerance=TOLERANCE,
        flops=step_flops(s, rows, past, sequences), dtype="q8",
        moved=token_bytes(s, mix) + cache_bytes(s, past * sequences) if rows == 1 else 0,
        own={**own, "reference": reference}, checked=checked, runtimes=tuple(own),
        quick=shape == "qwen3-0.6b" and mix == "q4_0",
    )  # fmt: skip


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("every library has a call of its own")


STEPS = {
    "decode after 16": (1, 16, 1), "decode after 2048": (1, 2048, 1), "prefill 128": (128, 0, 1),
    "prefill 512": (512, 0, 1), "decode 8 sequences": (1, 16, 8),
}  # fmt: skip
"""Rows of each sequence, tokens before them, and sequences."""


def cases() -> list[Case]:
    """Every shape by every mix and step."""
    return [
        case(shape, mix, name, *sizes)
        for shape in SHAPES
        for mix in MIXES
        for name, sizes in STEPS.items()
    ]
