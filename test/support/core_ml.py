"""A .mlpackage run on any machine: Apple's reader makes a program of the file, which checks every
op's types anew, and each op computes by Apple's own rule for NumPy (``value_inference``, which
constant folding uses). What has no such rule has a row here. It is the meaning of the file, and not
the rounding of an engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlx.targets.ane.words import coremltools, quietly

__all__ = ["predictor", "weights_of"]

Array = np.ndarray[Any, Any]


def _conv(x: Array, weight: Array, **given: Any) -> Array:
    _, c, *sizes = weight.shape
    d = len(sizes)
    pad = [(int(given["pad"][2 * i]), int(given["pad"][2 * i + 1])) for i in range(d)]
    stride, gaps = given["strides"], given["dilations"]
    groups = int(given.get("groups", 1))
    x = np.pad(x, [(0, 0), (0, 0), *pad]).astype(np.float64)
    counts = [(x.shape[2 + i] - (sizes[i] - 1) * gaps[i] - 1) // stride[i] + 1 for i in range(d)]
    out, own = np.zeros((x.shape[0], weight.shape[0], *counts)), weight.shape[0] // groups
    for tap in np.ndindex(*sizes):
        box = [
            slice(t * g, t * g + (n - 1) * s + 1, s)
            for t, g, n, s in zip(tap, gaps, counts, stride, strict=True)
        ]
        seen = x[(slice(None), slice(None), *box)]
        for g in range(groups):
            w = weight[(slice(g * own, (g + 1) * own), slice(None), *tap)].astype(np.float64)
            part = seen[:, g * c : (g + 1) * c]
            out[:, g * own : (g + 1) * own] += np.einsum("nc...,oc->no...", part, w)
    return out


_MODES: dict[str, Callable[..., Any]] = {
    "add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at,
    "update": lambda out, at, new: out.__setitem__(at, new),
}  # fmt: skip


def _scatter(data: Array, indices: Array, updates: Array, mode: str = "add", **_: Any) -> Array:
    out = np.array(data)
    _MODES[mode](out, tuple(np.moveaxis(np.asarray(indices), -1, 0)), updates)
    return out


_ROWS: dict[str, Callable[..., Array]] = {
    "conv": _conv,
    "scatter_nd": _scatter,
    "silu": lambda x: x / (1 + np.exp(-x.astype(np.float64))),
    "gather": lambda x, indices, axis=0, **_: np.take(x, indices, axis=axis),
}


def _bind(var: Any, value: Any) -> None:
    made = var.sym_type()
    made.val = value
    var._sym_val = made


def _run(op: Any, types: Any, plain: Any) -> None:
    if op.op_type == "const":
        for out in op.outputs:  # a bool of NumPy's is no integer for NumPy's own keepdims
            if isinstance(out.val, np.bool_):
                _bind(out, bool(out.val))
        return
    if op.op_type.startswith("constexpr_"):  # weights in few bits
        _bind(op.outputs[0], op.materialized_val_inference())
        return
    kinds = [types.nptype_from_builtin(out.dtype) for out in op.outputs]
    if op.op_type not in _ROWS and type(op).value_inference is not plain:
        op.type_value_inference(overwrite_output=True)
        found = [out.val for out in op.outputs]
    else:
        given = {
            name: var.val
            for name, var in op.inputs.items()
            if var is not None and not isinstance(var, list | tuple)
        }
        found = [_ROWS[op.op_type](**given)]
    for out, value, kind in zip(op.outputs, found, kinds, strict=True):
        _bind(out, np.asarray(value).astype(kind))


def _read(package: Path, function: str = "main") -> Any:
    """A function of a package, by Apple's reader."""
    reader = importlib.import_module("coremltools.converters.mil.frontend.milproto.load")
    with quietly():
        spec = coremltools().utils.load_spec(str(package))
        weights = str(package / "Data" / "com.apple.CoreML" / "weights")
        return reader.load(spec, spec.specificationVersion, weights).functions[function]


def weights_of(package: Path, function: str = "main") -> list[tuple[str, Array]]:
    """The weights that a function has in few bits: the op that decodes them, and their numbers."""
    ops = [op for op in _read(package, function).operations if op.op_type.startswith("constexpr_")]
    return [(op.op_type, np.asarray(op.materialized_val_inference())) for op in ops]


def predictor(
    package: Path, function: str = "main"
) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """What runs a function of a package on arrays by name."""
    mil = importlib.import_module("coremltools.converters.mil.mil")
    main = _read(package, function)

    def predict(given: dict[str, Array]) -> dict[str, Array]:
        for name, var in main.inputs.items():
            _bind(var, given[name])
        for op in main.operations:
            _run(op, mil.types, mil.Operation.value_inference)
        return {out.name: np.asarray(out.val) for out in main.outputs}

    return predict
