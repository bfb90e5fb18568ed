"""ONNX models for the fuzzer: ONNX's own cases of op types and random models of few names, changed
byte by byte, or field by field of their messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from onnx import ModelProto

import rlx
from support.fuzzing import Target
from support.mutation import NUMBERS, mutated_bytes
from support.onnx_cases import all_cases
from support.random_onnx import random_model

__all__ = ["ONNX", "mutated_message"]

LARGEST = 6000
"""Bytes of a model that is changed: in a larger one most changes are to weights."""
TEXTS = ("", "x", "y", "a" * 300, "n*n", "Add", "If", "Loop", "é", "own")
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-45)


def _models() -> list[bytes]:
    cases = [c.model for c in all_cases() if not c.excluded()]
    cases += [random_model(seed).model for seed in range(200)]
    models = (m.SerializeToString() for m in cases)
    return [m for m in models if len(m) <= LARGEST]


def _changed(models: list[bytes], r: random.Random) -> bytes:
    data = r.choice(models)
    if r.random() < 0.3:
        return mutated_bytes(data, r)
    model = ModelProto.FromString(data)
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        mutated_message(model, r)
    return model.SerializeToString()


def _messages(m: Any) -> Iterator[Any]:
    """A message and all in it."""
    yield m
    for field, value in m.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else list(value):
                yield from _messages(inner)


def mutated_message(root: Any, r: random.Random) -> None:
    """Change one field somewhere in a message, in place: to a number, or a text that is elsewhere
    in it, or by leaving out, doubling and swapping elements."""
    messages = list(_messages(root))
    m = r.choice(messages)
    if not m.ListFields():
        return
    field, value = r.choice(m.ListFields())
    if hasattr(value, "ListFields"):
        same = [x for x in messages if type(x) is type(value)]
        m.ClearField(field.name) if r.random() < 0.3 else value.CopyFrom(_copy(r.choice(same)))
    elif isinstance(value, str | bytes | int | float):
        _set(m, field, _other(value, messages, r), None)
    else:
        at, other = r.randrange(len(value)), r.randrange(len(value))
        kind = r.random()
        if kind < 0.25:
            del value[at]
        elif kind < 0.5:
            value.append(value[other])
        elif field.message_type is None:
            _set(m, field, _other(value[at], messages, r), at)
        else:
            one, two = _copy(value[at]), _copy(value[other])
            value[at].CopyFrom(two)
            value[other].CopyFrom(one)


def _copy(m: Any) -> Any:
    out = type(m)()
    out.CopyFrom(m)
    return out


def _other(value: Any, messages: list[Any], r: random.Random) -> Any:
    """Another value of a field's type."""
    if isinstance(value, int):
        return r.choice((*NUMBERS, value + 1, value - 1, value * 2))
    if isinstance(value, float):
        return r.choice(FLOATS)
    m = r.choice(messages)
    texts = [v for _, v in m.ListFields() if isinstance(v, type(value))]
    names = [
        x for n in ("input", "output") for x in getattr(m, n, ()) if isinstance(x, type(value))
    ]
    plain = TEXTS if isinstance(value, str) else [t.encode() for t in TEXTS]
    return r.choice([*texts, *names, r.choice(plain)])


def _set(m: Any, field: Any, value: Any, at: int | None) -> None:
    """Set a field or an element of it, unless its type has no such value."""
    try:
        if at is None:
            setattr(m, field.name, value)
        else:
            getattr(m, field.name)[at] = value
    except (OverflowError, ValueError):
        return


def _attempt(data: bytes) -> None:
    rlx.from_onnx(data)


ONNX = Target(_models, _changed, _attempt, bytes.hex)
