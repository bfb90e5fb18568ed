"""Names of other libraries and their counterparts here, for the messages of unknown names.

The tables are data alone, so that a test can check every name on their right.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection

from rlx.errors import did_you_mean
from rlx.types import DTYPES

__all__ = ["ARGUMENTS", "FUNCTIONS", "METHODS", "argument_hint", "function_hint", "method_hint"]

_CAST = {
    "float": "f32", "double": "f64", "half": "f16", "bfloat16": "bf16", "long": "i64",
    "int": "i32", "short": "i16", "byte": "u8", "char": "i8", "bool": "bool",
}  # fmt: skip

METHODS: dict[str, str] = {
    **{name: f'x.cast("{dt}")' for name, dt in _CAST.items()},
    "to": 'x.cast("f32"), of an element type; a device is that of the rlx.Session',
    "type_as": "x.cast(y.dtype)",
    "view": "x.reshape(shape)", "view_as": "x.reshape(y.shape)", "reshape_as": "x.reshape(y.shape)",
    "ravel": "x.flatten()", "contiguous": "x itself; a Value has no memory order",
    "numel": "x.type.size",
    "dim": "x.rank", "nelement": "x.type.size",
    "data": "x itself; a Value has no elements until its graph is run",
    "numpy": "Session().compile(graph).run(...), which gives arrays",
    "item": "Session().compile(graph).run(...), which gives arrays",
    "tolist": "Session().compile(graph).run(...), which gives arrays",
    "grad": "rlx.grad(graph, wrt), a graph of the gradients",
    "backward": "rlx.grad(graph, wrt), a graph of the gradients",
    "requires_grad": "rlx.grad(graph, wrt), which says by what",
    "requires_grad_": "rlx.grad(graph, wrt), which says by what",
    "detach": "x.stop_gradient()",
    "cpu": "rlx.Session(device); a Value is on no device",
    "cuda": "rlx.Session(device); a Value is on no device",
    "device": "rlx.Session(device); a Value is on no device",
    "cat": "g.concat([x, y], axis=0)", "concatenate": "g.concat([x, y], axis=0)",
    "hstack": "g.concat([x, y], axis=1)", "vstack": "g.concat([x, y], axis=0)",
    "clamp": "x.clip(low, high)", "clamp_min": "x.maximum(low)", "clamp_max": "x.minimum(high)",
    "t": "x.T", "expand_dims": "x.unsqueeze(axis)", "expand_as": "x.expand(y.shape)",
    "dot": "x.matmul(y)", "mm": "x.matmul(y)", "bmm": "x.matmul(y)", "mv": "x.matmul(y)",
    "absolute": "x.abs()", "power": "x.pow(y)", "negative": "x.neg()", "multiply": "x.mul(y)",
    "divide": "x.div(y)", "true_divide": "x.div(y)", "subtract": "x.sub(y)",
    "mod": "x.remainder(y)",
    "amax": "x.max()", "amin": "x.min()", "not_equal": "x.ne(y)", "equal": "x.eq(y)",
    "greater": "x.gt(y)", "less": "x.lt(y)", "greater_equal": "x.ge(y)", "less_equal": "x.le(y)",
    "arctan": "x.atan()", "arctan2": "x.atan2(y)", "arcsin": "x.asin()", "arccos": "x.acos()",
    "masked_fill": "g.where(mask, value, x)", "index_select": "x.gather(indices, axis)",
    "take": "x.gather(indices, axis)", "chunk": "x.split(parts, axis)",
    "cross_entropy": "x.softmax_cross_entropy(labels)", "copy": "x itself; a Value never changes",
    "clone": "x itself; a Value never changes", "swish": "x.silu()", "logit": "(x / (1 - x)).log()",
    "ndimension": "x.rank",
}  # fmt: skip
"""Methods and attributes of tensors elsewhere, and what to write on a Value ``x`` of a graph
``g``."""

OBJECTS: dict[str, dict[str, str]] = {
    "Graph": {
        **dict.fromkeys(("compile", "run", "eval", "forward"), "rlx.Session().compile(graph)"),
        "save": "rlx.save(graph, path)", "export": "rlx.compile_artifact(graph).save(path)",
        **dict.fromkeys(("add_input", "placeholder"), "g.input(name, shape)"),
        **dict.fromkeys(("parameter", "variable", "weight"), "g.param(name, shape)"),
        **dict.fromkeys(("output", "add_output", "set_output"), "g.set_outputs([y])"),
        "grad": "rlx.grad(graph, wrt)",
    },
    "Session": {
        "run": "compile(graph), and run(inputs) of what it gives",
        "get_inputs": "graph.inputs of the rlx.Graph",
        "get_outputs": "graph.outputs of the rlx.Graph",
        "predict": "compile(graph), and run(inputs) of what it gives",
    },
    "CompiledGraph": {
        **dict.fromkeys(("predict", "forward", "infer"), "run(inputs)"),
        **dict.fromkeys(("save", "export"), "rlx.compile_artifact(graph).save(path)"),
        **dict.fromkeys(
            ("params", "parameters", "weights"), "graph.params, and set_param(name, array)"
        ),
        "inputs": "graph.inputs", "outputs": "graph.outputs",
        **dict.fromkeys(("to", "cuda", "cpu"), "rlx.Session(device).compile(graph)"),
    },
}  # fmt: skip
"""Attributes that objects elsewhere have, by the class here, and what to write."""

_OPTIONS = {
    "precision": "rlx.Session(precision=...)", "device": "rlx.Session(device)",
    "target": "rlx.Session(device), or rlx.compile_artifact(graph, target)",
    "threads": "rlx.Session(threads=...)", "dims": "graph.bind(...), or compile for all sizes",
    **dict.fromkeys(("static_argnames", "static_argnums"), 'rlx.jit(static=["name"])'),
    **dict.fromkeys(("donate_argnames", "donate_argnums"), "donate=[(input, output)], by place"),
}  # fmt: skip


def option_hint(name: str, known: Collection[str]) -> str:
    """What to write in place of an option of ``compile``, as the end of a message."""
    return f"; write {_OPTIONS[name]}" if name in _OPTIONS else did_you_mean(name, known)


def attribute_hint(kind: str, name: str, known: Collection[str]) -> str:
    """What to write in place of an attribute of an object, as the end of a message."""
    found = OBJECTS.get(kind, {}).get(name)
    return f"; write {found}" if found else did_you_mean(name, known, least=0.75)


_COMPILE = "Session().compile(graph), of an rlx.Graph"
_CONSTANT = "g.constant(value) of an rlx.Graph, or a NumPy array"

FUNCTIONS: dict[str, str] = {
    "compile": _COMPILE, "make_graph": "Graph(name)",
    "Tensor": 'Graph().input("x", shape)', "tensor": _CONSTANT, "array": _CONSTANT,
    "asarray": _CONSTANT, **{d.long_name: name for name, d in DTYPES.items() if d.kind != "bool"},
    "manual_seed": "random.key_data(seed)", "no_grad": "stop_gradient(x)",
    "device": "Session(device)", "to_device": "Session().to_device(array)",
    "numpy": "xp, NumPy's functions on Values and arrays",
    "fori_loop": "fori(...)", "while": "while_loop(...)", "if": "cond(...)",
    "Function": "custom_fn(...)", "export": "compile_artifact(graph).save(path)",
}  # fmt: skip
"""Names of modules elsewhere, and what they are after ``rlx.``."""

HOMES = ("models", "nn", "optim", "training", "quant")
"""Modules whose names are looked for in ``rlx`` itself."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis", "shape"), "axis": ("axes",),
    "axes": ("axis", "perm"), "keepdim": ("keepdims",), "keep_dims": ("keepdims",),
    "dtype": ("to", "dt"), "dt": ("dtype",), "size": ("shape",), "min": ("low",), "max": ("high",),
    "learning_rate": ("lr",), "params": ("wrt",), "argnums": ("wrt",), "batch_size": ("size",),
    "optim": ("optimizer",), "optimiser": ("optimizer",), "num_epochs": ("epochs",),
    "loader": ("data",), "betas": ("beta1",), "weight": ("w",), "bias": ("b",),
}  # fmt: skip
"""Names of arguments elsewhere, and those here of which a function may have one."""


