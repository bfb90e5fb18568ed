"""Programs of StableHLO, run by us and by the reference interpreter of the MLIR package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx._mlir import context, ir, raw_elements, stablehlo, stablehlo_module
from rlx.frontends.stablehlo.node import type_of

__all__ = ["Array", "agree", "check", "drawn", "ours", "program", "reference", "types_of"]

Array = np.ndarray[Any, Any]


def program(body: str, inputs: str, outputs: str) -> str:
    """The text of a module whose ``main`` has these types; ``body`` ends in what it returns."""
    given = ", ".join(f"%{chr(97 + i)}: {t}" for i, t in enumerate(types_of(inputs)))
    many = types_of(outputs)
    last = f"return {', '.join(f'%r{i}' if len(many) > 1 else '%r' for i in range(len(many)))}"
    end = f"{last} : {', '.join(many)}"
    result = outputs if len(many) == 1 else f"({', '.join(many)})"
    return f"module {{\nfunc.func public @main({given}) -> {result} {{\n{body}\n{end}\n}}\n}}\n"


def types_of(text: str) -> list[str]:
    """The types of tensors in a text."""
    return re.findall(r"tensor<[^<>]*(?:<[^<>]*>)?[^<>]*>", text)


def drawn(text: str, rng: np.random.Generator, low: float = -3, high: float = 3) -> list[Array]:
    """Arrays for the inputs of a program."""
    found: list[Array] = []
    with context() as ctx:
        module = stablehlo_module(text, ctx)
        main = module.body.operations[0]
        for a in main.regions[0].blocks[0].arguments:
            t = type_of(a.type)
            shape, dt = t.static_shape, t.dtype
            if dt.name == "bool":
                found.append(rng.integers(0, 2, shape).astype(bool))
            elif dt.is_int:
                least = max(0, low) if dt.kind == "uint" else low
                found.append(rng.integers(int(least), int(high) + 1, shape).astype(dt.numpy))
            elif dt.is_complex:
                parts = rng.uniform(low, high, (2, *shape))
                found.append((parts[0] + 1j * parts[1]).astype(dt.numpy))
            else:
                found.append(rng.uniform(low, high, shape).astype(dt.numpy))
    return found


def reference(text: str, arrays: Sequence[Array]) -> list[Array]:
    """What the reference interpreter gives."""
    with context() as ctx:
        module = stablehlo_module(text, ctx)
        block = module.body.operations[0].regions[0].blocks[0]
        given = [_attribute(a, v.type) for a, v in zip(arrays, block.arguments, strict=True)]
        return [_elements(a) for a in stablehlo().eval_module(module, given)]


def _elements(a: Any) -> Array:
    t = type_of(a.type)
    if t.dtype.name == "bool":
        found = np.array(ir.DenseIntElementsAttr(a)).astype(bool)
    else:
        count = 1 if a.is_splat else t.nbytes // t.dtype.bytes
        found = np.frombuffer(raw_elements(a, count * t.dtype.bytes), t.dtype.numpy)
    return (
        np.broadcast_to(found.ravel()[:1].reshape(()), t.static_shape)
        if a.is_splat
        else found.reshape(t.static_shape)
    )


def _attribute(a: Array, t: Any) -> Any:
    a = np.ascontiguousarray(a).reshape(a.shape)
    element = ir.RankedTensorType(t).element_type
    with ir.Location.unknown():
        return _parsed(a, ir.RankedTensorType.get(list(a.shape), element))


def _parsed(a: Array, t: Any) -> Any:
    """A constant, from its bytes in hexadecimal."""
    if not a.size:
        return ir.Attribute.parse(f"dense<> : {t}")
    if a.dtype == bool:
        return ir.Attribute.parse(f"dense<{str(a.tolist()).lower()}> : {t}")
    return ir.Attribute.parse(f'dense<"0x{a.tobytes().hex()}"> : {t}')


def ours(text: str, arrays: Sequence[Array], device: str = "interpret") -> list[Array]:
    """What our graph of the program gives."""
    graph = rlx.from_stablehlo(text)
    return list(rlx.Session(device).compile(graph)(*arrays))


def check(text: str, arrays: Sequence[Array], device: str = "interpret") -> None:
    """Both give the same, within the rounding of a few operations."""
    agree(ours(text, arrays, device), reference(text, arrays))


def agree(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Results are the same, within the rounding of a few operations; else AssertionError."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-11 if b.dtype.kind == "f" else 2e-5}
            tolerance = tolerance.get(b.dtype.itemsize, 1e-11)
            wide = np.complex128 if b.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance
            )
