"""Transforms of graphs: derivatives and batches.

    g = rlx.Graph("loss")
    ...
    step = rlx.value_and_grad(g, wrt=["w", "b"])

Each takes a Graph and gives a new one, of ordinary ops, on the same inputs and params, which keep
their names and values. So transforms go into one another in any order: ``rlx.vmap(rlx.grad(g,
"x"), in_axes={"x": 0}, axis_size=8)``. ``rlx.ops.rules`` chains the rules of the ops.
"""

from __future__ import annotations

from rlx.autodiff.batching import vmap
from rlx.autodiff.forward import hvp, jvp
from rlx.autodiff.jacobian import hessian, jacfwd, jacrev
from rlx.autodiff.reverse import grad, grad_with_loss, gradients, value_and_grad, vjp
from rlx.ir.builders import located as _located
from rlx.ops.movement.stop_gradient import StopGradient as _StopGradient

__all__ = [
    "grad", "grad_with_loss", "gradients", "hessian", "hvp", "jacfwd", "jacrev", "jvp",
    "stop_gradient", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

stop_gradient = _located(_StopGradient.build)
