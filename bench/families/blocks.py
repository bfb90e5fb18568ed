"""Products by weights in packed blocks, with rows rounded to 8 bits: one row, which reads as fast
as memory gives, and many, which multiply as fast as the machine can.

RLX runs them by ``precision="q8"``, int8 by a scale for each output. ggml is what llama.cpp
multiplies with. OpenVINO has weights of 4 and 8 bits in groups of 32, which are Q4_0 and Q8_0, and
of 8 bits by outputs; it rounds rows as it chooses.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import numpy as np

from bench.case import Array, Case, Run, Tensor

SHAPES = ((4096, 4096), (14336, 4096), (2048, 8192), (4096, 14336))
"""Outputs and inputs."""
ROWS = (1, 4, 128)
SCHEMES = ("q4_0", "q4_k", "q6_k", "q8_0", "int8")
GROUPS = {"q4_0": (4, 32), "q8_0": (8, 32), "int8": (8, 0)}
"""The bits of OpenVINO's elements of a scheme, and how many are a group; 0: all of an output."""
TOLERANCE = 3e-2


@cache
def weight(scheme: str, n: int, k: int) -> Array:
    """The bytes of a weight ``[n, k]``: some rows again and again, as encoding takes long."""
    from rlx.quant import quantize

    rows = np.random.default_rng(0).standard_normal((64, k), np.float32) / np.float32(k**0.5)
    return np.tile(quantize(rows, scheme), (n // 64, 1))


def integers(n: int, k: int) -> tuple[Array, Array]:
    """A weight ``[n, k]`` in int8, and the scale of each output."""
    rows = np.random.default_rng(0).standard_normal((64, k), np.float32) / np.float32(k**0.5)
    scale = np.abs(rows).max(1) / 127
    q = np.rint(rows / scale[:, None]).astype(np.int8)
    return np.tile(q, (n // 64, 1)), np.tile(scale, n // 64)


def numbers(scheme: str, n: int, k: int) -> Array:
    """What the weight stands for, in f32."""
    from rlx.quant import dequantize

    if scheme == "int8":
        q, scale = integers(n, k)
        return q * scale[:, None]
    return dequantize(weight(scheme, n, k), scheme, (n, k))


def reference(scheme: str, n: int, k: int, case: Case) -> Array:
    """The product of rows that are not rounded."""
    return case.feeds()["x"] @ numbers(scheme, n, k).T


def graph(scheme: str, n: int, k: int, case: Case) -> Any:
    """RLX's graph."""
    import rlx

    g = rlx.Graph(case.name)
    x = g.input("x", case.inputs["x"].shape)
    w = {name: g.param(name, v.shape, v.dtype) for name, v in params(scheme, n, k).items()}
    if scheme == "int8":
        codes, own = x.quantize_rows(0)
        g.set_outputs(codes.scaled_matmul(w["w"], own, w["scale"]))
    else:
        g.set_outputs(x.dequant_matmul(w["w"], scheme=scheme))
    return g


def params(scheme: str, n: int, k: int) -> dict[str, Array]:
    """The values of its params."""
    if scheme != "int8":
        return {"w": weight(scheme, n, k)}
    q, scale = integers(n, k)
    return {"w": np.ascontiguousarray(q.T), "scale": scale}


def ours(scheme: str, n: int, k: int, case: Case, threads: int) -> Run:
    """RLX's call."""
    import rlx

    precision = "f32" if scheme == "int8" else "q8"
    f = rlx.Session("cpu", precision, threads=threads).compile(graph(scheme, n, k, case))
    for name, value in params(scheme, n, k).items():
        f.set_param(name, value)
    x = case.feeds()["x"]
    return lambda: f.run_slots(x)[0]


def by_ggml(scheme: str, n: int, k: int, case: Case, threads: int) -> Run:
    """That of ggml."""
    from bench.runtimes.ggml import product
    from rlx.quant import schemes

    row: Any = schemes()[scheme]
    return product(weight(scheme, n, k), row.ggml, (n, k), case.feeds()["x"], threads)


def by_openvino(scheme: str, n: int, k: int, case: Case, threads: int) -> Run:
    """That of OpenVINO, which reads the weight as a constant in few bits."""
    ov: Any = importlib.import_module("openvino")
    op: Any = importlib.import_module("openvino.opset13")
    bits, group = GROUPS[scheme]
    codes, scales = _in_groups(scheme, n, k, group or k)
    shape = [n, k // (group or k), group or k]
    if bits == 4:  # of signed ones a product of 2026.4 has other numbers
        low, high = (codes + 8).astype(np.uint8).reshape(-1, 2).T
        packed = ov.Tensor(low | high << 4, ov.Shape(shape), ov.Type.u4)
        wide = op.subtract(op.convert(op.constant(packed), "f16"), np.float16(8))
    else:
        wide = op.convert(op.constant(codes.reshape(shape)), "f16")
    wide = op.multiply(wide, op.constant(scales.astype(np.float16)))
    matrix = op.convert(op.reshape(wide, op.constant([n, k]), False), "f32")
    x = case.feeds()["x"]
    rows = op.parameter(list(x.shape), np.float32, "x")
    model = ov.Model([op.matmul(rows, matrix, False, True)], [rows])
    settings = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
    }  # fmt: skip
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer([x], share_inputs=True, share_outputs=True)[0]


def _in_groups(scheme: str, n: int, k: int, group: int) -> tuple[Array, Array]:
    """Codes ``[n, k]`` and scales ``[n, groups, 1]``."""
    if scheme == "int8":
        q, scale = integers(n, k)
        return q, scale.reshape(n, 1, 1)
    values = numbers(scheme, n, k).reshape(n, -1, group)
    blocks = weight(scheme, n, k).reshape(n, k // group, -1)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    return np.rint(values / scales).astype(np.int8).reshape(n, k), scales


def case(scheme: str, m: int, n: int, k: int) -> Case:
    """Some rows by a weight."""
    from rlx.quant import schemes

    row: Any = schemes().get(scheme)
    size = n * k + 4 * n if row is None else n * (k // row.block) * row.bytes
    makers: dict[str, Any] = {"rlx": ours, "reference": reference, "graph": graph}
    makers |= {"ggml": by_ggml} if row is not None else {}
    makers |= {"openvino": by_openvino} if scheme in GROUPS else {}
    return Case(
        f"{scheme} {m}x{k}x{n}", _never, {"x": Tensor((m, k))}, tolerance=TOLERANCE,
        flops=2 * m * n * k, moved=size + 4 * m * (n + k), dtype="q8", quick=n == k,
        own={name: partial(make, scheme, n, k) for name, make in makers.items()},
        runtimes=tuple(name for name in makers if name not in ("reference", "graph")),
    )  # fmt: skip


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("every library has a call of its own")


def cases() -> list[Case]:
    """Every scheme by every number of rows and shape."""
    return [case(s, m, n, k) for n, k in SHAPES for s in SCHEMES for m in ROWS]
