"""A network of integers as C: a static arena, weights in flash, a call of a kernel a layer."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.targets.cortexm.features import Core
from rlx.targets.integer.network import ArgMax, Layer, MaxPool, Network, Product

__all__ = ["ALIGN", "Plan", "header", "plan", "source", "weight_bytes"]

Array = np.ndarray[Any, Any]

ALIGN = 16
"""Of activations and weights; kernels may read so many bytes behind an activation."""


@frozen
class Plan:
    """Where each layer's result, and a convolution's row, lie in the arena: what a layer reads lies
    at one end, and what it writes at the other."""

    arena_bytes: int
    input: int
    outputs: tuple[int, ...]
    columns: tuple[int, ...]


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


def _row(layer: Product) -> int:
    """Elements of a window."""
    return prod(layer.weights.shape[1:])


def _is_dense(layer: Product) -> bool:
    """Whether windows lie one after another in memory, so that they need no copy."""
    whole = layer.weights.shape[1:3] == layer.source[:2] and layer.size[:2] == (1, 1)
    one = layer.weights.shape[1:3] == (1, 1) and layer.stride == (1, 1)
    return not layer.depthwise and (whole or one) and layer.pad == (0, 0)


def _column(layer: Layer, core: Core) -> int:
    """Bytes of the copy of a window, and of what copying its last row writes behind it."""
    if not isinstance(layer, Product) or layer.depthwise or _is_dense(layer):
        return 0
    return _aligned(_row(layer) + core.group - 1)


def plan(network: Network, core: Core) -> Plan:
    """The places of all activations."""
    sizes = [_aligned(prod(layer.size) * layer.bits // 8) for layer in network.layers]
    columns = [_column(layer, core) for layer in network.layers]
    before = [_aligned(prod(network.source)), *sizes]
    least = max(a + c + b for a, c, b in zip(before, columns, sizes, strict=False))
    outputs: list[int] = []
    middles: list[int] = []
    for i, (read, column, written) in enumerate(zip(before, columns, sizes, strict=False)):
        ends = i % 2 == 0
        outputs.append(least - written if ends else 0)
        middles.append(read if ends else least - read - column)
    return Plan(least + ALIGN, 0, tuple(outputs), tuple(middles))


def header(network: Network, core: Core) -> str:
    """model.h."""
    last = network.layers[-1]
    count, bits = prod(last.size), last.bits
    rows, cols, channels = network.source
    what = (
        "the class, from 0" if isinstance(last, ArgMax)
        else f"{count} results; less MODEL_OUTPUT_ZERO and times MODEL_OUTPUT_SCALE the numbers"
    )  # fmt: skip
    return f"""\
/* {_comment(network.name)}, for Cortex-{core.name.upper()}: a static program without a heap. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#define MODEL_INPUT_BYTES {prod(network.source)}
#define MODEL_INPUT_SCALE {float(np.float32(network.scale))!r}f
#define MODEL_INPUT_ZERO ({network.zero})
#define MODEL_OUTPUT_ELEMENTS {count}
#define MODEL_OUTPUT_BYTES {count * bits // 8}
#define MODEL_OUTPUT_SCALE {float(np.float32(network.result_scale))!r}f
#define MODEL_OUTPUT_ZERO ({network.result_zero})
#define MODEL_ARENA_BYTES {plan(network, core).arena_bytes}
#define MODEL_WEIGHT_BYTES {weight_bytes(network, core)}

/* Where the codes of an image go before each run: {rows} rows, {cols} columns, {channels} channels,
   each element over MODEL_INPUT_SCALE, rounded, and MODEL_INPUT_ZERO more, within -128..127. A run
   overwrites them. */
int8_t *model_input(void);

/* Run, and give {what}. They lie in the arena until the next input is written. */
const int{bits}_t *model_run(void);

