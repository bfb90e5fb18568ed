"""Whole models on the targets that take whole graphs, by what stands for their devices: MiniLM-L6,
and a decoder block of Llama with random weights.

    python tools/graph_models.py [--models minilm,llama]
        [--stands interpreter,xla,mlx,core_ml,core_ml_f16]
        [--tokens 16] [--generations v4,v5e,v5p,v6e,tpu7x]

It prints the largest difference from the reference interpreter, over the largest number of a
result (of core_ml_f16 each op rounds to f16, as Core ML's rules for NumPy do), and for each
generation of TPUs what libtpu's compiler makes of the model. A stand or a model whose package is
not installed is named and left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rlx
from rlx.compiler.driver import compile_program
from rlx.targets import find_target
from rlx.targets.tpu.ahead import compiled

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from support.whole import STANDS
from support.whole_models import MODELS, error_of

ALL = {**STANDS, "core_ml_f16": replace(STANDS["core_ml"], target="ane:iOS17")}

GENERATIONS = ("v4", "v5e", "v5p", "v6e", "tpu7x")


def executable(graph: rlx.Graph, generation: str) -> str:
    """What an executable for a generation takes, in words."""
    target = find_target(f"tpu:{generation}")
    program, _ = compile_program(graph, target)
    start = time.perf_counter()
    made = compiled(program.kernels[0].code, target.features)
    seconds = time.perf_counter() - start
    return f"{len(made.executable)} bytes in {seconds:.1f} s, {made.report()}"


def main() -> None:
    """Print a line for each model and stand."""
    p = argparse.ArgumentParser(description="Run whole models.", epilog=__doc__)
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--stands", default=",".join(ALL))
    p.add_argument("--tokens", type=int, default=16)
    p.add_argument("--generations", default=",".join(GENERATIONS))
    args = p.parse_args()
    for name in args.models.split(","):
        made: Any = MODELS[name](args.tokens)
        if made is None:
            print(f"{name}: its package is not installed")
            continue
        graph, feeds = made
        for stand in filter(None, args.stands.split(",")):
            if missing := ALL[stand].missing():
                print(f"{name} by {stand}: {missing}")
                continue
            start = time.perf_counter()
            error = error_of(graph, feeds, ALL[stand])
            seconds = time.perf_counter() - start
            print(f"{name} by {stand}: error {error:.2e}, {seconds:.1f} s", flush=True)
        for generation in filter(None, args.generations.split(",")):
            if find_spec("libtpu") is None:
                print(f"{name} for TPUs: the package libtpu is not installed")
                break
            print(f"{name} for {generation}: {executable(graph, generation)}", flush=True)


if __name__ == "__main__":
    main()
