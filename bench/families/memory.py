"""Peak memory of MiniLM against what no process can do without.

The base is a process that imports NumPy, the MLIR bindings and LLVM, and reads the weights' file
once. The other loads the tokenizer, encodes a text, and embeds random tokens at 1x16, 1x128 and
8x128, compiling on the way. The rows are the largest resident sets, that of the base 1.3 times: the
goal is at least 1 against it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.case import Case
from bench.families import find_case
from bench.families.minilm import graph, model_dir
from bench.measure import OURS, ROOT, Failure, Options, Row, environment
from bench.worker import peak_mib

SHAPES = ((1, 16), (1, 128), (8, 128))
"""Batch and tokens."""


def load_base(model: Path) -> None:
    """The libraries and the weights, with no work done."""
    import llvmlite.binding as llvm
    import numpy as np

    from rlx.dialects.context import make_context
    from rlx.models import SafeTensors

    make_context()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for a in SafeTensors(model / "model.safetensors").values():
        a.reshape(-1).view(np.uint8)[::512].max(initial=0)


def embed(model: Path) -> None:
    """A text, and each shape twice: the first call compiles it."""
    import numpy as np

    from rlx.models import Embed

    encoder = Embed.from_dir(model)
    encoder.encode(["A text, for which the tokenizer is loaded."])
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        ids = rng.integers(1000, 20_000, shape)
        for _ in range(2):
            encoder.encode_ids(ids, np.ones_like(ids))


def loop_growth(model: Path) -> float:
    """MiB by which the peak is higher after a ``while_loop`` of a million rounds than after one of
    a thousand."""
    import numpy as np

    import rlx

    g = rlx.Graph("smooth")
    x, rounds = g.input("x", [256], "f32"), g.input("rounds", [], "i64")
    step = lambda i, v: (i + 1, (v * 1.5).tanh())  # noqa: E731 -- as one writes it
    g.set_outputs(rlx.while_loop(lambda i, v: i < rounds, step, (g.constant(0), x))[1])
    f, start = rlx.Session("cpu").compile(g), np.full(256, 0.5, np.float32)
    peaks: list[float] = []
    for n in (1_000, 1_000_000):
        f.run({"x": start, "rounds": np.int64(n)})
        peaks.append(peak_mib())
    return peaks[1] - peaks[0]


WORK = {"base": load_base, "minilm": embed, "loop": loop_growth}


def peak(work: str, model: Path) -> float:
    """MiB that a fresh process says after its work: mostly its peak."""
    command = [sys.executable, "-m", "bench.families.memory", work, str(model)]
    # What the compile cache has would spare MiniLM the compiler.
    env = environment(RLX_CACHE="off")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=ROOT)
    return float(done.stdout)


def rows(options: Options) -> Iterator[Row | Failure]:
    """Both processes, and the arena of MiniLM's largest shape."""
    for who, work, times in (("1.3 x base", "base", 1.3), (OURS, "minilm", 1)):
        mib = times * peak(work, Path(model_dir()))
        yield Row("memory", "MiniLM, largest resident set", 1, who, [mib], mib, "MiB")
    grown = peak("loop", Path(model_dir()))
    label = "growth by a loop of a million rounds after a thousand"
    yield Row("memory", label, 1, OURS, [grown], grown, "MiB")
    for name in ("1x128", "8x128"):
        arena = arena_bytes(find_case("minilm", name)) / 2**20
        yield Row("memory", f"MiniLM {name}, arena", 1, OURS, [arena], arena, "MiB")


def arena_bytes(case: Case) -> int:
    """The memory that a call of a case checks out."""
    from rlx import compile_artifact

    return compile_artifact(graph(case)).variants[0].arena_bytes


if __name__ == "__main__":
    found = WORK[sys.argv[1]](Path(sys.argv[2]))
    print(peak_mib() if found is None else found)
