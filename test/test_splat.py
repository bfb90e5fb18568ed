"""Gaussian splatting against a transcription of the papers, finite differences, and by hand.

The judge ``Judge`` goes pixel by pixel and Gaussian by Gaussian, in matrices, and shares nothing
with the library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx import splat
from rlx.errors import DTypeError, GraphError, RlxError, ShapeError, UnsupportedError
from rlx.ops.movement.constant import Constant
from rlx.ops.rules import batch
from support import ad
from support.tolerances import assert_derivative

Array = np.ndarray[Any, Any]
NAMES = ("means", "log_scales", "rotations", "opacity_logits", "colors")
WIDTH, HEIGHT = 21, 18
VIEW = np.eye(4)


def camera(view: Any = VIEW, width: int = WIDTH, height: int = HEIGHT) -> splat.Camera:
    return splat.Camera(view, 22.0, 25.0, width / 2 - 0.7, height / 2 + 0.4, width, height)


def scene(n: int = 12, coefficients: int = 0, seed: int = 0) -> dict[str, Array]:
    """Gaussians before the camera, near enough to each other to overlap."""
    rng = np.random.default_rng([seed, n, coefficients])
    means = rng.uniform([-1.2, -1.0, 2.5], [1.2, 1.0, 5.0], (n, 3))
    colors = (n, coefficients, 3) if coefficients else (n, 3)
    return {
        "means": means,
        "log_scales": rng.uniform(-2.5, -0.8, (n, 3)),
        "rotations": rng.standard_normal((n, 4)),
        "opacity_logits": rng.standard_normal(n) + 1,
        "colors": rng.uniform(0.1, 1, colors) * (0.4 if coefficients else 1),
    }


def turned(seed: int = 3) -> Array:
    """A view that is none of the axes'."""
    rng = np.random.default_rng(seed)
    view = np.eye(4)
    axis = np.cross(np.eye(3), rng.uniform(-0.2, 0.2, 3))
    view[:3, :3] = np.linalg.qr(np.eye(3) + axis)[0]
    view[:3, :3] *= np.sign(np.diag(view[:3, :3]))
    view[:3, 3] = rng.uniform(-0.2, 0.2, 3)
    return view


def values(
    g: rlx.Graph, feeds: dict[str, Array]
) -> tuple[rlx.Value, rlx.Value, rlx.Value, rlx.Value, rlx.Value]:
    a, b, c, d, e = (g.input(n, list(feeds[n].shape), feeds[n].dtype) for n in NAMES)
    return a, b, c, d, e


def run(g: rlx.Graph, feeds: dict[str, Array], tolerance: float = 1e-10) -> list[Array]:
    """What the graph gives compiled, which is what it means, with the same bits on two threads."""
    one, two = (rlx.Session("cpu", threads=n).compile(g).run(feeds) for n in (1, 2))
    meant = rlx.Session("interpret").compile(g).run(feeds)
    for a, b, c in zip(one, two, meant, strict=True):
        assert a.tobytes() == b.tobytes(), "the number of threads decides a bit"
        np.testing.assert_allclose(a, c, rtol=tolerance, atol=tolerance)
    return list(two)


def rendered(feeds: dict[str, Array], cam: splat.Camera, **options: Any) -> tuple[Array, Array]:
    g = rlx.Graph("render")
    g.set_outputs(splat.render(*values(g, feeds), cam, **options))
    single = feeds["means"].dtype == np.float32
    colors, alpha = run(g, feeds, 2e-5 if single else 1e-10)
    return colors, alpha


# -- the judge -----------------------------------------------------------------------------


