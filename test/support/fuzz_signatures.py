"""Fuzzing of everything that users call: arguments of which up to three do not fit."""

from __future__ import annotations

import os
import random
from typing import Any

from support.fuzzing import Target
from support.right_arguments import folder, kept
from support.wrong_calls import Call, judge, random_call, surface

__all__ = ["SIGNATURES"]


def _prepare() -> Any:
    kept()  # dear, and the same for all
    os.chdir(folder())  # some arguments are paths
    return surface()


def _random(entries: Any, r: random.Random) -> Call:
    return random_call(entries, r)


def _attempt(call: Call) -> None:
    why = judge(call)
    assert why is None, why


SIGNATURES = Target(_prepare, _random, _attempt, lambda call: call.label)
