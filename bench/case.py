"""What is measured: a computation that every library runs on the same arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]
"""A call of what a library prepared; gives its (first) result."""


def _all(result: Array) -> Array:
    return result


WHOLE = 8
"""Elements of the shortest vector that kernels take, and rows of their tiles."""


def padded(name: Callable[..., str], *sizes: int) -> dict[str, Any]:
    """The fields of a case that name its padded neighbour, if any of its sizes is ragged. ``name``
    makes names of sizes."""
    whole = [n if n == 1 else -(-n // WHOLE) * WHOLE for n in sizes]
    if whole == list(sizes):
        return {}
    return {"padded": name(*whole), "part": math.prod(sizes) / math.prod(whole)}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a case: its shape and how its values are drawn.

    ``kind``: "normal"; "weight", a matrix ``[inputs, outputs]`` of a linear layer, which a library
    may keep transposed; "gain", normal about 1; "ids", integers from 0 up to ``scale``; or "ones",
    integers that are 1, such as the mask of a text without padding.
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    scale: float = 1.0
    dtype: str = "float32"

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type of the elements."""
        if self.dtype == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.dtype)

    def draw(self, name: str) -> Array:
        """The values, which depend on the name alone."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        if self.kind == "ids":
            return rng.integers(0, int(self.scale), self.shape)
        if self.kind == "ones":
            return np.ones(self.shape, np.int64)
        scale = self.scale / math.sqrt(self.shape[0]) if self.kind == "weight" else self.scale
        drawn = rng.standard_normal(self.shape, np.float32) * np.float32(scale)
        return (drawn * 0.1 + 1 if self.kind == "gain" else drawn).astype(self.numpy)


@dataclass(frozen=True)
class Case:
    """A computation with its operands.

    ``build(f, **tensors)`` says it once, in the operations ``f`` of any library
    (``runtimes/base.py``). ``own`` has, by a library's name, what that library runs in place of it:
    a function of the case and the number of threads that returns a Run. Besides, "module" makes a
    torch.nn.Module of the case (whether it is exported is said), "graph" RLX's graph, "reference"
    the result. A case that only some libraries can run names them in ``runtimes``.
    """

    name: str
    build: Callable[..., Any]
    inputs: Mapping[str, Tensor]
    params: Mapping[str, Tensor] = field(default_factory=dict)
    tolerance: float = 1e-5
    """The largest difference from the reference, as a part of its largest element."""
    flops: float = 0
    own: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    runtimes: tuple[str, ...] | None = None
    quick: bool = False
    """Whether ``--quick`` takes it."""
    traced: bool = True
    """Whether torch writes the files of a case from a run of the module, or from its code as
    ``torch.export`` reads it, which whole models need."""
    moved: float = 0
    """The bytes that it must read and write at least; 0 where nobody counts them."""
    dtype: str = ""
    """The element type, where cases of a run have several."""
    precision: str = "f32"
    """In what every library is told to multiply what the case declares f32."""
    checked: Callable[[Array], Array] = _all
    """The part of a result that is compared with the reference, which has that part alone."""
    padded: str = ""
    """Of a ragged case the name of one with its sizes rounded up. If its family has that, what
    being ragged costs is measured against it."""
    part: float = 0
    """How much of the work of the ``padded`` case it has."""

    def feeds(self) -> dict[str, Array]:
        """What a call gets."""
        return {name: t.draw(name) for name, t in self.inputs.items()}

    def values(self) -> dict[str, Array]:
        """The params, which are set once."""
        return {name: t.draw(name) for name, t in self.params.items()}

    def runs_on(self, runtime: str) -> bool:
        """Whether a library can run it."""
        if self.runtimes is None:
            # Which have programs for some cases only.
            return runtime not in ("c", "sklearn", "cublas", "ggml", "llama_cpp", "rlx_onnx")
        return runtime in self.runtimes

    def reference(self) -> Array:
        """The result by NumPy in f64."""
        from bench.runtimes.numpy import reference

        own = self.own.get("reference", reference)
        return np.asarray(own(self))
