"""Artifacts that hold params as their kernels read them."""

from __future__ import annotations

from dataclasses import replace

from rlx.runtime import _native
from rlx.runtime.artifact import Artifact, Variant
from rlx.runtime.weights import Code, Weights
from rlx.schedule.plan import FIRST_PARAM
from rlx.schedule.steps import memories_of
from rlx.types import DTYPES, TensorType

__all__ = ["packed"]

MOST = 1.25
"""What is packed takes at most so many times the bytes of the params that it is made of."""


def packed(artifact: Artifact) -> Artifact:
    """The artifact with what its prologue makes of its values, in place of those that nothing else
    reads.

    It stays as it is where the prologue does not run here, params have no value, variants differ in
    it, or it makes much more than it reads: then it runs wherever the artifact is loaded.
    """
    variants = [v for v in artifact.variants if isinstance(v, Variant) and _runs_here(v)]
    if artifact.without_value or len(variants) < len(artifact.variants):
        return artifact
    types = {n: TensorType(tuple(shape), DTYPES[dt]) for n, dt, shape in artifact.params}
    names = list(types)
    follows = {i for v in variants for _, params in v.prologue for i in params}
    reads = {n for v in variants for n in memories_of(v.main)}
    stands = {names[i] for i in follows if FIRST_PARAM + i not in reads}
    room = MOST * sum(int(types[names[i]].nbytes) for i in follows)
    if not follows or int(variants[0].packed_bytes) > room:
        return artifact
    code = [Code(v) for v in variants]
    made = [
        Weights.of(replace(artifact, variants=(v,)), c, ())
        for v, c in zip(variants, code, strict=True)
    ]
    if any(weights.prologue != made[0].prologue for weights in made):
        return artifact
    for name, value in artifact.values.items():
        made[0].set_param(name, value)
    memory = made[0].packed()
    return replace(
        artifact,
        variants=tuple(replace(v, packed=memory) for v in variants),
        values={name: a for name, a in artifact.values.items() if name not in stands},
        packed_params=frozenset(stands),
    )


def _runs_here(v: Variant) -> bool:
    """Whether its code runs on this machine, and would run alike wherever it does."""
    has = {*_native.cpu_features()}
    return v.machine == _native.machine() and has.issuperset(v.requires) and not v.functions
