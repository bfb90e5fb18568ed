"""Modules as programs of core ATen ops, with what RLX has whole left whole."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ModelError, shown
from rlx.frontends.torch.library import part, torch

__all__ = ["core_table", "program_of", "saved"]

WHOLE = frozenset({
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "argsort", "batch_norm",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "einsum", "group_norm", "hardsigmoid", "hardswish", "instance_norm", "layer_norm", "linear",
    "log_sigmoid", "log_softmax", "logsumexp", "masked_fill", "matmul", "max_pool1d", "max_pool2d",
    "max_pool3d", "mish", "native_batch_norm_backward", "outer", "pixel_shuffle", "pixel_unshuffle",
    "rms_norm", "roll", "scaled_dot_product_attention", "silu", "softmax", "softplus", "split",
    "stack", "tril", "triu", "unbind", "upsample_bicubic2d", "upsample_bilinear2d",
    "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
    "grid_sampler_2d", "im2col", "col2im", "cross_entropy_loss", "masked_scatter", "unfold",
    "one_hot", "bucketize", "searchsorted", "logaddexp", "xlogy", "hypot", "copysign", "heaviside",
    "log10", "nextafter", "sinc", "trace",
})  # fmt: skip
"""Ops that have rows of their own, though torch would write them out."""

_FIXED = re.compile(r"([^/]/[^/]|sym_float).* == -?[\d.e-]+$")
"""A guard that holds what is computed of sizes in floats to one number."""


def _decompositions() -> Any:
    """torch's table of what it writes out, without what RLX has whole."""
    table = torch.export.default_decompositions()
    for op in list(table):
        if op.__name__.split(".")[0] in WHOLE:
            del table[op]
    return table


def core_table() -> Any:
    """torch's table of what it writes out of the graphs of AOTAutograd, which are core ATen but for
    what RLX has whole."""
    return {
        op: how for op, how in part("_decomp").core_aten_decompositions().items()
        if op.__name__.split(".")[0] not in WHOLE
    }  # fmt: skip


def saved(path: str) -> Any:
    """The program of a file; ModelError with torch's words for one that is none."""
    try:
        return torch.export.load(path)
    except Exception as e:  # torch's own, of many kinds
        raise ModelError(f"cannot read {path} as torch.export.save writes it: {e}") from None


def _exported(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> Any:
    """The program of a module on arguments; ModelError with torch's words where it has none."""
    try:
        with torch.no_grad():
            return torch.export.export(
                module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes
            )
    except Exception as e:  # torch's own, of many kinds
        raise _refused(e, _example_hint(args, kwargs)) from e


def _example_hint(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What may be wrong with the example arguments, as the end of a message."""
    match args:
        case [] if not kwargs:
            return "; an example is needed: from_torch(module, x)"
        case [tuple() | list()]:
            return "; an example is given as the module is called: from_torch(module, *inputs)"
        case _ if any(isinstance(a, np.ndarray) for a in args):
            return "; give tensors: torch.from_numpy(x)"
        case _:
            return ""


def _refused(e: Exception, hint: str = "") -> ModelError:
    first = str(e).strip().splitlines()
    return ModelError(
        f"torch.export refuses the module: {type(e).__name__}: {first[0] if first else ''}{hint}"
    )


def _apart(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments with every tensor once, and none that the module holds: torch.export reads what
    comes twice as one input, and leaves the other unread."""
    seen = {id(t) for t in (*module.parameters(), *module.buffers())}

    def own(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.detach().clone() if id(x) in seen else x
            seen.add(id(x))
        return x

    return torch.utils._pytree.tree_map(own, (tuple(args), dict(kwargs)))


def _core_program(program: Any) -> Any:
    """The program in core ATen ops; ModelError where torch cannot write it so, or has taken a
    number that follows from symbolic sizes for a constant, for which it leaves a guard."""
    try:
        found = program.run_decompositions(_decompositions())
    except Exception as e:  # torch's own, of many kinds
        raise _refused(e) from e
    fixed = [g for g in getattr(found, "_guards_code", None) or () if _FIXED.search(g)]
    if fixed:
        raise ModelError(
            "torch.export takes a number that is computed of symbolic sizes for that of the example"
            f" arguments: {fixed[0]}; export the module with these dims fixed"
        )
    return found


def _dim_names(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> dict[tuple[int, int], str]:
    """The names that ``dynamic_shapes`` gives to dims: by the number of the argument's leaf, and
    its axis."""
    if dynamic_shapes is None:
        return {}
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if isinstance(dynamic_shapes, Mapping):
        pairs = [(bound[k], v) for k, v in dynamic_shapes.items() if k in bound]
    else:
        pairs = list(zip(bound.values(), dynamic_shapes, strict=False))
    leaves = {id(t): i for i, t in enumerate(torch.utils._pytree.tree_leaves((args, kwargs)))}
    found: dict[tuple[int, int], str] = {}
    for value, said in pairs:
        for tensor, axis, name in _names(value, said):
            found.setdefault((leaves[id(tensor)], axis), name)
    return found


def _names(value: Any, said: Any) -> Iterator[tuple[Any, int, str]]:
    if isinstance(value, torch.Tensor):
        axes = said.items() if isinstance(said, Mapping) else enumerate(said or ())
        for axis, dim in axes:
            name = getattr(dim, "__name__", None)
            if isinstance(name, str):
                yield value, axis % max(value.ndim, 1), name
    elif isinstance(said, Mapping) and isinstance(value, Mapping):
        for k, inner in said.items():
            yield from _names(value[k], inner)
    elif isinstance(said, list | tuple) and isinstance(value, list | tuple):
        for v, inner in zip(value, said, strict=False):
            yield from _names(v, inner)


def program_of(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[Any, dict[Any, Any]]:
    """The program of core ATen ops of a module, or of an exported program, and the names of its
    symbolic dims. GraphError for what is neither."""
    if isinstance(module, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise GraphError("an exported program has its arguments and dynamic shapes already")
        return _core_program(module), {}
    if not isinstance(module, torch.nn.Module):
        raise GraphError(
            f"from_torch takes a torch.nn.Module or an ExportedProgram, found {shown(module)}"
        )
    args, kwargs = _apart(module, args, kwargs)
    program = _exported(module, args, kwargs, dynamic_shapes)
    return _core_program(program), _dim_names(module, args, kwargs, dynamic_shapes)