def judged_projection(feeds: dict[str, Array], cam: splat.Camera) -> list[dict[str, Any]]:
    """What is seen of each Gaussian: the formulas of Kerbl et al., section 4, in matrices."""
    view = np.asarray(cam.view)
    position = np.linalg.inv(view)[:3, 3]
    found: list[dict[str, Any]] = []
    for mean, log_scale, (x, y, z, w), logit, coefficients in zip(
        *(feeds[n] for n in NAMES), strict=True
    ):
        t = (view @ [*mean, 1])[:3]
        if t[2] <= 0.01:
            continue
        # A quaternion turns v into q v q*; the scalar and vector form of that.
        u, r = np.array([x, y, z]), w
        length = r * r + u @ u
        rot = ((r * r - u @ u) * np.eye(3) + 2 * np.outer(u, u) + 2 * r * _cross(u)) / length
        sigma = rot @ np.diag(np.exp(2 * log_scale)) @ rot.T
        # gsplat's bounds, by its tangents of half the field of view.
        tangents = cam.width / (2 * cam.fx), cam.height / (2 * cam.fy)
        slope = [
            np.clip(t[i] / t[2], -c / f - 0.3 * tan, (size - c) / f + 0.3 * tan)
            for i, (c, f, size, tan) in enumerate((
                (cam.cx, cam.fx, cam.width, tangents[0]), (cam.cy, cam.fy, cam.height, tangents[1]),
            ))
        ]  # fmt: skip
        jacobian = np.array(
            [[cam.fx / t[2], 0, -cam.fx * slope[0] / t[2]],
             [0, cam.fy / t[2], -cam.fy * slope[1] / t[2]]]
        )  # fmt: skip
        m = jacobian @ view[:3, :3]
        cov = m @ sigma @ m.T + 0.3 * np.eye(2)
        color = coefficients
        if color.ndim == 2:
            away = (mean - position) / np.linalg.norm(mean - position)
            color = np.maximum(judged_harmonics(len(color), away) @ color + 0.5, 0)
        found.append({
            "mean": np.array([cam.fx * t[0] / t[2] + cam.cx, cam.fy * t[1] / t[2] + cam.cy]),
            "inverse": np.linalg.inv(cov), "depth": t[2], "color": color,
            "opacity": 1 / (1 + np.exp(-logit)),
        })  # fmt: skip
    return found


def _cross(u: Array) -> Array:
    return np.array([[0, -u[2], u[1]], [u[2], 0, -u[0]], [-u[1], u[0], 0]])


def judged_harmonics(count: int, d: Array) -> Array:
    """Real harmonics from the definition, by derivatives of Legendre polynomials, in the order of
    m from -l to l. The sign (-1)^m is that of Condon and Shortley, in INRIA's code too."""
    out: list[float] = []
    for order in range(math.isqrt(count)):
        legendre = np.polynomial.Legendre.basis(order)
        for m in range(-order, order + 1):
            a = abs(m)
            norm = math.sqrt(
                (2 * order + 1) / (4 * math.pi) * math.factorial(order - a)
                / math.factorial(order + a)
            )  # fmt: skip
            around = complex(d[0], d[1]) ** a
            part = 1.0 if m == 0 else math.sqrt(2) * (around.imag if m < 0 else around.real)
            out.append((-1) ** a * norm * legendre.deriv(a)(d[2]) * part)
    return np.array(out)


def judged_image(
    gaussians: Sequence[dict[str, Any]], cam: splat.Camera, background: Array
) -> tuple[Array, Array]:
    """Equation 3 of the paper, with the thresholds of its appendix C."""
    image, alpha = np.zeros((cam.height, cam.width, len(background))), np.zeros(0)
    left = np.ones((cam.height, cam.width))
    ordered = sorted(gaussians, key=lambda s: s["depth"])
    for i in range(cam.height):
        for j in range(cam.width):
            for s in ordered:
                d = s["mean"] - (j + 0.5, i + 0.5)
                alpha = min(0.99, s["opacity"] * math.exp(-0.5 * d @ s["inverse"] @ d))
                if alpha < 1 / 255:
                    continue
                if left[i, j] * (1 - alpha) < 1e-4:
                    break
                image[i, j] += s["color"] * alpha * left[i, j]
                left[i, j] *= 1 - alpha
            image[i, j] += left[i, j] * background
    return image, 1 - left


@pytest.mark.parametrize("coefficients", [0, 1, 9, 16])
def test_render_is_what_the_paper_says(coefficients: int) -> None:
    feeds, cam = scene(14, coefficients), camera(turned())
    background = np.array([0.2, 0.5, 0.9])
    colors, alpha = rendered(feeds, cam, background=background)
    expected = judged_image(judged_projection(feeds, cam), cam, background)
    assert 0.1 < expected[1].mean() < 0.9, "the scene shows nothing or hides everything"
    np.testing.assert_allclose(colors, expected[0], atol=1e-12)
    np.testing.assert_allclose(alpha, expected[1], atol=1e-12)


