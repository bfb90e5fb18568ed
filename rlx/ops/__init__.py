"""The op library: one class per op, a file per family, loaded on first use.

``FAMILIES`` is the table of names: it says which module declares which ops, so that importing
``rlx`` loads none of them and an unknown name is told from a known one without importing.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from rlx.errors import GraphError, did_you_mean

__all__ = ["BUILDERS", "FAMILIES", "OP_MODULES", "load", "load_all"]

FAMILIES: dict[str, tuple[str, ...]] = {
    "rlx.ops.movement.constant": ("mir.constant", "mir.iota"),
    "rlx.ops.pointwise.binary": (
        "mir.add", "mir.sub", "mir.mul", "mir.div", "mir.maximum", "mir.minimum", "mir.pow",
    ),
    "rlx.ops.pointwise.compare": (
        "mir.eq", "mir.ne", "mir.lt", "mir.le", "mir.gt", "mir.ge",
        "mir.logical_and", "mir.logical_or", "mir.logical_xor", "mir.logical_not", "mir.where",
        "mir.isnan", "mir.isinf", "mir.isfinite",
    ),
    "rlx.ops.pointwise.division": ("mir.floor_divide", "mir.remainder", "mir.fmod"),
    "rlx.ops.pointwise.bits": (
        "mir.bitwise_and", "mir.bitwise_or", "mir.bitwise_xor", "mir.bitwise_not",
        "mir.left_shift", "mir.right_shift", "mir.popcount",
    ),
    "rlx.ops.pointwise.floats": ("mir.bitcast", "mir.copysign", "mir.nextafter"),
    "rlx.ops.pointwise.gamma": ("mir.lgamma", "mir.digamma", "mir.polygamma"),
    "rlx.ops.pointwise.incomplete_gamma": (
        "mir.igamma", "mir.igammac", "mir.igamma_grad_a",
    ),
    "rlx.ops.pointwise.bessel": ("mir.bessel_i0e", "mir.bessel_i1e"),
    "rlx.ops.pointwise.unary": (
        "mir.relu", "mir.exp", "mir.log", "mir.sqrt", "mir.rsqrt", "mir.neg", "mir.abs",
        "mir.sin", "mir.cos", "mir.tan", "mir.atan", "mir.round", "mir.floor", "mir.sign",
    ),
    "rlx.ops.pointwise.elementary": (
        "mir.expm1", "mir.log1p", "mir.exp2", "mir.log2", "mir.asin", "mir.acos", "mir.sinh",
        "mir.cosh", "mir.asinh", "mir.acosh", "mir.atanh", "mir.atan2", "mir.ceil", "mir.trunc",
    ),
    "rlx.ops.pointwise.activation": (
        "mir.gelu", "mir.gelu_approx", "mir.silu", "mir.sigmoid", "mir.tanh", "mir.erf",
        "mir.erfinv",
    ),
    "rlx.ops.pointwise.rectifiers": (
        "mir.softplus", "mir.mish", "mir.softsign", "mir.elu", "mir.celu", "mir.selu",
        "mir.leaky_relu", "mir.hard_sigmoid", "mir.hard_swish", "mir.relu6",
    ),
    "rlx.ops.pointwise.cast": ("mir.cast",),
    "rlx.ops.pointwise.complex": (
        "mir.complex", "mir.real", "mir.imag", "mir.conj", "mir.angle", "mir.complex_norm_sq",
    ),
    "rlx.ops.quant.blocks": ("mir.dequantize_blocks",),
    "rlx.ops.quant.product": ("mir.dequant_matmul",),
    "rlx.ops.quant.affine": ("mir.quantize", "mir.dequantize", "mir.quantize_rows"),
    "rlx.ops.quant.fake": ("mir.fake_quantize", "mir.fake_quantize_backward"),
    "rlx.ops.quant.learned": (
        "mir.fake_quantize_lsq", "mir.fake_quantize_lsq_backward_x",
        "mir.fake_quantize_lsq_backward_scale",
    ),
    "rlx.ops.quant.integer": (
        "mir.scaled_matmul", "mir.scaled_conv", "mir.q_matmul", "mir.q_conv2d",
    ),
    "rlx.ops.quant.rows": ("mir.dequant_matmul_rows",),
    "rlx.ops.quant.grouped": ("mir.dequant_grouped_matmul",),
    "rlx.ops.random.random": ("mir.threefry2x32", "mir.random_bits"),
    "rlx.ops.nn.sampling": ("mir.dropout", "mir.sample"),
    "rlx.ops.matmul.contraction": ("mir.matmul", "mir.dot_general"),
    "rlx.ops.fft.fft": ("mir.fft", "mir.ifft", "mir.rfft", "mir.irfft"),
    "rlx.ops.reduction.reduce": (
        "mir.reduce_sum", "mir.reduce_mean", "mir.reduce_max", "mir.reduce_min", "mir.reduce_prod",
    ),
    "rlx.ops.reduction.cumulative": (
        "mir.cumsum", "mir.cumprod", "mir.cummax", "mir.cummin", "mir.logcumsumexp",
    ),
    "rlx.ops.reduction.recurrence": ("mir.linear_recurrence",),
    "rlx.ops.nn.selective_scan": ("mir.selective_scan",),
    "rlx.ops.nn.state_rows": ("mir.causal_conv_rows",),
    "rlx.ops.nn.selective_scan_rows": ("mir.selective_scan_rows",),
    "rlx.ops.nn.gated_delta_rows": ("mir.gated_delta_rows",),
    "rlx.ops.nn.delta_net": ("mir.gated_delta_net",),
    "rlx.ops.nn.normalization": ("mir.softmax", "mir.layer_norm", "mir.rms_norm"),
    "rlx.ops.nn.normalization_grad": ("mir.layer_norm_grad", "mir.rms_norm_grad"),
    "rlx.ops.nn.likelihood": (
        "mir.logsumexp", "mir.log_softmax", "mir.softmax_cross_entropy",
    ),
    "rlx.ops.nn.attention": ("mir.attention",),
    "rlx.ops.nn.attention_grad": ("mir.attention_grad",),
    "rlx.ops.nn.paged_attention": ("mir.paged_attention",),
    "rlx.ops.nn.rope": ("mir.rope",),
    "rlx.ops.movement.movement": ("mir.reshape", "mir.transpose", "mir.expand"),
    "rlx.ops.movement.rearrange": ("mir.flip",),
    "rlx.ops.movement.slicing": ("mir.slice", "mir.concat", "mir.pad"),
    "rlx.ops.indexing.gather": ("mir.gather",),
    "rlx.ops.indexing.scatter": ("mir.scatter", "mir.scatter_add"),
    "rlx.ops.indexing.along": ("mir.position",),
    "rlx.ops.movement.dynamic": ("mir.dynamic_slice", "mir.dynamic_update_slice"),
    "rlx.ops.indexing.search": ("mir.searchsorted",),
    "rlx.ops.reduction.sort": ("mir.sort",),
    "rlx.ops.reduction.topk": ("mir.topk",),
    "rlx.ops.splat.rasterize": ("mir.rasterize_gaussians", "mir.rasterize_gaussians_tangent"),
    "rlx.ops.splat.rasterize_grad": ("mir.rasterize_gaussians_grad",),
    "rlx.ops.reduction.argreduce": ("mir.argmax", "mir.argmin"),
    "rlx.ops.linalg.triangular": ("mir.triangular_solve",),
    "rlx.ops.linalg.cholesky": ("mir.cholesky",),
    "rlx.ops.linalg.lu": ("mir.lu",),
    "rlx.ops.linalg.qr": ("mir.qr",),
    "rlx.ops.linalg.eigh": ("mir.eigh", "mir.eigvalsh"),
    "rlx.ops.linalg.svd": ("mir.svd", "mir.svdvals"),
    "rlx.ops.linalg.pinv": ("mir.pinv", "mir.lstsq"),
    "rlx.ops.linalg.solve": ("mir.solve", "mir.inv", "mir.det", "mir.slogdet"),
    "rlx.ops.collective.all_reduce": ("mir.all_reduce", "mir.reduce_scatter", "hir.vary"),
    "rlx.ops.collective.exchange": (
        "mir.all_gather", "mir.all_to_all", "mir.collective_permute", "mir.collective_broadcast",
        "mir.axis_index",
    ),
    "rlx.ops.conv.conv": ("mir.conv", "mir.conv_transpose"),
    "rlx.ops.conv.integer": ("mir.conv_integer",),
    "rlx.ops.conv.weights_grad": ("mir.conv_weights",),
    "rlx.ops.conv.pool": ("mir.mean_pool",),
    "rlx.ops.conv.max_pool": ("mir.max_pool", "mir.max_pool_indices", "mir.max_pool_backward"),
    "rlx.ops.nn.blocks": (
        "hir.linear", "hir.linear_fused", "hir.shared_linear_pair", "hir.swiglu",
        "hir.depthwise_conv1d_causal",
        "hir.residual_rms_norm", "hir.residual_layer_norm",
    ),
    "rlx.ops.nn.norms": ("hir.group_norm", "hir.batch_norm", "hir.batch_norm_train"),
    "rlx.ops.conv.resize": ("hir.resize",),
    "rlx.ops.nn.axial_rope": ("hir.axial_rope2d",),
    "rlx.ops.matmul.experts": ("mir.grouped_matmul", "mir.grouped_outer", "hir.lora_matmul"),
    "rlx.ops.nn.transformer": ("hir.attention_block", "hir.bert_layer"),
    "rlx.ops.nn.llama": ("hir.llama_decoder_block",),
    "rlx.ops.nn.qwen": ("hir.qwen35_mtp_head",),
    "rlx.ops.control.control": ("control.cond", "control.while_loop", "control.scan"),
    "rlx.ops.control.custom_fn": ("control.custom_fn",),
    "rlx.ops.control.checkpoint": ("control.barrier", "control.checkpoint"),
    "rlx.ops.movement.stop_gradient": ("hir.stop_gradient",),
}  # fmt: skip

OP_MODULES: dict[str, str] = {op: module for module, ops in FAMILIES.items() for op in ops}

# Builder methods that are no op's own name: the method, and "module:function" that it calls, or
# "op" for an op class under another method name.
_SUGAR = "rlx.ops.sugar"
_SPATIAL = "rlx.ops.conv.spatial"
# Control flow is built by ``rlx.ops.control.builders``, which traces functions.
BUILDERS: dict[str, str] = {
    **{op.split(".")[1]: op for op in OP_MODULES if not op.startswith("control.")},
    **{f: f"{_SUGAR}:{f}" for f in (
        "narrow", "concat", "split", "squeeze", "unsqueeze", "swapaxes", "permute", "flatten",
        "activation", "binary", "compare", "reduce", "attention_kind", "square", "reciprocal",
        "clip", "prelu", "gated_silu",
    )},
    **{f: f"rlx.ops.indexing.along:{f}" for f in (
        "take_along_axis", "put_along_axis", "gather_nd", "scatter_nd",
    )},
    **{f: f"rlx.ops.indexing.search:{f}" for f in ("bincount", "histogram", "nonzero")},
    **{f: f"rlx.ops.movement.patterns:{f}" for f in (
        "one_hot", "tri", "tril", "triu", "eye", "diag", "diagonal", "trace",
    )},
    "argsort": "rlx.ops.reduction.sort:argsort",
    **{f: f"rlx.ops.fft.axes:{f}" for f in (
        "fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "hfft", "ihfft", "fftfreq", "rfftfreq",
        "fftshift", "ifftshift",
    )},
    **{f: f"rlx.ops.fft.spectral:{f}" for f in ("stft", "istft", "psd", "welch", "fft_conv1d")},
    **{f: f"rlx.ops.movement.rearrange:{f}" for f in (
        "tile", "repeat", "roll", "moveaxis", "stack", "unstack", "broadcast_arrays", "pad",
        "space_to_depth", "depth_to_space", "pixel_shuffle", "pixel_unshuffle",
    )},
    **{f: f"rlx.ops.movement.fill:{f}" for f in (
        "full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "arange", "linspace",
    )},
    **{f: f"rlx.ops.nn.norms:{f}" for f in (
        "instance_norm", "layer_norm2d", "norm", "normalize", "local_response_norm",
    )},
    **{f: f"rlx.ops.reduction.statistics:{f}" for f in ("var", "std", "reduce_l1", "reduce_l2")},
    "any": "rlx.ops.reduction.statistics:any_", "all": "rlx.ops.reduction.statistics:all_",
    "einsum": "rlx.ops.matmul.einsum:einsum",
    "matmul_integer": "rlx.ops.matmul.quantized:matmul_integer",
    "broadcast_to": "mir.expand",
    **{f"{f}{rank}d": f"{_SPATIAL}:{f}{rank}d" for rank in (1, 2, 3) for f in (
        "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool",
    )},
    "pool": f"{_SPATIAL}:pool",
    "sum": "mir.reduce_sum", "mean": "mir.reduce_mean", "prod": "mir.reduce_prod",
    "max": f"{_SUGAR}:max_", "min": f"{_SUGAR}:min_",
}  # fmt: skip


WITHOUT_VALUE = (
    "arange", "axis_index", "broadcast_arrays", "concat", "constant", "einsum", "eye", "fftfreq",
    "full", "iota", "linspace", "ones", "rfftfreq", "stack", "tri", "zeros",
)  # fmt: skip
"""The builder methods whose first argument is no Value: a Value does not list them."""


def __getattr__(name: str) -> Any:
    """The kinds of ops: ``rlx.ops.Activation`` and its like, made on first use."""
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.ops' has no attribute {name!r}")
    from rlx.compat.names import AREAS

    kinds = AREAS["Kinds of ops"]
    if name not in kinds:
        raise AttributeError(f"module 'rlx.ops' has no attribute {name!r}")
    return kinds[name].load()


def _missing(name: str) -> str:
    """What to do about an op that no family declares."""
    library = name.partition(".")[0] if isinstance(name, str) and "." in name else ""
    if library in ("", "hir", "mir", "lir"):
        return did_you_mean(name, OP_MODULES)
    return f"; import the module that declares the ops of {library!r} before"


def load(name: str) -> None:
    """Import the family that declares the op ``name``; GraphError if no family does."""
    module = OP_MODULES.get(name)
    if module is None:
        raise GraphError(f"unknown op {name!r}{_missing(name)}")
    importlib.import_module(module)


@cache
def load_all() -> None:
    """Import every family: for documentation, tests and the dialects."""
    for module in FAMILIES:
        importlib.import_module(module)
