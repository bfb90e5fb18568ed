"""Against PyTorch, where it is installed: what has its names and its conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.autodiff import gradients
from rlx.types import dtype
from support.evaluate import call
from support.samples import additive_mask, least

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer only")
F: Any = torch.nn.functional

X = np.concatenate([np.linspace(-8, 8, 161), [0.0, -0.0]])
IMAGE = np.random.default_rng(0).standard_normal((2, 4, 5, 6))

ACTIVATIONS: list[tuple[str, Any, dict[str, float]]] = [
    ("softplus", F.softplus, {}), ("mish", F.mish, {}), ("softsign", F.softsign, {}),
    ("elu", F.elu, {}), ("elu", F.elu, {"alpha": 0.3}), ("celu", F.celu, {"alpha": 0.3}),
    ("selu", F.selu, {}), ("hard_sigmoid", F.hardsigmoid, {}), ("hard_swish", F.hardswish, {}),
    ("relu6", F.relu6, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "theirs", "attrs"), ACTIVATIONS)
def test_activations(name: str, theirs: Any, attrs: dict[str, float]) -> None:
    found = call(lambda v: getattr(v, name)(**attrs), X)
    np.testing.assert_allclose(found, theirs(torch.tensor(X), **attrs), rtol=1e-9, atol=1e-12)


def test_leaky_relu_and_prelu() -> None:
    x = torch.tensor(IMAGE)
    found = call(lambda v: [v.leaky_relu(0.2), v.prelu(np.array([0.1, 0.2, 0.3, 0.4]))], IMAGE)
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    for a, b in zip(found, [F.leaky_relu(x, 0.2), F.prelu(x, weight)], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("wanted", [3, 4])
@pytest.mark.parametrize("dt", ["float32", "bfloat16", "float16"])
def test_attention_under_masks_that_hide_rows(dt: str, wanted: int) -> None:
    """Its result and its gradients by q, k, v and the mask, compiled and interpreted."""
    rng, kind = np.random.default_rng(0), getattr(torch, dt)
    own = dtype({"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[dt])
    arrays = [rng.standard_normal((2, 3, 9, 8)).astype(own.numpy) for _ in range(3)]
    bias = additive_mask((2, 1, 9, 9), own, rng)
    bias[1, 0, 3], bias[1, 0, 4] = least(own), -np.inf
    arrays.append(bias)
    leaves = [torch.tensor(a.astype(np.float32), dtype=kind, requires_grad=True) for a in arrays]
    out = F.scaled_dot_product_attention(*leaves)
    expected = [out, *torch.autograd.grad(out.float().square().sum(), leaves)]
    g = rlx.Graph("masks")
    x = [g.input(n, a.shape, own) for n, a in zip("qkvb", arrays, strict=True)]
    y = x[0].attention(*x[1:], layout="bhsd", mask_kind="bias")
    g.set_outputs([y, *gradients(y.cast(to="f32").square().sum(), x[:wanted])])
    feeds = dict(zip("qkvb", arrays, strict=True))
    for found in (rlx.Session("cpu").compile(g).run(feeds), rlx.interpret(g, feeds)):
        for a, theirs in zip(found, expected, strict=False):
            b = theirs.detach().float().numpy()
            limit = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}[dt] * np.abs(b).max()
            np.testing.assert_allclose(a.astype(np.float32), b, rtol=0, atol=limit)


@pytest.mark.parametrize("sizes", [(10, 12), (3, 9), (7, 4), (1, 1), (5, 6)])
@pytest.mark.parametrize(
    ("mode", "theirs"), [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")]
)
def test_resize(sizes: tuple[int, int], mode: str, theirs: str) -> None:
    x = torch.tensor(IMAGE)
    found = call(lambda v: v.resize(sizes, mode), IMAGE)
    np.testing.assert_allclose(found, F.interpolate(x, sizes, mode=theirs), rtol=1e-6, atol=1e-6)
    if mode == "nearest":
        exact = call(lambda v: v.resize(sizes, mode, "half_pixel"), IMAGE)
        np.testing.assert_array_equal(exact, F.interpolate(x, sizes, mode="nearest-exact"))
        return
    corners = call(lambda v: v.resize(sizes, mode, "align_corners"), IMAGE)
    want = F.interpolate(x, sizes, mode=theirs, align_corners=True)
    np.testing.assert_allclose(corners, want, rtol=1e-6, atol=1e-6)


def test_norms() -> None:
    x = torch.tensor(IMAGE)
    found = call(
        lambda v: [
            v.group_norm(num_groups=2), v.instance_norm(), v.local_response_norm(3),
            v.local_response_norm(4, 0.1), v.normalize(axes=1), v.normalize(1.0),
            v.pixel_shuffle(2), v.resize([10, 12]).pixel_unshuffle(2),
        ], IMAGE,
    )  # fmt: skip
    wanted = [
        F.group_norm(x, 2), F.instance_norm(x), F.local_response_norm(x, 3),
        F.local_response_norm(x, 4, 0.1), F.normalize(x), F.normalize(x, 1, -1),
        F.pixel_shuffle(x, 2), F.pixel_unshuffle(F.interpolate(x, (10, 12)), 2),
    ]  # fmt: skip
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_cross_entropy() -> None:
    x, labels = torch.tensor(IMAGE[0, 0]), torch.tensor([0, 5, -100, 2, 3])
    found = call(lambda v: v.softmax_cross_entropy(labels.numpy()), IMAGE[0, 0])
    np.testing.assert_allclose(found, F.cross_entropy(x, labels, reduction="none"), rtol=1e-12)


def test_remainders() -> None:
    x, y = np.meshgrid(np.arange(-5, 6) * 0.7, [-2.0, 1.5, 3.1])
    found = call(lambda a, b: [a % b, a.fmod(b), a // b], x, y)
    p, q = torch.tensor(x), torch.tensor(y)
    wanted = [torch.remainder(p, q), torch.fmod(p, q), torch.floor_divide(p, q)]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
