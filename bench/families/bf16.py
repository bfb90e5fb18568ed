"""MiniLM-L6-v2 and BERT-base multiplied in bf16: f32 weights, which each library rounds.

RLX keeps the sums of products and all between them in f32. torch has everything in bf16, OpenVINO
what it chooses.
"""

from __future__ import annotations

from dataclasses import replace

from bench.case import Case
from bench.families import bert, minilm

LIBRARIES = ("rlx", "torch", "openvino")
"""Those that multiply in bf16 on a CPU."""
TOLERANCE = 6e-2


def in_bf16(case: Case) -> Case:
    """A case in bf16."""
    return replace(case, precision="bf16", tolerance=TOLERANCE, runtimes=LIBRARIES, dtype="bf16")


def cases() -> list[Case]:
    """Short and long texts, alone and by eight."""
    shapes = ((1, 16), (1, 128), (8, 128))
    found = [replace(minilm.case(*s), name=f"minilm {s[0]}x{s[1]}", quick=True) for s in shapes]
    found += [replace(bert.encoder(n), name=f"bert 1x{n}") for n in (32, 128, 384)]
    return [in_bf16(case) for case in found]
