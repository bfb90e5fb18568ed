"""Optimisers, schedules of learning rates, clipping and averaging, all of them functions of graphs.

    adam = rlx.optim.AdamW(lr=rlx.optim.WarmupCosine(3e-4, total=10_000, warmup=500))
    step = rlx.compile_training(graph, adam, clip=rlx.optim.ClipNorm(1.0))

By itself, ``adam.state(types)`` says what is kept, and ``adam.update(params, grads, state)`` gives
the values after an update. An optimiser of one's own is a subclass of ``Optimizer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.errors import no_attribute
from rlx.optim.adafactor import Adafactor
from rlx.optim.adam import Adam, AdamW
from rlx.optim.base import At, Optimizer, Slots
from rlx.optim.gradients import ClipNorm, ClipValue, all_finite, ema, global_norm
from rlx.optim.lamb import Lamb
from rlx.optim.lion import Lion
from rlx.optim.mars import Mars
from rlx.optim.muon import Muon
from rlx.optim.nadam import NAdamW, RAdam
from rlx.optim.schedules import Constant, Schedule, StepDecay, WarmupCosine, WarmupLinear
from rlx.optim.sgd import SGD
from rlx.optim.soap import Soap
from rlx.optim.sophia import Sophia

__all__ = [
    "SGD", "Adafactor", "Adam", "AdamW", "At", "ClipNorm", "ClipValue", "Constant", "Lamb", "Lion",
    "Mars", "Muon", "NAdamW", "Optimizer", "RAdam", "Schedule", "Slots", "Soap", "Sophia",
    "StepDecay", "WarmupCosine", "WarmupLinear", "all_finite", "ema", "global_norm",
]  # fmt: skip


if not TYPE_CHECKING:  # it would hide misspelt names from type checkers

    def __getattr__(name: str) -> object:
        raise no_attribute(__name__, name, __all__)