#endif
"""


def _comment(text: str) -> str:
    """What cannot end a comment."""
    return text.replace("*/", "* /").replace("\n", " ")


def source(network: Network, core: Core) -> str:
    """model.c."""
    placed = plan(network, core)
    tables: list[str] = []
    calls: list[str] = []
    at = placed.input
    for layer, out, column in zip(network.layers, placed.outputs, placed.columns, strict=True):
        tables += [
            _table(f"{layer.name}_{k}", a) for k, a in _arrays(layer, core).items()
        ]  # fmt: skip
        if isinstance(layer, Product):
            tables.append(
                f"static const rlx_product {layer.name} = {{{layer.name}_weights,"
                f" {layer.name}_bias, {layer.name}_multiplier, {layer.shift}, {layer.low},"
                f" {layer.high}, {layer.zero}, {layer.pad_code}}};"
            )
        calls.append(_call(layer, core, f"arena + {at}", f"arena + {out}", f"arena + {column}"))
        at = out
    bits = network.layers[-1].bits
    body = "\n".join(f"  {c}" for c in calls)
    return f"""\
#include "model.h"

#define RLX_GROUP {core.group}
#include "kernels.h"

{chr(10).join(tables)}

static __attribute__((aligned({ALIGN}))) int8_t arena[MODEL_ARENA_BYTES];

int8_t *model_input(void) {{ return arena + {placed.input}; }}

const int{bits}_t *model_run(void) {{
{body}
  return (const int{bits}_t *)(const void *)(arena + {at});
}}
"""


def _arrays(layer: Layer, core: Core) -> dict[str, Array]:
    """What a layer has in flash, as kernels read it."""
    if not isinstance(layer, Product):
        return {}
    n = len(layer.weights)
    more = -n % 4
    w = layer.weights.reshape(n, -1)
    if layer.depthwise:
        weights = np.pad(w.T, ((0, 0), (0, more)))
    else:
        w = np.pad(w, ((0, more), (0, -w.shape[1] % core.group)))
        weights = w.reshape(len(w) // 4, 4, -1, core.group).transpose(0, 2, 1, 3)
    return {
        "weights": weights.astype(np.int8).reshape(-1),
        "bias": np.pad(layer.bias, (0, more)).astype(np.int32),
        "multiplier": np.pad(
            layer.multiplier << (31 - layer.multiplier_bits), (0, more)
        ).astype(np.int32),
    }  # fmt: skip


def weight_bytes(network: Network, core: Core) -> int:
    """Bytes of all constants."""
    return sum(a.nbytes for layer in network.layers for a in _arrays(layer, core).values())


def _table(name: str, a: Array) -> str:
    """A constant array, 16 numbers a line."""
    words = [str(v) for v in a.tolist()]
    lines = [", ".join(words[i : i + 16]) for i in range(0, len(words), 16)]
    text = ",\n    ".join(lines)
    kind = f"static const __attribute__((aligned({ALIGN}))) int{a.itemsize * 8}_t"
    return f"{kind} {name}[{a.size}] = {{\n    {text}}};"


def _call(layer: Layer, core: Core, x: str, out: str, column: str) -> str:
    wide = int(layer.bits == 16)
    if isinstance(layer, ArgMax):
        return (
            f"rlx_argmax((int16_t *)(void *)({out}), (const int16_t *)(const void *)({x}),"
            f" {prod(layer.source)});"
        )
    if isinstance(layer, Product):
        taps, pad = layer.weights.shape[1:3], layer.pad
        groups = -(-_row(layer) // core.group)
        if _is_dense(layer):
            rows = prod(layer.size[:2])
            return (
                f"rlx_dense({out}, {wide}, {x}, {rows}, {_row(layer)}, {groups}, {layer.size[2]},"
                f" &{layer.name});"
            )
    else:
        taps, pad, groups = layer.taps, (0, 0), 0
    numbers = (*layer.source, *taps, *layer.size[:2], *layer.stride, *pad)
    windows = f"&(const rlx_windows){{{', '.join(map(str, numbers))}}}"
    if isinstance(layer, MaxPool):
        return f"rlx_max_pool({out}, {wide}, {x}, {windows});"
    if not isinstance(layer, Product):
        return (
            f"rlx_mean_pool({out}, {wide}, {x}, {int(layer.source_bits == 16)}, {windows},"
            f" {-prod(taps) * layer.source_zero}, {layer.multiplier}, {layer.shift}, {layer.zero},"
            f" {layer.low}, {layer.high});"
        )
    if layer.depthwise:
        return f"rlx_depthwise({out}, {wide}, {x}, {windows}, &{layer.name});"
    return (
        f"rlx_conv({out}, {wide}, {x}, {column}, {groups}, {layer.size[2]}, {windows},"
        f" &{layer.name});"
    )
