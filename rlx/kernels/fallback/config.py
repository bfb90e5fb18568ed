"""What a common kernel is compiled for: an op on types, whose dims may be symbols.

Sizes of symbols are arguments of the kernel. Where its loops are decided by one, the config says
what is known of it: while the kernel is written, questions about dims are answered by that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlx.base.dim_atoms import Symbol
from rlx.base.dim_text import without_ranges
from rlx.base.dims import Dim, SymDim, bind_dim
from rlx.base.frozen import frozen
from rlx.base.guards import Deciding, at_hand, deciding
from rlx.errors import UnsupportedError
from rlx.ir.declared import is_foreign
from rlx.ir.op import Op, op_class, placeholders
from rlx.types import TensorType

__all__ = ["CommonConfig", "Sized", "sized"]


@frozen
class CommonConfig:
    """An op on operands of these types (None: an absent optional operand). What it writes to the
    results ``unread`` is of no account.

    ``facts`` are the guards by which questions about symbolic dims are answered; a ``general``
    kernel is one for all sizes, where another would only be faster (``rlx.base.guards.prefers``).
    """

    op: str
    attrs: tuple[tuple[str, Any], ...]
    operands: tuple[TensorType | None, ...]
    unread: tuple[int, ...] = ()
    facts: tuple[Any, ...] = ()
    general: bool = False

    @staticmethod
    def of(op: Op, unread: tuple[int, ...] = ()) -> CommonConfig:
        """The config of a node. UnsupportedError if the op holds an array: that is no kernel's
        business, but data."""
        for key, value in op.attrs.items():
            if isinstance(value, np.ndarray):
                raise UnsupportedError(f"{op.name}: its array {key!r} cannot be part of a kernel")
        types = tuple(None if v is None else v.type for v in op.operands)
        return CommonConfig(op.name, tuple(sorted(op.attrs.items())), types, unread)

    def node(self) -> Op:
        """The op on values of these types."""
        return op_class(self.op)(*placeholders(self.operands), **dict(self.attrs))

    @property
    def leaves(self) -> list[Symbol]:
        """Its symbols, in the order in which the kernel takes their sizes."""
        return list(dict.fromkeys(s for d in self._dims() for s in sorted(d.leaves())))

    def _dims(self) -> Iterator[SymDim]:
        for t in self.operands:
            yield from (d for d in (() if t is None else t.shape) if isinstance(d, SymDim))
        for _, value in self.attrs:
            yield from (d for d in _items(value) if isinstance(d, SymDim))

    def answers(self) -> AbstractContextManager[Any]:
        """Answer questions about dims by the facts alone."""
        return Deciding({}, self.general).assume(self.facts) if self.leaves else nullcontext()

    def bound(self, dims: Mapping[str, Dim]) -> CommonConfig:
        """The config with other dims for its symbols."""
        attrs = tuple((key, _bound(value, dims)) for key, value in self.attrs)
        types = tuple(t and t.bind(dims) for t in self.operands)
        return replace(self, attrs=attrs, operands=types)


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for v in value:
            yield from _items(v)
    else:
        yield value


def _bound(value: Any, dims: Mapping[str, Dim]) -> Any:
    if type(value) is tuple:
        return tuple(_bound(v, dims) for v in value)
    return bind_dim(value, dims)


class Sized(NamedTuple):
    """A config, the dims that its symbols stand for, and what wrote its kernel."""

    config: CommonConfig
    dims: Mapping[str, Dim]
    written: Any

    def message(self, text: str) -> str:
        """A text with dims of the config as one with those of the program."""
        text = without_ranges(text)  # those of the config's symbols
        for name, d in self.dims.items():
            text = re.sub(rf"\b{name}\b", str(d), text)
        return text


def sized(config: CommonConfig, write: Callable[[CommonConfig], Any]) -> Sized:
    """A config of symbols for one of dims, while sizes are at hand (``rlx.base.guards``).

    What writing the kernel asks of sizes are the config's facts, and guards of the schedule. A
    symbol that is asked for its number is no symbol any more.
    """
    now, dims = deciding(), dict[str, Dim]()
    if now is not None and is_foreign(op_class(config.op)):  # its loops may do anything with dims
        config = config.bound({s.name: int(SymDim({(s,): 1})) for s in config.leaves})
    names: dict[str, Dim] = {}
    for n, s in enumerate(config.leaves):
        names[s.name] = SymDim.symbol(f"dim{n}", s.least, s.most)
        dims[f"dim{n}"] = SymDim({(s,): 1})
    config = config.bound(names) if names else config
    while now is not None and (symbols := [s.name for s in config.leaves]):
        sizes = {name: at_hand(dims[name]) for name in symbols}
        config = replace(config, general=now.general)
        with Deciding(sizes, now.general).assume(config.facts) as d:
            written = write(config)
        pinned = {s for g in d.guards if g.relation == "==" for s in g.dim.symbols}
        if pinned:
            config = replace(config.bound({name: int(dims[name]) for name in pinned}), facts=())
        elif len(d.guards) > len(config.facts) or str(d.guards) != str(config.facts):
            config = replace(config, facts=d.guards)  # by which others may be answered otherwise
        else:
            for g in d.guards:
                held = g.ask(dims)
                assert held, f"{g} holds for the sizes at hand"
            return Sized(config, {name: dims[name] for name in symbols}, written)
    return Sized(config, {}, write(config))
