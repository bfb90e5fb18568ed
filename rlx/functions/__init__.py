"""Python functions of arrays as graphs: traced, compiled, differentiated and batched.

    @rlx.jit
    def predict(params, x):
        return (x @ params["w"] + params["b"]).softmax(-1)

    predict(params, x)                        # compiled once for these shapes and element types
    rlx.grad(lambda p, x: predict(p, x).sum())(params, x)

``function`` holds compiled graphs by what they were traced for; ``trees`` says what a function may
take and give.
"""

from __future__ import annotations

from rlx.functions.function import Function, jit
from rlx.functions.transforms import grad, value_and_grad, vmap

__all__ = ["Function", "grad", "jit", "value_and_grad", "vmap"]
