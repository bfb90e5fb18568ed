"""Blocks: what a model builder says in one word. Each is defined by the ops it expands to.

A weight is ``[in, out]`` unless a block is told ``transposed=True``: then every weight of it is
``[out, in]``, as PyTorch checkpoints keep them. Gradients and batching go through the expansion.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import Op, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import listed
from rlx.ops.movement.slicing import Concat
from rlx.ops.nn.heads import check_choice, check_floats
from rlx.ops.nn.normalization import LayerNorm, RmsNorm
from rlx.ops.pointwise.activation import Silu
from rlx.ops.pointwise.functions import activation_class, activations
from rlx.types import FLOATS, Dim, TensorType

__all__ = [
    "Block",
    "DepthwiseConv1dCausal",
    "Linear",
    "LinearFused",
    "ResidualLayerNorm",
    "ResidualRmsNorm",
    "SharedLinearPair",
    "SwiGLU",
]


class Block(Op):
    """What blocks share: float operands of one type, shape checks by name, dense layers."""

    dtypes = FLOATS

    def check(self, *shapes: tuple[str, Sequence[Dim]]) -> None:
        """ShapeError unless each operand that is there, by name, has the shape beside it."""
        for name, want in shapes:
            v = getattr(self, name)
            if v is not None and v.shape != tuple(want):
                raise ShapeError(f"{self.short}: {name} must be {listed(want)}, found {v.type}")

    def check_types(self, *besides: Value | None) -> None:
        """DTypeError unless the operands have one float type; those of ``besides`` are exempt."""
        others = [v for v in self.present if not any(v is b for b in besides)]
        check_floats(self.short, others or self.present)  # one Value may be all operands

    def check_rank(self, name: str, rank: int, *, or_more: bool = False) -> None:
        """ShapeError unless the operand ``name`` has ``rank`` dims, or at least as many."""
        v = getattr(self, name)
        if v.rank != rank and not (or_more and v.rank > rank):
            more = " or more" if or_more else ""
            raise ShapeError(f"{self.short}: {name} must have rank {rank}{more}, found {v.type}")

    def weight_shape(self, inputs: Dim, outputs: Dim) -> tuple[Dim, Dim]:
        """The shape of a weight in the block's layout."""
        return (outputs, inputs) if self.attrs.get("transposed") else (inputs, outputs)

    def outputs_of(self, name: str, inputs: Dim) -> Dim:
        """The number of outputs of the weight ``name``, which takes ``inputs``."""
        self.check_rank(name, 2)
        shape = getattr(self, name).shape
        outputs = shape[0] if self.attrs.get("transposed") else shape[1]
        self.check((name, self.weight_shape(inputs, outputs)))
        return outputs

    def dense(self, x: Value, w: Value, b: Value | None = None, activation: str = "none") -> Value:
        """``activation(x w + b)``."""
        y = x.matmul(w.T if self.attrs.get("transposed") else w)
        if b is not None:
            y = y + b
        cls = activation_class(activation)
        return y if cls is None else cls.build(y)

    def check_activation(self, name: str) -> None:
        """GraphError unless ``name`` is an activation or "none"."""
        if name != "none" and activation_class(name) is None:
            check_choice(self.short, "activation", name, ("none", *activations()))


class _Dense(Block):
    """The shared meaning of linear and linear_fused."""

    def infer(self) -> TensorType:
        self.check_activation(self.attrs["activation"])
        self.check_types()
        self.check_rank("x", 2, or_more=True)
        x = self.present[0]
        outputs = self.outputs_of("w", x.shape[-1])
        self.check(("b", (outputs,)))
        return x.type.with_shape((*x.shape[:-1], outputs))

    def expand(self) -> Value:
        x, w, b = self.operands
        assert x is not None and w is not None
        return self.dense(x, w, b, self.attrs["activation"])