def method_hint(name: str, known: Collection[str], ops: Collection[str]) -> str:
    """What to write in place of a method or attribute ``name``, as the end of a message."""
    plain = name.removesuffix("_")
    if name in METHODS:
        return f"; write {METHODS[name]}"
    if plain != name and plain in ops:
        return f"; a Value never changes: write y = x.{plain}(...)"
    return did_you_mean(name, known, least=0.7)


def function_hint(name: str, known: Collection[str]) -> str:
    """What to write in place of ``rlx.name``, as the end of a message."""
    from rlx.ops import BUILDERS, WITHOUT_VALUE

    if name in FUNCTIONS:
        wanted = FUNCTIONS[name]
        return f"; write {wanted if wanted.startswith('g.') else f'rlx.{wanted}'}"
    if name in WITHOUT_VALUE:
        return f"; ops are methods of graphs and values: g.{name}(...)"
    if name in BUILDERS:
        return f"; ops are methods of values and graphs: x.{name}(...), g.{name}(x, ...)"
    if name in METHODS:
        return f"; on a Value x, write {METHODS[name]}"
    for home in HOMES:
        if name in importlib.import_module(f"rlx.{home}").__all__:
            return f"; write rlx.{home}.{name}"
    return did_you_mean(name, known, least=0.75)


def argument_hint(name: str, known: Collection[str]) -> str:
    """Which argument of those ``known`` is meant by ``name``, as the end of a message."""
    meant = next((n for n in ARGUMENTS.get(name, ()) if n in known), None)
    return f"; did you mean {meant!r}?" if meant else did_you_mean(name, known)
