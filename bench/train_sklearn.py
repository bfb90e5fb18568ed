"""The dense net of ``bench train`` in scikit-learn's MLPClassifier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.train_cases import LEARNING_RATE, Case

__all__ = ["prepare_sklearn"]


def prepare_sklearn(case: Case, threads: int) -> Callable[[], float]:
    """A call of ``partial_fit``, which is a step on its batch; BLAS takes the threads that the
    process may use."""
    from sklearn.neural_network import MLPClassifier

    weights, (x, labels) = case.weights(), case.data()
    net = MLPClassifier(
        weights["b1"].size, solver="sgd", alpha=0.0, batch_size=len(x), momentum=0.0,
        learning_rate_init=LEARNING_RATE, nesterovs_momentum=False,
    )  # fmt: skip
    net.partial_fit(x, labels, classes=np.arange(weights["b2"].size))
    for own, names in ((net.coefs_, ("w1", "w2")), (net.intercepts_, ("b1", "b2"))):
        for array, name in zip(own, names, strict=True):
            array[...] = weights[name]

    def step() -> float:
        net.partial_fit(x, labels)
        return float(net.loss_)

    return step