class Linear(_Dense, name="hir.linear"):
    """A dense layer: activation(x w + b)."""

    x: Value = operand("[..., K]")
    w: Value = operand("[K, N]")
    b: Value | None = optional("[N]")
    activation: str = attr("none", '"none" or an activation op: "relu", "gelu", "silu", ...')
    transposed: bool = attr(False, "w is [N, K], as PyTorch checkpoints keep it")

    samples = (
        sample("2x3xT", "3x4xT"),
        sample("2x2x3xT", "3x4xT", "4xT", activation="gelu"),
        sample("2x3xT", "4x3xT", "4xT", transposed=True, activation="tanh"),
    )
    bads = (
        bad("3xf32", "3x4xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "4x3xf32", match=r"w must be \[3, 3\]", error=ShapeError),
        bad("2x3xf32", "3xf32", match="w must have rank 2", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3xf32", match=r"b must be \[4\]", error=ShapeError),
        bad("2x3xf32", "3x4xf64", match="one type", error=DTypeError),
        bad("2x3xf32", "3x4xf32", match="did you mean 'gelu'", error=GraphError, activation="gel"),
    )


class LinearFused(_Dense, name="hir.linear_fused"):
    """A dense layer with a bias, meant to run as one kernel: activation(x w + b)."""

    x: Value = operand("[..., K]")
    w: Value = operand("[K, N]")
    b: Value = operand("[N]")
    activation: str = attr("none", '"none" or an activation op: "relu", "gelu", "silu", ...')

    samples = (sample("2x3xT", "3x4xT", "4xT"), sample("2x3xT", "3x4xT", "4xT", activation="silu"))
    bads = (bad("2x3xf32", "3x4xf32", "1xf32", match=r"b must be \[4\]", error=ShapeError),)


class SharedLinearPair(Block, name="hir.shared_linear_pair"):
    """Two products of one x: (x w1, x w2)."""

    x: Value = operand("[..., K]")
    w1: Value = operand("[K, N1]")
    w2: Value = operand("[K, N2]")

    result_count = 2
    samples = (sample("2x3xT", "3x4xT", "3x5xT"), sample("2x2x3xT", "3x1xT", "3x1xT"))
    bads = (
        bad("3xf32", "3x4xf32", "3x4xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "2x4xf32", match=r"w2 must be \[3, 4\]", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x4xf16", match="one type", error=DTypeError),
    )

    def infer(self) -> tuple[TensorType, TensorType]:
        self.check_types()
        self.check_rank("x", 2, or_more=True)
        *rows, k = self.x.shape
        first, second = (
            self.x.type.with_shape((*rows, self.outputs_of(w, k))) for w in ("w1", "w2")
        )
        return first, second

    def expand(self) -> tuple[Value, Value]:
        return self.x.matmul(self.w1), self.x.matmul(self.w2)


class SwiGLU(Block, name="hir.swiglu"):
    """A gated feed-forward layer: ((x up) * silu(x gate)) down.

    Shazeer, "GLU Variants Improve Transformer", 2020.
    """

    x: Value = operand("[..., K]")
    up: Value = operand("[K, F]")
    gate: Value = operand("[K, F]")
    down: Value = operand("[F, N]")
    transposed: bool = attr(False, "the weights are [out, in], as PyTorch checkpoints keep them")

    samples = (
        sample("2x3xT", "3x4xT", "3x4xT", "4x3xT"),
        sample("1x2x3xT", "4x3xT", "4x3xT", "2x4xT", transposed=True),
    )
    bads = (
        bad("3xf32", "3x4xf32", "3x4xf32", "4x3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x5xf32", "4x3xf32", match="gate must be", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x4xf32", "3x4xf32", match="down must be", error=ShapeError),
        bad("2x3xf32", "3x4xf32", "3x4xf32", "4x3xf64", match="one type", error=DTypeError),
    )

    def infer(self) -> TensorType:
        self.check_types()
        self.check_rank("x", 2, or_more=True)
        *rows, k = self.x.shape
        inner = self.outputs_of("up", k)
        self.check(("gate", self.weight_shape(k, inner)))
        return self.x.type.with_shape((*rows, self.outputs_of("down", inner)))

    def expand(self) -> Value:
        gated = self.dense(self.x, self.up) * Silu.build(self.dense(self.x, self.gate))
        return self.dense(gated, self.down)


class _ResidualNorm(Block):
    """The shared part of residual norms."""

    x: Value = operand("[..., K]")
    residual: Value = operand("of x's shape")
    gamma: Value = operand("[K]")
    beta: Value | None = optional("[K]")
    bias: Value | None = optional("[K]")
    eps: float = attr(1e-5, "added to the variance or the mean square")

    samples = (
        sample("2x4xT", "2x4xT", "4xT"),
        sample("2x1x4xT", "2x1x4xT", "4xT", "4xT", eps=1e-3),
        sample("2x4xT", "2x4xT", "4xT", "4xT", "4xT"),
    )
    bads = (
        bad("f32", "f32", "1xf32", match="rank 1 or more", error=ShapeError),
        bad("2x4xf32", "4xf32", "4xf32", match="residual must be", error=ShapeError),
        bad("2x4xf32", "2x4xf32", "2xf32", match="gamma must be", error=ShapeError),
        bad("2x4xf32", "2x4xf32", "4xf32", None, "2xf32", match="bias must be", error=ShapeError),
        bad("2x4xf32", "2x4xf32", "4xf64", match="one type", error=DTypeError),
    )

    def infer(self) -> TensorType:
        self.check_types()
        self.check_rank("x", 1, or_more=True)
        features = (self.x.shape[-1],)
        self.check(("residual", self.x.shape))
        self.check(*((name, features) for name in ("gamma", "beta", "bias")))
        return self.x.type

    @property
    def total(self) -> Value:
        """What is normed."""
        total = self.x + self.residual
        return total if self.bias is None else total + self.bias


class ResidualRmsNorm(_ResidualNorm, name="hir.residual_rms_norm"):
    """The RMS norm of a sum, over the last axis: rms_norm(x + residual + bias) gamma + beta."""

    def expand(self) -> Value:
        return RmsNorm.build(self.total, self.gamma, self.beta, eps=self.eps)


class ResidualLayerNorm(_ResidualNorm, name="hir.residual_layer_norm"):
    """The layer norm of a sum, over the last axis: layer_norm(x + residual + bias) gamma + beta."""

    def expand(self) -> Value:
        return LayerNorm.build(self.total, self.gamma, self.beta, eps=self.eps)


class DepthwiseConv1dCausal(Block, name="hir.depthwise_conv1d_causal"):
    """A convolution along a sequence that sees no later elements, each channel by itself.

    Element s of the result is the weighted sum of the elements s - K + 1 to s; what lies before the
    sequence is ``left``, the end of the part before this one, or zeros.
    """

    x: Value = operand("[B, S, C]")
    w: Value = operand("[C, 1, K]")
    left: Value | None = optional("[B, K - 1, C]")

    samples = (
        sample("2x4x3xT", "3x1x2xT"),
        sample("2x1x3xT", "3x1x4xT", "2x3x3xT"),
    )
    bads = (
        bad("4x3xf32", "3x1x2xf32", match="rank 3", error=ShapeError),
        bad("2x4x3xf32", "3x1x2x1xf32", match="rank 3", error=ShapeError),
        bad("2x4x3xf32", "4x1x2xf32", match="w must be", error=ShapeError),
        bad("2x4x3xf32", "3x1x2xf32", "2x2x3xf32", match="left must be", error=ShapeError),
        bad("2x4x3xf32", "3x1x2xf64", match="one type", error=DTypeError),
    )

    def infer(self) -> TensorType:
        self.check_types()
        self.check_rank("x", 3)
        self.check_rank("w", 3)
        count, _, channels = self.x.shape
        taps = self.w.shape[2]
        self.check(("w", (channels, 1, taps)), ("left", (count, taps - 1, channels)))
        return self.x.type

    def expand(self) -> Value:
        x, (channels, _, taps) = self.x, self.w.type.static_shape
        low = taps - 1 if self.left is None else 0
        if self.left is not None:
            x = Concat(self.left, x, 1).out
        from rlx.ops.conv.conv import Conv  # which other blocks do without

        return Conv.build(
            x.transpose([0, 2, 1]), self.w, padding=[(low, 0)], groups=channels
        ).transpose([0, 2, 1])
