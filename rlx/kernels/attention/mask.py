"""From products to weights: softcap, masks and the exponential.

For kernels that lay queries side by side in lanes, and for those that lay keys so.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel
from rlx.codegen.math.exponential import exp_moderate
from rlx.codegen.reg import Reg
from rlx.kernels.attention.args import Arguments, ScoresConfig
from rlx.ops.nn.attention_mask import HIDDEN
from rlx.types import i32

__all__ = ["Masking", "inverse_of", "visible", "weight_of"]


def visible(
    k: Kernel, a: Arguments, config: ScoresConfig, first: Reg | int, rows: Reg
) -> tuple[Reg, Reg]:
    """Keys ``[low, high)`` that the query rows ``[first, first + rows)`` have to look at.

    A row of a causal mask that sees no key weighs all keys alike, so its block skips none.
    """
    if config.mask not in ("causal", "window"):
        return k.index(0), a.keys
    at = (a.keys - a.queries) + first
    all_see = k.compare("ge", at, 0)
    high = k.select(all_see, at + rows, a.keys)
    if config.mask == "causal":
        return k.index(0), high
    return k.select(all_see, k.maximum(at - a.window, 0), 0), high


def weight_of(x: Reg) -> Reg:
    """e^x for x <= 0, and 0 below -80: beside the peak's weight of 1 that is less than rounding."""
    low = -80.0
    return x.k.select(x < low, 0.0, exp_moderate(x.k.select(x < low, low, x)))


def inverse_of(total: Reg, config: ScoresConfig) -> Reg:
    """What the weighted values of a row are multiplied by, from the total of its weights: 0 where a
    bias of -inf alone has left no key a weight."""
    inverse = 1.0 / total
    if config.mask != "bias":
        return inverse
    return total.k.select(total.k.compare("eq", total, 0.0), 0.0, inverse)


def keeps(k: Kernel, x: Reg) -> Reg:
    """Whether an element of a custom mask keeps its key: not less than one half."""
    if x.dtype.is_float:
        return k.logical_not(x < 0.5)
    return x >= 1 if x.dtype.is_int else x


@frozen
class Masking:
    """Emits what lies between a product and the softmax, on vectors of scores."""

    k: Kernel
    config: ScoresConfig
    args: Arguments
    unit: float = 1.0
    """What a score of 1 is in the vectors: those of base 2 count in 1 / ln 2. It is 1 under a bias,
    which may be the least finite number."""

    def kept(self, b: Reg, key: Reg) -> Reg:
        """Whether a custom mask keeps a key, as 1 or 0 of the compute type."""
        assert self.args.mask is not None
        x = self.k.load(self.args.mask, b * self.args.mask_batch + key)
        return self.k.cast(keeps(self.k, x), self.config.compute)

    def position(self, query: Reg) -> Reg:
        """The position among the keys of a query row: the last query sees the last key."""
        return query + (self.args.keys - self.args.queries)

    def adjust(self, s: Reg, key: Reg, query: Reg, extra: Callable[[], Reg]) -> Reg:
        """Softcap and mask; see ``masked``."""
        if self.config.softcap:
            s = self.bounded(s) * self.scaled("softcap")
        return self.masked(s, key, query, extra)

    def bounded(self, s: Reg) -> Reg:
        """A score under the softcap, as a share of it."""
        return self.k.tanh(s * (1.0 / self.scaled("softcap")))

    def scaled(self, name: str) -> Reg:
        """A size argument that carries a float, in units of the scores."""
        return self.args.float(name) * self.unit

    def masked(self, s: Reg, key: Reg, query: Reg, extra: Callable[[], Reg]) -> Reg:
        """A score under the mask. ``key`` and ``query`` are positions as vectors of i32; ``extra``
        gives the vector of the bias, or of what a custom mask keeps.
        """
        k, mask = self.k, self.config.mask
        if mask == "bias":
            assert self.unit == 1.0
            return s + extra()
        if mask == "custom":
            return k.select(extra() > 0.5, s, HIDDEN * self.unit)
        if mask == "none":
            return s
        seen = key <= query
        if mask == "window":
            seen = seen & (key >= query - k.cast(self.args.window, i32))
        return k.select(seen, s, HIDDEN * self.unit)