def test_any_scene() -> None:
    """Whatever the parameters are, within bounds that keep the judge's own sums exact."""
    few, cam = 4, CENTRED
    shapes = {n: a.shape for n, a in scene(few).items()}
    g = rlx.Graph("any")
    feeds = {n: np.zeros(s) for n, s in shapes.items()}
    g.set_outputs(splat.render(*values(g, feeds), cam))
    compiled = rlx.Session("cpu").compile(g)
    numbers = st.floats(-2, 2, allow_subnormal=False).map(lambda v: round(v, 3))

    @settings(max_examples=60)
    @given(st.lists(numbers, min_size=14 * few, max_size=14 * few))
    def check(drawn: list[float]) -> None:
        cuts = np.cumsum([math.prod(s) for s in shapes.values()])[:-1]
        parts = np.split(np.array(drawn), cuts)
        feeds = {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}
        feeds["means"][:, 2] += 2.5
        feeds["rotations"][~feeds["rotations"].any(axis=1)] = (0, 0, 0, 1)
        expected = judged_image(judged_projection(feeds, cam), cam, np.zeros(3))
        for found, wanted in zip(compiled.run(feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-9)

    check()


def test_the_signs_are_those_of_inria() -> None:
    """The first degree is -y, z, -x, as in its ``eval_sh``."""
    found = judged_harmonics(4, np.array([0.6, 0.0, 0.8]))
    np.testing.assert_allclose(found[1:], 0.4886025119029199 * np.array([0, 0.8, -0.6]), atol=1e-12)


def test_f32_is_near_f64() -> None:
    feeds, cam = scene(30, 4), camera(turned())
    exact, _ = rendered(feeds, cam)
    single, _ = rendered({n: a.astype(np.float32) for n, a in feeds.items()}, cam)
    # Where an alpha meets 1/255 the two may part by as much.
    assert np.abs(single - exact).max() < 1e-2
    assert np.abs(single - exact).mean() < 1e-5


def test_many_gaussians_fill_pixels() -> None:
    """The early end: behind so many opaque ones a pixel ends, and none has less than 1e-4 left."""
    feeds = scene(400)
    feeds["opacity_logits"] += 4
    cam = camera()
    colors, alpha = rendered(feeds, cam)
    expected = judged_image(judged_projection(feeds, cam), cam, np.zeros(3))
    assert (expected[1] > 0.999).any()
    assert (1 - alpha).min() >= 1e-4
    np.testing.assert_allclose(colors, expected[0], atol=1e-12)


# -- by hand -------------------------------------------------------------------------------


def by_hand(*gaussians: tuple[float, float, tuple[float, float, float]]) -> dict[str, Array]:
    """Round Gaussians on the axis, of depth, opacity and color."""
    n = len(gaussians)
    opacity = np.array([o for _, o, _ in gaussians]).reshape(n)
    with np.errstate(divide="ignore"):
        logits = np.log(opacity) - np.log1p(-opacity)
    return {
        "means": np.array([[0, 0, z] for z, _, _ in gaussians], float).reshape(n, 3),
        "log_scales": np.full((n, 3), -1.0),
        "rotations": np.tile([0.0, 0, 0, 2], (n, 1)),
        "opacity_logits": logits,
        "colors": np.array([c for _, _, c in gaussians], float).reshape(n, 3),
    }


CENTRED = splat.Camera(np.eye(4), 10.0, 10.0, 4.5, 4.5, 9, 9)
RED, GREEN = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


def test_one_gaussian_at_the_centre() -> None:
    colors, alpha = rendered(by_hand((2.0, 0.5, RED)), CENTRED, background=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(colors[4, 4], [0.5, 0, 0.5])
    variance = (10 / 2 * math.exp(-1)) ** 2 + 0.3
    np.testing.assert_allclose(alpha[4, 6], 0.5 * math.exp(-4 / (2 * variance)))
    np.testing.assert_allclose(alpha, alpha[::-1].T)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_nearer_one_is_in_front(swapped: bool) -> None:
    pair = [(2.0, 0.6, RED), (3.0, 0.5, GREEN)]
    colors, alpha = rendered(by_hand(*pair[:: -1 if swapped else 1]), CENTRED)
    np.testing.assert_allclose(colors[4, 4], [0.6, 0.4 * 0.5, 0])
    np.testing.assert_allclose(alpha[4, 4], 0.8)


def test_of_equal_depth_the_first_is_in_front() -> None:
    colors, _ = rendered(by_hand((2.0, 0.6, RED), (2.0, 0.5, GREEN)), CENTRED)
    np.testing.assert_allclose(colors[4, 4], [0.6, 0.2, 0])


def test_opacity_one_is_clamped() -> None:
    colors, alpha = rendered(by_hand((2.0, 1.0, RED), (3.0, 0.5, GREEN)), CENTRED)
    np.testing.assert_allclose(colors[4, 4], [0.99, 0.005, 0])
    np.testing.assert_allclose(alpha[4, 4], 1 - 0.01 * 0.5)


def test_what_would_leave_too_little_is_not_blended() -> None:
    """The third would leave 0.02**3. It ends the pixel: the fourth would leave enough, but is not
    looked at."""
    four = by_hand((2.0, 0.98, RED), (2.5, 0.98, RED), (3.0, 0.98, GREEN), (3.5, 0.5, GREEN))
    colors, alpha = rendered(four, CENTRED)
    np.testing.assert_allclose(colors[4, 4], [0.98 + 0.02 * 0.98, 0, 0])
    np.testing.assert_allclose(1 - alpha[4, 4], 4e-4, rtol=1e-10)
    g = rlx.Graph("slopes")
    leaves = values(g, four)
    image, _ = splat.render(*leaves, CENTRED)
    g.set_outputs(ad.grad(image[4, 4].sum(), leaves[4:]))
    np.testing.assert_allclose(run(g, four)[0][:, 0], [0.98, 0.02 * 0.98, 0, 0])


def test_the_slope_is_clamped() -> None:
    """That of one far to the right of the image, whose projection is linearised nearer to it."""
    feeds = by_hand((2.0, 0.5, RED))
    feeds["means"][0, 0] = 2.4
    g = rlx.Graph("beyond")
    projected = splat.prepare(*values(g, feeds), CENTRED)
    g.set_outputs(list(projected))
    means, conics, depths, radii, colors, opacities = run(g, feeds)
    np.testing.assert_allclose(means, [[4.5 + 12, 4.5]])
    scale = (10 / 2 * math.exp(-1)) ** 2
    slope = (4.5 + 0.15 * 9) / 10
    variances = scale * (1 + slope**2) + 0.3, scale + 0.3
    np.testing.assert_allclose(conics, [[1 / variances[0], 0, 1 / variances[1]]], atol=1e-12)
    np.testing.assert_array_equal(radii, [math.ceil(3.33 * math.sqrt(variances[0]))])
    assert (depths, opacities) == (2, 0.5)
    np.testing.assert_array_equal(colors, [RED])


def hidden() -> dict[str, Array]:
    feeds = by_hand(*[(2.0, 0.5, RED)] * 5, (-2.0, 0.5, RED), (0.005, 0.5, RED))
    feeds["means"][0, 0] = 50
    feeds["means"][1, 1] = -50
    feeds["rotations"][2] = 0
    feeds["opacity_logits"][3] = -8
    feeds["opacity_logits"][4] = -np.inf
    return feeds


def test_all_culled() -> None:
    feeds = hidden()
    g = rlx.Graph("culled")
    leaves = values(g, feeds)
    projected = splat.prepare(*leaves, CENTRED)
    colors, alpha = splat.rasterize(projected, 9, 9, background=[0.0, 0.25, 1.0])
    one = Constant(np.ones((9, 9, 3))).out
    grads = ad.vjp([colors], leaves, [one])
    g.set_outputs([projected.radii, colors, alpha, *[v for v in grads if v is not None]])
    radii, image, cover, *slopes = run(g, feeds)
    assert not radii.any()
    assert not cover.any()
    np.testing.assert_array_equal(image, np.tile([0.0, 0.25, 1.0], (9, 9, 1)))
    assert len(slopes) == 5
    assert not any(s.any() for s in slopes)


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_what_is_no_gaussian_is_culled(device: str) -> None:
    """One with a parameter that is nan, infinite or huge leaves the others as they are."""
    whole = {n: a.astype(np.float32) for n, a in scene(4).items()}
    expected, _ = rendered({n: np.delete(a, 2, axis=0) for n, a in whole.items()}, camera())
    g = rlx.Graph("odd")
    projected = splat.prepare(*values(g, whole), camera())
    colors, _ = splat.rasterize(projected, WIDTH, HEIGHT)
    g.set_outputs([projected.radii, colors])
    compiled = rlx.Session(device).compile(g)
    for name in NAMES[:4]:
        for odd in (math.nan, math.inf, -math.inf, 3e38, -3e38):
            feeds = whole | {name: whole[name].copy()}
            feeds[name][2] = odd
            with np.errstate(all="ignore"):
                radii, image = compiled.run(feeds)
            if (name == "log_scales" and odd < 0) or (name == "opacity_logits" and odd > 0):
                # A point, as wide as the blur, or what hides all behind it.
                assert radii[2] > 0
            else:
                assert radii[2] == 0, (name, odd)
                np.testing.assert_allclose(image, expected, atol=1e-5)


def test_no_gaussian() -> None:
    colors, alpha = rendered(by_hand(), CENTRED, background=[1.0, 0.5, 0.0])
    np.testing.assert_array_equal(colors, np.tile([1.0, 0.5, 0.0], (9, 9, 1)))
    assert not alpha.any()


def test_an_image_of_one_pixel() -> None:
    tiny = splat.Camera(np.eye(4), 1.0, 1.0, 0.5, 0.5, 1, 1)
    colors, alpha = rendered(by_hand((2.0, 0.5, RED)), tiny)
    np.testing.assert_allclose(colors, [[[0.5, 0, 0]]])
    np.testing.assert_allclose(alpha, [[0.5]])


def test_any_number_of_channels() -> None:
    feeds = scene(5)
    cam = camera()
    three, _ = rendered(feeds, cam)
    wide, _ = rendered(feeds | {"colors": feeds["colors"][:, [0, 2, 1, 1]]}, cam)
    np.testing.assert_array_equal(wide, three[..., [0, 2, 1, 1]])


def test_many_cameras_by_batching() -> None:
    feeds = scene(6, 4)
    g = rlx.Graph("cameras")
    leaves = values(g, feeds)
    view, many = g.input("view", [4, 4], "f64"), g.input("views", [3, 4, 4], "f64")
    colors, alpha = splat.render(*leaves, camera(view))
    stands = {v: (v, False) for v in leaves} | {view: (many, True)}
    g.set_outputs([v for v, _ in batch([colors, alpha], stands)])
    views = np.stack([turned(seed) for seed in range(3)])
    found = run(g, feeds | {"views": views, "view": VIEW})
    for n, one in enumerate(views):
        for a, b in zip(found, rendered(feeds, camera(one)), strict=True):
            np.testing.assert_allclose(a[n], b, atol=1e-12)


# -- derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("coefficients", [0, 16])
def test_derivatives_are_the_differences(coefficients: int) -> None:
    """By all Gaussians, background and view. Alphas below 1/255 are cut, which a difference sees,
    so the scene is of wide Gaussians that are seen everywhere."""
    rng = np.random.default_rng(5)
    fed = scene(6, coefficients, seed=1)
    fed |= {"view": turned(), "background": np.array([0.3, 0.6, 0.1])}
    fed["log_scales"] += 1.2
    ways = {n: rng.standard_normal(a.shape) for n, a in fed.items()}
    g = rlx.Graph("derivatives")
    leaves = {n: g.input(n, list(a.shape), a.dtype) for n, a in fed.items()}
    m, s, r, o, c = (leaves[n] for n in NAMES)
    outputs = splat.render(m, s, r, o, c, camera(leaves["view"]), background=leaves["background"])
    weights = [Constant(rng.standard_normal(v.type.static_shape)).out for v in outputs]
    loss = (outputs[0] * weights[0]).sum() + (outputs[1] * weights[1]).sum()
    forth = [
        v for n, leaf in leaves.items() for v in ad.jvp([loss], [leaf], [Constant(ways[n]).out])
    ]
    assert all(v is not None for v in forth)
    g.set_outputs([*(v for v in forth if v is not None), *ad.grad(loss, list(leaves.values()))])
    found = run(g, fed, 1e-8)
    g.set_outputs([loss])
    compiled = rlx.Session("cpu").compile(g)
    step = 1e-6
    for (name, way), tangent, grad in zip(ways.items(), found, found[len(ways) :], strict=False):
        high, low = (compiled.run(fed | {name: fed[name] + s * way})[0] for s in (step, -step))
        assert np.abs(grad).max() > 1e-3, f"{name} has no gradient to speak of"
        assert_derivative(np.sum(grad * way), (high - low) / (2 * step))
        assert_derivative(tangent, (high - low) / (2 * step))


def test_the_gradient_of_one_gaussian_by_hand() -> None:
    """At the mean of one: by color alpha, by opacity the color less the background."""
    feeds = by_hand((2.0, 0.5, (0.8, 0.0, 0.0)))
    g = rlx.Graph("hand")
    leaves = values(g, feeds)
    colors, _ = splat.render(*leaves, CENTRED, background=[0.2, 0.0, 0.0])
    wrt = ad.grad(colors[4, 4, 0], leaves)
    g.set_outputs(wrt)
    means, _, _, logits, by_color = run(g, feeds)
    np.testing.assert_allclose(by_color, [[0.5, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(logits, [(0.8 - 0.2) * 0.5 * 0.5])
    np.testing.assert_allclose(means, 0, atol=1e-12)


def test_a_clamped_alpha_has_no_slope() -> None:
    feeds = by_hand((2.0, 0.999, RED))
    g = rlx.Graph("clamped")
    leaves = values(g, feeds)
    colors, _ = splat.render(*leaves, CENTRED)
    seen, opacity = colors[4, 4, 0], leaves[3]
    (forth,) = ad.jvp([seen], [opacity], [opacity])
    assert forth is not None
    g.set_outputs([forth, *ad.grad(seen, leaves)])
    *others, by_color = run(g, feeds)
    assert not any(a.any() for a in others)
    np.testing.assert_allclose(by_color, [[0.99, 0, 0]])


def test_a_tall_image_adds_up_in_one_order() -> None:
    """An image of more rows of tiles than the adjoint has parts: ``run`` compares the bits."""
    feeds = {n: a.astype(np.float32) for n, a in scene(40).items()}
    g = rlx.Graph("tall")
    leaves = values(g, feeds)
    cam = splat.Camera(np.eye(4), 30.0, 150.0, 8.0, 150.0, 20, 300)
    colors, _ = splat.render(*leaves, cam)
    g.set_outputs(ad.grad((colors * colors).sum(), leaves))
    assert all(np.isfinite(a).all() and a.any() for a in run(g, feeds, 2e-2))


def test_descent_finds_a_gaussian() -> None:
    """Ten steps from a wrong color and place come nearer to the image."""
    target = by_hand((2.0, 0.9, RED))
    wanted, _ = rendered(target, CENTRED)
    start = {n: a.copy() for n, a in target.items()}
    start["means"][0, :2] = 0.15
    start["colors"][:] = 0.4
    g = rlx.Graph("descent")
    leaves = values(g, start)
    colors, _ = splat.render(*leaves, CENTRED)
    off = colors - Constant(wanted).out
    loss = (off * off).sum()
    g.set_outputs([loss, *ad.grad(loss, leaves)])
    compiled = rlx.Session("cpu").compile(g)
    losses: list[float] = []
    for _ in range(10):
        now, *slopes = compiled.run(start)
        losses.append(float(now))
        start = {n: a - 5e-3 * s for (n, a), s in zip(start.items(), slopes, strict=True)}
    assert losses[-1] < 0.3 * losses[0], losses


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("derive", [ad.vjp, ad.jvp])
def test_there_is_no_second_derivative(derive: Any) -> None:
    g = rlx.Graph("second")
    leaves = values(g, scene(3))
    colors, _ = splat.render(*leaves, camera())
    (back,) = ad.grad(colors.sum(), leaves[:1])
    (forth,) = ad.jvp([colors], leaves[:1], leaves[:1])
    assert forth is not None
    for first in (back, forth):
        with pytest.raises(UnsupportedError, match="first derivatives, and no second"):
            derive([first], leaves[:1], [first if derive is ad.vjp else leaves[0]])


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            {"means": ((4, 2), "f32")},
            ShapeError,
            r"means is f32\[4, 2\], expected \[N, 3\]|means is",
        ),
        ({"means": ((4, 3), "f16")}, DTypeError, "takes f32 or f64, found f16"),
        ({"log_scales": ((5, 3), "f32")}, ShapeError, "log_scales is .*expected"),
        ({"rotations": ((4, 3), "f32")}, ShapeError, "rotations is .*expected"),
        ({"opacity_logits": ((4, 1), "f32")}, ShapeError, "opacity_logits is .*expected"),
        ({"opacity_logits": ((4,), "f64")}, DTypeError, "cast one of them"),
        ({"colors": ((4, 5, 3), "f32")}, ShapeError, "for K of 1, 4, 9, 16"),
        ({"colors": ((4,), "f32")}, ShapeError, "spherical harmonics"),
    ],
)
def test_gaussians_that_do_not_fit(
    change: dict[str, Any], error: type[RlxError], match: str
) -> None:
    shapes: dict[str, Any] = {n: (a.shape, "f32") for n, a in scene(4).items()}
    g = rlx.Graph("bad")
    a, b, c, d, e = (g.input(n, list(s), dt) for n, (s, dt) in (shapes | change).items())
    with pytest.raises(error, match=match) as refusal:
        splat.render(a, b, c, d, e, camera())
    assert re.match(re.escape(__file__) + r":\d+: ", str(refusal.value)), "the error is not located"


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"view": np.eye(3)}, ShapeError, r"shape \[3, 3\], expected \[4, 4\]"),
        ({"fx": 0.0}, GraphError, "focal length fx is 0.0, expected it positive"),
        ({"cy": math.nan}, GraphError, "cy is nan, expected a finite number"),
        ({"fy": "wide"}, GraphError, "fy is 'wide'"),
        ({"width": 0}, GraphError, "width is 0, expected a positive whole number"),
        ({"height": 2.5}, GraphError, "height is 2.5"),
    ],
)
def test_cameras_that_do_not_fit(change: Any, error: type[RlxError], match: str) -> None:
    right: Any = {"view": VIEW, "fx": 1.0, "fy": 1.0, "cx": 1, "cy": 1, "width": 2, "height": 2}
    with pytest.raises(error, match=match) as refusal:
        splat.Camera(**right | change)
    assert re.match(re.escape(__file__) + r":\d+: ", str(refusal.value)), "the error is not located"


