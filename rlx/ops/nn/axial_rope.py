"""Rotary position embedding of places in an image."""

from __future__ import annotations

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import ShapeError
from rlx.ir.op import Array, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.rearrange import stack
from rlx.ops.nn.blocks import Block
from rlx.ops.nn.heads import compute_type
from rlx.types import TensorType

__all__ = ["AxialRope2d"]


class AxialRope2d(Block, name="hir.axial_rope2d"):
    """Rotary embedding by column and row: pairs of elements of a head turn by an angle per place.

    Token t stands in column ``t mod end_x`` and row ``t div end_x`` of a grid that the sequence
    runs through ``repeat_factor`` times. The first half of a head turns by the column, the second
    by the row; pair i of a half, which is two neighbours, by the place times
    ``theta^(-4 i / head_dim)``. See SAM 2 (arXiv:2408.00714) and B. Heo et al., "Rotary Position
    Embedding for Vision Transformer" (2024).
    """

    x: Value = operand("[B, S, H*D], S = end_x * end_y * repeat_factor")
    end_x: int = attr(doc="columns of the grid")
    end_y: int = attr(doc="rows of the grid")
    head_dim: int = attr(doc="elements of a head, D; a multiple of 4")
    theta: float = attr(10000.0, "base of the frequencies")
    repeat_factor: int = attr(1, "how many grids the sequence holds")

    samples = (
        sample("2x6x8xT", end_x=3, end_y=2, head_dim=4),
        sample("1x8x8xT", end_x=2, end_y=2, head_dim=8, theta=100.0, repeat_factor=2),
    )
    bads = (
        bad("6x8xf32", match="rank 3", error=ShapeError, end_x=3, end_y=2, head_dim=4),
        bad("2x5x8xf32", match="6 tokens", error=ShapeError, end_x=3, end_y=2, head_dim=4),
        bad("2x6x8xf32", match="multiple of 4", error=ShapeError, end_x=3, end_y=2, head_dim=6),
        bad("2x6x6xf32", match="heads of 4", error=ShapeError, end_x=3, end_y=2, head_dim=4),
    )

    def infer(self) -> TensorType:
        self.check_types()
        self.check_rank("x", 3)
        _, seq, features = self.x.shape
        if self.head_dim < 4 or self.head_dim % 4:
            raise ShapeError(
                f"axial_rope2d: head_dim is a multiple of 4 above 0, found {self.head_dim}"
            )
        if not is_known(features) or features % self.head_dim:
            raise ShapeError(f"axial_rope2d: {self.x.type} does not hold heads of {self.head_dim}")
        tokens = self.end_x * self.end_y * self.repeat_factor
        if seq != tokens or min(self.end_x, self.end_y, self.repeat_factor) < 1:
            raise ShapeError(
                f"axial_rope2d: {self.repeat_factor} grids of {self.end_x} by {self.end_y} have"
                f" {tokens} tokens, found {self.x.type}"
            )
        return self.x.type

    def angles(self) -> Array:
        """The angle of each pair of a head at each token: [S, D/2], in f64."""
        quarter = self.head_dim // 4
        speed = self.theta ** (-4.0 * np.arange(quarter) / self.head_dim)
        token = np.arange(self.end_x * self.end_y)
        places = (token % self.end_x, token // self.end_x)
        grid = np.concatenate([np.outer(p, speed) for p in places], axis=1)
        return np.tile(grid, (self.repeat_factor, 1))

    def expand(self) -> Value:
        wide = compute_type(self.x.dtype)
        b, s, features = self.x.shape
        pairs = self.x.cast(to=wide).reshape([b, s, -1, self.head_dim // 2, 2])
        first, second = (pairs[..., n] for n in range(2))
        angles = self.angles()[:, None, :]
        cos, sin = (Constant(f(angles).astype(wide.numpy)).out for f in (np.cos, np.sin))
        turned = stack([first * cos - second * sin, first * sin + second * cos], -1)
        return turned.reshape([b, s, features]).cast(to=self.x.dtype)
