"""The ops and blocks of the original system, and what expresses each here.

``docs/names.md`` has the table. Most are an op of the same meaning; what the original has an op of
its own for, such as the backward pass of another, is often what a rule of ours makes, or a
composition that the compiler fuses.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BLOCKS", "OPS", "Row"]


class Row(NamedTuple):
    """What expresses an op: full names of ops, builder methods ("g.conv"), or names of RLX
    ("rlx.scan"); ``note`` says how, where the name does not."""

    here: tuple[str, ...]
    note: str = ""


def _op(*here: str, note: str = "") -> Row:
    return Row(here, note)


def _vjp(*here: str, note: str = "") -> Row:
    return Row(here, note or "its vjp")


OPS: dict[str, Row] = {
    "Input": _op("rlx.Graph.input"),
    "Param": _op("rlx.Graph.param"),
    "Constant": _op("mir.constant"),
    "Activation": _op("g.activation", note="by its kind; every activation is an op of its own"),
    "Cast": _op("mir.cast"),
    "Quantize": _op("mir.quantize"),
    "Dequantize": _op("mir.dequantize"),
    "FakeQuantize": _op("mir.fake_quantize", note="the new state of an average is a result"),
    "FakeQuantizeLSQ": _op("mir.fake_quantize_lsq"),
    "FakeQuantizeLSQBackwardX": _op("mir.fake_quantize_lsq_backward_x"),
    "FakeQuantizeLSQBackwardScale": _op("mir.fake_quantize_lsq_backward_scale"),
    "Binary": _op("g.binary", note="by its kind; every one is an op of its own, and an operator"),
    "Compare": _op("g.compare", note="by its kind; every one is an op of its own, and an operator"),
    "Where": _op("mir.where"),
    "ElementwiseRegion": _op(note="a `mir.fused` region, which the pass fuse makes"),
    "MatMul": _op("mir.matmul"),
    "DotGeneral": _op("mir.dot_general"),
    "DenseSolve": _op("mir.solve"),
    "BatchedDenseSolve": _op("mir.solve", note="over leading dims"),
    "LayerNorm": _op("mir.layer_norm"),
    "LayerNorm2d": _op("g.layer_norm2d"),
    "GroupNorm": _op("hir.group_norm"),
    "RmsNorm": _op("mir.rms_norm"),
    "ResizeNearest2x": _op("hir.resize"),
    "Attention": _op("mir.attention"),
    "Rope": _op("mir.rope"),
    "AxialRope2d": _op("hir.axial_rope2d"),
    "Reshape": _op("mir.reshape"),
    "Transpose": _op("mir.transpose"),
    "Narrow": _op("g.narrow", "mir.slice"),
    "Concat": _op("mir.concat"),
    "Expand": _op("mir.expand"),
    "Gather": _op("mir.gather"),
    "Reduce": _op("g.reduce", note="by its kind; every one is an op of its own"),
    "Softmax": _op("mir.softmax"),
    "Cumsum": _op("mir.cumsum"),
    "TopK": _op("mir.topk", note="values and indices, which are integers"),
    "Sample": _op("mir.sample", note="from a key, which is an input"),
    "Conv": _op("mir.conv"),
    "ConvTranspose2d": _op("mir.conv_transpose"),
    "Pool": _op("g.pool", "mir.max_pool", "mir.mean_pool"),
    "ReluBackward": _vjp("mir.relu"),
    "ActivationBackward": _vjp("mir.gelu", note="the vjp of the activation"),
    "FakeQuantizeBackward": _op("mir.fake_quantize_backward"),
    "ComplexNormSq": _op("mir.complex_norm_sq"),
    "ComplexNormSqBackward": _vjp("mir.complex_norm_sq"),
    "Conjugate": _op("mir.conj"),
    "MaxPool2dBackward": _op("mir.max_pool_backward"),
    "Conv2dBackwardInput": _vjp("mir.conv", note="its vjp, a `mir.conv_transpose`"),
    "Conv2dBackwardWeight": _vjp("mir.conv", note="its vjp, a `mir.conv` with roles exchanged"),
    "SoftmaxCrossEntropyWithLogits": _op("mir.softmax_cross_entropy"),
    "SoftmaxCrossEntropyBackward": _vjp("mir.softmax_cross_entropy"),
    "AttentionBackward": _op("mir.attention_grad"),
    "LayerNormBackwardInput": _vjp("mir.layer_norm"),
    "LayerNormBackwardGamma": _vjp("mir.layer_norm"),
    "RmsNormBackwardInput": _vjp("mir.rms_norm"),
    "RmsNormBackwardGamma": _vjp("mir.rms_norm"),
    "RmsNormBackwardBeta": _vjp("mir.rms_norm"),
    "RopeBackward": _vjp("mir.rope"),
    "GroupNormBackwardInput": _vjp("hir.group_norm"),
    "GroupNormBackwardGamma": _vjp("hir.group_norm"),
    "GroupNormBackwardBeta": _vjp("hir.group_norm"),
    "CumsumBackward": _op("mir.cumsum", note="with `reverse`"),
    "GatherBackward": _op("mir.scatter_add"),
    "GroupedMatMul": _op("mir.grouped_matmul"),
    "DequantGroupedMatMul": _op("mir.dequant_grouped_matmul", note="of GGUF's schemes"),
    "DequantMoEWeights": _op("mir.dequantize_blocks", note="with a transpose"),
    "ScatterAdd": _op("mir.scatter_add"),
    "LoraMatMul": _op("hir.lora_matmul"),
    "DequantMatMul": _op("mir.dequant_matmul", note="of GGUF's schemes"),
    "QMatMul": _op("mir.q_matmul"),
    "QConv2d": _op("mir.q_conv2d"),
    "SelectiveScan": _op("mir.selective_scan"),
    "GatedDeltaNet": _op("mir.gated_delta_net"),
    "FusedSwiGLU": _op("g.gated_silu", note="the whole layer is `hir.swiglu`"),
    "FusedMatMulBiasAct": _op("hir.linear_fused"),
    "FusedResidualLN": _op("hir.residual_layer_norm"),
    "FusedResidualRmsNorm": _op("hir.residual_rms_norm"),
    "FusedAttentionBlock": _op("hir.attention_block"),
    "FusedTransformerLayer": _op("hir.bert_layer"),
    "If": _op("rlx.cond", "control.cond"),
    "While": _op("rlx.while_loop", "control.while_loop"),
    "Scan": _op("rlx.scan", "control.scan"),
    "ScanBackward": _vjp("control.scan", note="its vjp, a scan in reverse"),
    "ScanBackwardXs": _vjp("control.scan", note="its vjp, a scan in reverse"),
    "GaussianSplatRender": _op("rlx.splat.render"),
    "GaussianSplatRenderBackward": _vjp("rlx.splat.render"),
    "GaussianSplatPrepare": _op("rlx.splat.prepare"),
    "GaussianSplatRasterize": _op("rlx.splat.rasterize"),
    "Custom": _op("rlx.custom_op"),
    "CustomFn": _op("rlx.custom_fn", "control.custom_fn"),
    "Fft": _op("mir.fft", "mir.ifft"),
}
"""The 92 ops, in the original's order."""

BLOCKS: dict[str, Row] = {
    "Input": _op("rlx.Graph.input"),
    "Param": _op("rlx.Graph.param"),
    "Constant": _op("mir.constant"),
    "Linear": _op("hir.linear"),
    "LinearFused": _op("hir.linear_fused"),
    "SharedLinearPair": _op("hir.shared_linear_pair"),
    "SwiGLU": _op("hir.swiglu"),
    "ResidualRmsNorm": _op("hir.residual_rms_norm"),
    "Attention": _op("mir.attention"),
    "DepthwiseConv1dCausal": _op("hir.depthwise_conv1d_causal"),
    "DequantMatMul": _op("mir.dequant_matmul", note="of GGUF's schemes"),
    "GatedDeltaNet": _op("mir.gated_delta_net"),
    "RoPE": _op("mir.rope"),
    "RmsNorm": _op("mir.rms_norm"),
    "LlamaDecoderBlock": _op("hir.llama_decoder_block"),
    "Qwen35MtpHead": _op("hir.qwen35_mtp_head"),
    "Mir": _op(note="any op stands among blocks as it is"),
}
"""The 17 blocks."""