def test_options_that_do_not_fit() -> None:
    g = rlx.Graph("bad")
    leaves = values(g, scene(3))
    with pytest.raises(ShapeError, match=r"background is .*expected"):
        splat.render(*leaves, camera(), background=[0.0, 1.0])
    with pytest.raises(GraphError, match="means is an ndarray, expected a Value"):
        splat.render(np.zeros((3, 3)), *leaves[1:], camera())  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphError, match="camera is an ndarray, expected a splat"):
        splat.render(*leaves, VIEW)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphError, match="prepare gives, found a list"):
        splat.rasterize([*leaves], 4, 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphError, match="a positive near"):
        splat.render(*leaves, camera(), near=0.0)
    with pytest.raises(DTypeError, match=r"view is .*cast it"):
        splat.render(*leaves, camera(g.input("view", [4, 4], "f32")))


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "splat.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # where it writes a file
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)


def test_parts_that_do_not_fit_each_other() -> None:
    from rlx.splat.harmonics import from_harmonics

    g = rlx.Graph("parts")
    n = {name: g.input(name, shape) for name, shape in (
        ("means", [3, 2]), ("conics", [3, 3]), ("depths", [3]), ("colors", [3, 3]), ("alpha", [3]),
    )}  # fmt: skip
    radii = g.input("radii", [4], "i32")
    wrong = splat.Projected(n["means"], n["conics"], n["depths"], radii, n["colors"], n["alpha"])
    with pytest.raises(ShapeError, match=r"depths is 3xf32 and radii is 4xi32, expected \[N\]"):
        splat.rasterize(wrong, 4, 4)
    k, along = g.input("k", [2, 4, 3]), g.input("along", [2, 3])
    with pytest.raises(ShapeError, match=r"expected \[N, K, 3\] for K of 1, 4, 9, 16"):
        from_harmonics(g.input("five", [2, 5, 3]), along)
    with pytest.raises(ShapeError, match=r"directions are 3xf32, expected \[2, 3\]"):
        from_harmonics(k, n["depths"])
    with pytest.raises(DTypeError, match="cast one of them"):
        from_harmonics(k, g.input("wide", [2, 3], "f64"))
