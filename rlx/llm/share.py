"""What each rank has of a decoder that several ranks share.

A rank has some of the heads, of the units between the two products of a feed-forward network, and
of the tokens' logits; what attention and the network give is summed over the ranks (M. Shoeybi et
al., Megatron-LM, 2019). Weights are cut between blocks, and so that rows rounded to 8 bits have the
blocks that they have on one rank. Shares need not be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from rlx.base.frozen import frozen
from rlx.base.mesh import Axis
from rlx.errors import ShapeError
from rlx.frontends.gguf import Tensor
from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.llm.weights import block_of
from rlx.ops.quant.rows import ROW_BLOCK

__all__ = ["Share"]

DOWN = ("ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight")


@frozen
class Share:
    """The heads of queries, and of keys and values, that a rank has, and its tokens' logits.
    ``copies`` ranks have the same keys and values. ``axis`` has the ranks; None for all on one.
    The matrices behind the units of feed-forward networks have blocks of ``block`` elements."""

    heads: range
    kv_heads: range
    vocab: range
    copies: int = 1
    axis: Axis | None = None
    rank: int = 0
    block: int = 1

    @staticmethod
    def whole(config: ModelConfig) -> Share:
        """All of a model."""
        c = config
        return Share(range(c.heads), range(c.kv_heads), range(c.vocab))

    @staticmethod
    def of(config: ModelConfig, weights: Mapping[str, Tensor], axis: Axis, rank: int) -> Share:
        """What the rank of a number along an axis has. ShapeError where there is not a part for
        each."""
        c, n = config, axis.ranks
        # Columns of the output's weight are cut between heads, and between its blocks.
        group = c.heads // c.kv_heads * c.value_dim
        block = _block(weights, "attn_output.weight")
        each = block // gcd(block, group)
        sets = c.kv_heads // each if c.kv_heads % each == 0 else 1
        copies, kv = 1, range(0)
        if sets >= n:
            kv = _part(sets, n, rank, c.kv_heads // sets)
            heads = range(*(at * c.heads // c.kv_heads for at in (kv.start, kv.stop)))
        else:
            copies = n // c.kv_heads
            queries = c.heads // n
            if n % c.kv_heads or c.heads % n or queries * c.value_dim % block:
                raise ShapeError(
                    f"{c.heads} heads, {c.kv_heads} of keys and values, are not cut for {n} ranks,"
                    f" where weights are in blocks of {block}; {sets} ranks have parts"
                )
            kv = range(rank // copies, rank // copies + 1)
            heads = range(rank * queries, (rank + 1) * queries)
        most = -(-c.vocab // n)
        vocab = range(min(rank * most, c.vocab), min((rank + 1) * most, c.vocab))
        share = Share(heads, kv, vocab, copies, axis, rank, _block(weights, *DOWN))
        share.units(c.expert_inner if c.experts else c.inner)
        return share

    def units(self, inner: int) -> range:
        """The units that the rank has of the ``inner`` between the products of a feed-forward
        network. ShapeError where there is not a part for each."""
        if self.axis is None:
            return range(inner)
        n, block, wide = self.axis.ranks, self.block, max(self.block, ROW_BLOCK)
        if inner % wide == 0 and inner // wide >= n:
            block = wide
        if inner % block or inner // block < n:
            raise ShapeError(
                f"{inner} units of a feed-forward network are {inner // block} blocks of weights,"
                f" which are not cut for {n} ranks"
            )
        return _part(inner // block, n, self.rank, block)

    def total(self, x: Value) -> Value:
        """The sum over the ranks."""
        return x if self.axis is None else x.all_reduce(self.axis)

    def joined(self, x: Value, size: int) -> Value:
        """The columns of all ranks, so many."""
        if self.axis is None:
            return x
        missing = -(-size // self.axis.ranks) - len(self.vocab)
        if missing:
            x = x.pad([0, 0], [0, missing])
        return x.all_gather(self.axis, 1)[:, :size]


def _part(count: int, ranks: int, rank: int, size: int) -> range:
    """The part of a rank of so many things of a size, as even as can be."""
    return range(count * rank // ranks * size, count * (rank + 1) // ranks * size)


def _block(weights: Mapping[str, Tensor], *names: str) -> int:
    """The elements of a block of the weights of a name, in all layers; 1 where none are in
    blocks."""
    found = 1
    for name, tensor in weights.items():
        if name.endswith(names):
            found = max(found, block_of(tensor)[0])
    return found
