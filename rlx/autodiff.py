"""Derivatives of graphs. Every op has its own (``Op.vjp``, ``Op.jvp``); graphs have none yet."""

from __future__ import annotations

from typing import Any, NoReturn

from rlx.errors import UnsupportedError
from rlx.graph import Graph

__all__ = ["grad", "grad_with_loss", "hvp", "jacfwd", "jvp", "vmap"]


def _missing(what: str) -> NoReturn:
    raise UnsupportedError(
        f"{what} of a graph is not there yet; ops have their derivatives (vjp, jvp) and batching "
        "rules, one by one"
    )


def grad(graph: Graph, wrt: Any) -> Graph:
    """Gradients of the first output. UnsupportedError: it is not there yet."""
    _missing("grad")


def grad_with_loss(graph: Graph, wrt: Any) -> Graph:
    """The first output and its gradients. UnsupportedError: it is not there yet."""
    _missing("grad_with_loss")


def jvp(graph: Graph, wrt: Any) -> Graph:
    """A directional derivative. UnsupportedError: it is not there yet."""
    _missing("jvp")


def hvp(graph: Graph, wrt: Any) -> Graph:
    """A product of the Hessian with a vector. UnsupportedError: it is not there yet."""
    _missing("hvp")


def vmap(graph: Graph, inputs: Any, size: int) -> Graph:
    """The graph over a new leading axis. UnsupportedError: it is not there yet."""
    _missing("vmap")


def jacfwd(graph: Graph, wrt: Any) -> Graph:
    """A Jacobian, forwards. UnsupportedError: it is not there yet."""
    _missing("jacfwd")
