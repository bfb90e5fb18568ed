"""Weights of a model file as params of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf import Tensor
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.llm.weights import PLAIN, part_of
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import DimLike
from rlx.ops.movement.rearrange import stack
from rlx.ops.quant.rows import ROW_BLOCK, takes_rows
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import f32

if TYPE_CHECKING:
    from rlx.llm.lora import Stack

__all__ = ["GraphWeights"]

Array = np.ndarray[Any, Any]

_LAYER = re.compile(r"^blk\.\d+\.")


class GraphWeights:
    """Params of a graph of a configuration, made as they are asked for.

    ``stacks`` are the adapters of matrices. Where there are any, ``adapter``, i32 ``[rows]``, says
    which one a row has.
    """

    def __init__(
        self,
        graph: Graph,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        stacks: Mapping[str, Stack],
        rows: DimLike,
    ) -> None:
        self.graph, self.config, self.weights, self.stacks = graph, config, weights, stacks
        self.parts = {_LAYER.sub("", name) for name in weights}
        self.adapter = graph.input("adapter", [rows], "i32") if stacks else None
        self.params: dict[str, Array] = {}
        self.used: dict[str, Value] = {}
        self.inputs: dict[str, Value] = {}
        """What each matrix of ``linear`` multiplies."""

    def stored(self, name: str) -> Tensor:
        """A weight that the file must have."""
        found = self.weights.get(name)
        if found is None:
            raise ModelError(f"a {self.config.family.name} needs {name}, and the file has none")
        return found

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A weight, of the shape that the configuration asks for."""
        found = self.stored(name)
        if found.shape != shape:
            raise ModelError(
                f"{name} is {list(found.shape)}, and the configuration asks for {list(shape)}"
            )
        return found

    def param(self, name: str, value: Array) -> Value:
        """A param of a value, made once."""
        if name not in self.used:
            self.params[name] = value
            self.used[name] = self.graph.param(name, value.shape, str(value.dtype))
        return self.used[name]

    def vector(self, name: str, size: int, part: range | None = None) -> Value:
        """A weight of one dim, or a part of it, in f32."""
        if name in self.used:
            return self.used[name]
        found = self.tensor(name, (size,)).dequantize()
        return self.param(name, found if part is None else found[part.start : part.stop])

    def matrix(
        self, name: str, shape: tuple[int, ...], dim: int = 0, part: range | None = None
    ) -> tuple[Value, str | None]:
        """A weight, or a part of it along a dim, and the scheme of its blocks, or None where it has
        an element type."""
        tensor = self.tensor(name, shape)
        if part is not None and len(part) < shape[dim]:
            tensor = part_of(tensor, dim, part)
        if tensor.scheme in PLAIN:
            return self.param(name, tensor.numpy()), None
        return self.param(name, tensor.data), tensor.scheme

    def linear(
        self,
        x: Value,
        name: str,
        shape: tuple[int, int],
        *,
        rows: range | None = None,
        columns: range | None = None,
        total: Callable[[Value], Value] = lambda y: y,
        in_16_bits: bool = False,
        adapted: str | None = None,
    ) -> Value:
        """``x @ w.T``, what adapters of ``adapted`` (by default of the matrix) add to it, and its
        bias if there is one; of some rows of ``w``, or of the columns that ``x`` has, and then the
        ``total`` of the product. Where a session rounds ``x`` to 8
        bits (``Precision.Q8``), what that leaves of it can be multiplied too (``in_16_bits``): as a
        second row, which takes no longer where memory is what is waited for."""
        self.inputs[name] = x
        dim, part = (0, rows) if columns is None else (1, columns)
        w, scheme = self.matrix(f"{name}.weight", shape, dim, part)
        if scheme is None:
            y = x @ w.cast(to=f32).transpose()
        elif in_16_bits and _rounds(scheme):
            y = stack([x, x - _in_8_bits(x)]).dequant_matmul(w, scheme).sum(axes=0)
        else:
            y = x.dequant_matmul(w, scheme)
        own = adapted or name
        y = total(self._adapted(y, x, own, dim, part))
        if self.has_bias(own):
            y = y + self.vector(f"{own}.bias", shape[0], rows)
        return y

    def has_bias(self, name: str) -> bool:
        """Whether a product, a norm or a router's scores have a bias."""
        part = name.rpartition(".")[2]
        return part in self.config.biased or (self.config.others and f"{part}.bias" in self.parts)

    def has(self, part: str, said: bool | None) -> bool:
        """Whether layers have a part, such as "attn_q_norm.weight": as is ``said``, else as any of
        them has it, and then all must."""
        return part in self.parts if said is None else said

    def _adapted(self, y: Value, x: Value, name: str, dim: int, part: range | None) -> Value:
        """A product with what each row's adapter adds. Rows are multiplied by all adapters' first
        matrices, and what is not of their own is 0 for the second: that reads more than each
        row's own matrices, and takes a tenth of the time of a product by groups where there are
        few adapters."""
        own = self.stacks.get(name)
        if own is None:
            return y
        assert self.adapter is not None
        a, b = own.a, own.b
        if part is not None and dim == 0:
            b = b[part.start : part.stop]
        elif part is not None:
            a = np.ascontiguousarray(a[:, part.start : part.stop])
        low, high = (
            self.param(f"{name}.lora_{n}", w).cast(to=f32).transpose()
            for n, w in (("a", a), ("b", b))
        )
        mine = self.adapter.reshape([x.shape[0], 1]).eq(Constant(own.owners).out)
        return y + mine.where(x @ low, 0.0) @ high


def _rounds(scheme: str) -> bool:
    """Whether rows that meet weights of a scheme are rounded by ``Precision.Q8``."""
    row = scheme_named(scheme)
    return isinstance(row, BlockScheme) and takes_rows(row)


def _in_8_bits(x: Value) -> Value:
    """The numbers that rows are rounded to."""
    codes, scales = x.quantize_rows(ROW_BLOCK)
    rows, size = x.shape
    blocks = codes.cast(to=f32).reshape([rows, size // ROW_BLOCK, ROW_BLOCK])
    return (blocks * scales.reshape([rows, size // ROW_BLOCK, 1])).reshape([rows, size])
