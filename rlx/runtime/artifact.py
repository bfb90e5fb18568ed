"""What a compile gives: a manifest and the objects of its kernels. Needs numpy and no compiler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["FORMAT", "Artifact", "Signature"]

FORMAT = 1
"""The number of the manifest's format; a reader refuses another."""

Signature = tuple[str, str, tuple[int, ...]]
"""Name, element type and shape of a param, input or output."""

LaunchInfo = tuple[str, str, int, int, int]
"""What a launch is for: its ops, the user's file and line; its flops, and the bytes it moves."""


@dataclass(frozen=True)
class Artifact:
    """A compiled graph for one target and one binding of its dims.

    Steps are those of ``rlx.runtime._native`` with the kernel's name in place of its address.
    ``kernels`` maps that name to a symbol of an object; ``objects`` are keyed by a digest of what
    their code depends on, so that equal kernels of several artifacts are one object. ``launches``
    says what each launch is for, for traces and profiles: those of the prologue, then those of
    main, in the order in which a reader meets them.
    """

    target: str
    features: str
    params: list[Signature]
    constants: list[np.ndarray[Any, Any]]
    inputs: list[Signature]
    outputs: list[Signature]
    arena_bytes: int
    packed_bytes: int
    prologue: list[tuple[tuple[Any, ...], tuple[int, ...]]]
    main: list[tuple[Any, ...]]
    launches: list[LaunchInfo]
    sites: list[tuple[str, str, int]]
    kernels: dict[str, tuple[str, str]]
    objects: dict[str, bytes] = field(repr=False)
    format: int = FORMAT
