"""ONNX models for the fuzzer: ONNX's own cases of op types, changed byte by byte."""

from __future__ import annotations

import random

import rlx
from support.fuzzing import Target
from support.mutation import mutated_bytes
from support.onnx_cases import all_cases

__all__ = ["ONNX"]

LARGEST = 6000
"""Bytes of a model that is changed: in a larger one most changes are to weights."""


def _models() -> list[bytes]:
    models = (c.model.SerializeToString() for c in all_cases() if not c.excluded())
    return [m for m in models if len(m) <= LARGEST]


def _changed(models: list[bytes], r: random.Random) -> bytes:
    return mutated_bytes(r.choice(models), r)


def _attempt(data: bytes) -> None:
    rlx.from_onnx(data)


ONNX = Target(_models, _changed, _attempt, bytes.hex)
