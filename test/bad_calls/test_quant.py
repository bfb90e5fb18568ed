"""Wrong schemes, wrong bytes and numbers that a scheme cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import (
    DTypeError,
    FaultError,
    GraphError,
    NameError,
    ShapeError,
    UnsupportedError,
)
from rlx.quant import dequantize, quantize
from support.bad_calls import Bad, check, ids

X = np.ones((4, 256), np.float32)
GPTQ = quantize(X.T.repeat(2, 1), "gptq", group=64)
"""Of a matrix [256, 8]."""


def with_nan() -> Any:
    x = X.copy()
    x[1, 3] = np.nan
    return x


def parts(name: str, shape: tuple[int, int], group: int = 0, **changed: Any) -> Callable[[], Any]:
    """What is decoded, with some of its arrays changed."""
    good = quantize(np.ones(shape, np.float32), name, group=group)
    return lambda: dequantize({**good, **changed}, name, shape)


def without(name: str, missing: str) -> Callable[[], Any]:
    good = quantize(np.ones((128, 8), np.float32), name)
    return lambda: dequantize({k: v for k, v in good.items() if k != missing}, name, (128, 8))


BAD: list[Bad] = [
    Bad(NameError, "no scheme is named 'q4k'; did you mean 'q4_k'", lambda: quantize(X, "q4k")),
    Bad(
        NameError,
        "no scheme is named 'q9_0'.*schemes\\(\\) has them all",
        lambda: dequantize(b"", "q9_0", (0,)),
    ),
    Bad(
        ShapeError,
        "q4_0: a shape of \\[4, 32\\] is 72 bytes, blocks of 18 bytes for 32 elements; found 71",
        lambda: dequantize(bytes(71), "q4_0", (4, 32)),
    ),
    Bad(
        ShapeError,
        "q4_k has blocks of 256 elements along the last dim, which \\[256, 255\\]",
        lambda: dequantize(bytes(144), "q4_k", (256, 255)),
    ),
    Bad(
        ShapeError,
        "blocks of 32 elements along the last dim, which \\[\\] has no",
        lambda: dequantize(bytes(18), "q4_0", ()),
    ),
    Bad(
        ShapeError,
        "which \\[4, 250\\] has no whole number of; pad it",
        lambda: quantize(X[:, :250], "q8_0"),
    ),
    Bad(
        ShapeError,
        "a shape is sizes of 0 and more, found \\[-1, 32\\]",
        lambda: dequantize(b"", "q4_0", (-1, 32)),
    ),
    Bad(ShapeError, "a single number", lambda: quantize(np.float32(3), "f32")),
    Bad(
        DTypeError,
        "q4_0 is one array of bytes, found a dict",
        lambda: dequantize({}, "q4_0", (32,)),
    ),
    Bad(
        DTypeError,
        "awq has the arrays qweight, qzeros, scales: give a dict of them, found bytes",
        lambda: dequantize(b"", "awq", (8, 8)),
    ),
    Bad(
        DTypeError,
        "q4_0 is decoded from a u8 array, found int8: view it as u8",
        lambda: dequantize(np.zeros(18, np.int8), "q4_0", (32,)),
    ),
    Bad(
        DTypeError,
        "q4_0 is decoded from bytes or a u8 array",
        lambda: dequantize([1, 2], "q4_0", (32,)),
    ),  # type: ignore[arg-type]
    Bad(
        DTypeError,
        "takes real numbers, found complex64",
        lambda: quantize(X.astype(np.complex64), "q4_0"),
    ),
    Bad(
        GraphError,
        "byteorder is 'little' or 'big', found 'middle'",
        lambda: dequantize(bytes(18), "q4_0", (32,), byteorder="middle"),
    ),
    Bad(
        GraphError,
        "q4_0 has blocks of 32 elements: leave group out",
        lambda: quantize(X, "q4_0", group=64),
    ),
    Bad(
        FaultError,
        "q4_0 holds finite numbers; 1 are not, the first is nan at \\(1, 3\\)",
        lambda: quantize(with_nan(), "q4_0"),
    ),
    Bad(FaultError, "awq holds finite numbers", lambda: quantize(with_nan(), "awq")),
    Bad(
        FaultError,
        "a scale of 1.25e\\+05 does not fit in the 16 bits",
        lambda: quantize(X * 1e6, "q4_0"),
    ),
    Bad(
        FaultError,
        "importance is finite numbers of 0 and more",
        lambda: quantize(X, "q4_k", importance=-X),
    ),
    Bad(
        ShapeError,
        "importance of shape \\[3\\] does not broadcast to \\[4, 256\\]",
        lambda: quantize(X, "q4_k", importance=[1, 2, 3]),
    ),
    Bad(
        UnsupportedError,
        "q4_0 searches no scales: leave importance out",
        lambda: quantize(X, "q4_0", importance=X),
    ),
    Bad(UnsupportedError, "awq searches no scales", lambda: quantize(X, "awq", importance=X)),
    Bad(UnsupportedError, "iq2_xxs is read and not made", lambda: quantize(X, "iq2_xxs")),
    Bad(
        FaultError,
        "int4_block holds no number below 0",
        lambda: quantize(-X, "int4_block", group=2),
    ),
    Bad(
        ShapeError,
        "int8_block has scales of 32 rows, and 4 rows",
        lambda: quantize(X, "int8_block"),
    ),
    Bad(
        ShapeError,
        "int8_block holds a matrix, found the shape \\[256\\]",
        lambda: quantize(X[0], "int8_block"),
    ),
    Bad(
        ShapeError,
        "nvfp4_block has a scale for 16 rows, and an even number",
        lambda: quantize(X, "nvfp4_block", group=4),
    ),
    Bad(
        ShapeError,
        "nvfp4_block has a scale for 16 rows and two columns a byte; \\[8, 8\\]",
        lambda: dequantize({}, "nvfp4_block", (8, 8)),
    ),
    Bad(
        ShapeError,
        "gptq has groups of 128 inputs and 8 elements a word; 4 inputs and 256",
        lambda: quantize(X, "gptq"),
    ),
    Bad(NameError, "gptq has an array 'qzeros', which is not there", without("gptq", "qzeros")),
    Bad(
        DTypeError,
        "int8_block: q is uint8, expected int8",
        parts("int8_block", (64, 4), q=np.zeros((64, 4), np.uint8)),
    ),
    Bad(
        DTypeError,
        "awq: scales is float64, expected float16 or float32 or bfloat16",
        parts("awq", (128, 8), scales=np.ones((1, 8))),
    ),
    Bad(
        ShapeError,
        "int8_block: q has the shape \\[64, 3\\], expected \\[64, 4\\]",
        parts("int8_block", (64, 4), q=np.zeros((64, 3), np.int8)),
    ),
    Bad(
        ShapeError,
        "int8_block: scale has the shape \\[2, 5\\], expected \\[any, 4\\]",
        parts("int8_block", (64, 4), scale=np.ones((2, 5), np.float32)),
    ),
    Bad(
        ShapeError,
        "64 rows are no whole number of groups for 3 of scales",
        parts("int8_block", (64, 4), scale=np.ones((3, 4), np.float32)),
    ),
    Bad(
        ShapeError,
        "gptq: 7 words of 32 bits are none of 2 to 8 bits for 128",
        parts("gptq", (128, 8), qweight=np.zeros((7, 8), np.int32)),
    ),
    Bad(
        ShapeError,
        "gptq: qzeros of shape \\[1, 2\\] do not fit 4 bits",
        parts("gptq", (128, 8), qzeros=np.zeros((1, 2), np.int32)),
    ),
    Bad(
        ShapeError,
        "awq: qzeros of shape \\[1, 2\\] do not fit 8 bits",
        parts(
            "awq", (128, 8), qweight=np.zeros((128, 2), np.int32), qzeros=np.zeros((1, 2), np.int32)
        ),
    ),
    Bad(
        FaultError,
        "g_idx holds groups from 0 to 4, and scales has 4",
        lambda: dequantize(
            {**GPTQ, "g_idx": np.arange(256, dtype=np.int32) // 52}, "gptq", (256, 8)
        ),
    ),
]


@pytest.mark.parametrize("bad", BAD, ids=ids(BAD))
def test_refused(bad: Bad) -> None:
    check(bad)


# -- in graphs -------------------------------------------------------------------------------


def leaf(dt: str = "f32", *shape: int) -> Any:
    return rlx.Graph().input("x", shape or (4, 6), dt)


IN_GRAPHS: list[Bad] = [
    Bad(DTypeError, "scales are numbers, found bool", lambda: leaf().quantize(True)),
    Bad(DTypeError, r"zero_points of \[300\] are no i8", lambda: leaf().quantize(0.5, 300)),
    Bad(DTypeError, r"zero_points of \[0.5\] are no i8", lambda: leaf().quantize(0.5, 0.5)),
    Bad(
        ShapeError,
        r"q_conv2d takes x \[N, C, H, W\]",
        lambda: leaf("i8").q_conv2d(leaf("i8", 6, 2)),
    ),
    Bad(
        ShapeError,
        "conv_integer takes w of the rank of x",
        lambda: leaf("i8", 1, 2, 3, 4).conv_integer(leaf("i8", 1, 2, 3)),
    ),
]


@pytest.mark.parametrize("bad", IN_GRAPHS, ids=ids(IN_GRAPHS))
def test_refused_in_graphs(bad: Bad) -> None:
    check(bad)
