"""Where torch's tensors lie: which of them share a memory, and the elements of one in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import UnsupportedError
from rlx.frontends.torch.library import torch
from rlx.frontends.torch.sizes import Sizes
from rlx.ir.value import Value
from rlx.types import Dim

__all__ = ["Memory", "memory_of", "order_of", "storage_of", "views_of"]


@frozen
class Memory:
    """The elements of a memory in a line, and where a tensor lies in it."""

    line: Value
    strides: tuple[Dim, ...]
    offset: Dim


def storage_of(node: Any) -> int | None:
    """What tells the memory of a node's tensors from others; None if it has none."""
    val: Any = node.meta.get("val")
    first: Any = val[0] if isinstance(val, list | tuple) and val else val
    return first.untyped_storage()._cdata if isinstance(first, torch.Tensor) else None


def views_of(node: Any) -> Iterator[tuple[Any, Any]]:
    """A node and what it is a view of, then the same of that, up to what makes the memory."""
    while True:
        memory = storage_of(node)
        source = next((n for n in node.all_input_nodes if storage_of(n) == memory), None)
        if source is None:
            return
        yield node, source
        node = source


def order_of(t: Any) -> tuple[int, ...]:
    """The axes of a tensor in order of their strides, the largest first."""
    hints = [s.node.hint if isinstance(s, torch.SymInt) else s for s in t.stride()]
    return tuple(sorted(range(len(hints)), key=lambda i: -hints[i]))


def memory_of(node: Any, value: Callable[[Any], Value], sizes: Sizes) -> Memory:
    """The memory of a node's tensor, of which the tensor that it is a view of is all; ``value``
    gives what a node is here. UnsupportedError where that is not so."""
    t = node.meta["val"]
    base = next((n for _, n in reversed([*views_of(node)])), node)
    whole = base.meta["val"]
    if not isinstance(whole, torch.Tensor) or (whole.dtype, whole.is_conj(), whole.is_neg()) != (
        t.dtype, t.is_conj(), t.is_neg()
    ):  # fmt: skip
        raise UnsupportedError(
            "its tensor is a view that reads the elements of a memory as others; give it a copy, by"
            " .clone()"
        )
    order = order_of(whole)
    expected: Dim = 1
    dense = sizes.dim(whole.storage_offset()) == 0
    for axis in reversed(order):
        size = sizes.dim(whole.shape[axis])
        dense = dense and (size == 1 or sizes.dim(whole.stride(axis)) == expected)
        expected = expected * size
    held = whole.untyped_storage().nbytes()
    if not dense or not _is(held, expected * whole.element_size(), sizes):
        raise UnsupportedError(
            "its tensor is a part of a memory of which the graph has not the rest; give it a copy,"
            " by .clone()"
        )
    line = value(base).transpose(order) if order else value(base)
    return Memory(
        line.reshape([-1]), tuple(map(sizes.dim, t.stride())), sizes.dim(t.storage_offset())
    )


def _is(size: Any, expected: Dim, sizes: Sizes) -> bool:
    """Whether a size is known to be a dim; that of a memory may have a symbol of its own."""
    try:
        return sizes.dim(size) == expected
    except UnsupportedError:
        return False
