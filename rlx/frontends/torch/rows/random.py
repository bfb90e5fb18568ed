"""Random numbers, which are refused: torch draws from a state that a graph does not have."""

from __future__ import annotations

from typing import Any, NoReturn

from rlx.frontends.common.values import full
from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.types import bool_

__all__ = ["ROWS"]


def drawn(n: Node, *args: Any, **kwargs: Any) -> NoReturn:
    n.refuse(
        "it draws random numbers, and a graph has no state to draw from; call .eval() on the module"
        " before the import, or give what is drawn as an input"
    )


def dropout(n: Node, x: Value, p: float, train: bool) -> Value:
    if train and p > 0:
        drawn(n)
    return x


def native_dropout(n: Node, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if train and p > 0:
        drawn(n)
    return x, full(x.shape, True, bool_)


ROWS: Rows = {
    **dict.fromkeys((
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm",
        "bernoulli", "normal", "normal_functional", "uniform", "multinomial", "poisson",
        "exponential", "geometric", "log_normal", "cauchy", "random", "binomial",
        "rrelu_with_noise", "rrelu_with_noise_functional",
    ), drawn),
    "dropout": dropout, "feature_dropout": dropout, "alpha_dropout": dropout,
    "native_dropout": native_dropout,
}  # fmt: skip
