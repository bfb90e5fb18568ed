"""Gaussians blended front to back: every Gaussian at every pixel."""

from __future__ import annotations

from typing import Any

from rlx.ops.splat.gaussians import TILE
from support.jax_ops.peer import Table, jax, jnp

__all__ = ["OPS"]


def _alphas(n: Any, means: Any, conics: Any, opacities: Any, radii: Any) -> Any:
    """What each Gaussian covers of each pixel, [..., N, height, width], and whether it is seen."""
    px, py = jnp.arange(n.width) + 0.5, jnp.arange(n.height)[:, None] + 0.5
    spread = lambda v: v[..., None, None]
    dx, dy = spread(means[..., 0]) - px, spread(means[..., 1]) - py
    xx, xy, yy = (spread(conics[..., i]) for i in range(3))
    falloff = (xx * dx * dx + yy * dy * dy) / 2 + xy * dx * dy
    r = spread(radii)
    near = (jnp.abs(dx) <= r) & (jnp.abs(dy) <= r) & (r > 0)
    # Where nothing is seen the exponential may overflow, and its slope be infinite.
    alpha = jnp.minimum(spread(opacities) * jnp.exp(-jnp.where(falloff >= 0, falloff, 0)), 0.99)
    return alpha, near & (falloff >= 0) & (alpha >= 1 / 255)


def _blended(alpha: Any, colors: Any, first: Any) -> tuple[Any, Any]:
    """Alphas, 0 of what is not blended, front to back: the image and what is left of ``first``."""
    image, left = 0, first
    for i in range(alpha.shape[-3]):
        here = alpha[..., i, :, :]
        image = image + (here * left)[..., None] * colors[..., i, None, None, :]
        left = left * (1 - here)
    return image + jnp.zeros((*left.shape, colors.shape[-1])), left


def _rasterize(
    n: Any, means: Any, conics: Any, colors: Any, opacities: Any, radii: Any
) -> tuple[Any, Any, Any]:
    alpha, seen = _alphas(n, means, conics, opacities, radii)
    shape = (*alpha.shape[:-3], n.height, n.width)
    live, left, last = jnp.ones(shape, bool), jnp.ones(shape), jnp.zeros(shape, jnp.int32)
    shares = []
    for i in range(alpha.shape[-3]):
        here = seen[..., i, :, :] & live
        after = left * (1 - jnp.where(here, alpha[..., i, :, :], 0))
        live = live & ~(here & (after < 1e-4))
        here = here & live
        left = jnp.where(here, after, left)
        last = jnp.where(here, i + 1, last)
        shares.append(jnp.where(here, alpha[..., i, :, :], 0))
    blend = jnp.stack(shares, -3) if shares else alpha
    return *_blended(blend, colors, jnp.ones(shape)), last


def _rasterize_grad(
    n: Any, means: Any, conics: Any, colors: Any, opacities: Any, radii: Any,
    left: Any, last: Any, g: Any, gt: Any,
) -> Any:  # fmt: skip
    """JAX's gradient of a blending of the Gaussians up to ``last`` that ends with ``left``."""

    def ended(means: Any, conics: Any, opacities: Any, colors: Any) -> Any:
        alpha, seen = _alphas(n, means, conics, opacities, radii)
        number = jnp.arange(alpha.shape[-3])[:, None, None]
        alpha = jnp.where(seen & (number < last[..., None, :, :]), alpha, 0)
        first = jax.lax.stop_gradient(left / jnp.prod(1 - alpha, -3))
        return _blended(alpha, colors, first)

    def part(rows: Any) -> Any:
        weight = rows[:, None]
        found = pull((g * weight[..., None], gt * weight))
        return jnp.concatenate([found[0], found[1], found[2][..., None], found[3]], -1)

    _, pull = jax.vjp(ended, means, conics, opacities, colors)
    number = jnp.arange(n.height) // TILE % n.parts
    return jnp.stack([part((number == p) * 1.0) for p in range(n.parts)], -3)


def _rasterize_tangent(
    n: Any, means: Any, conics: Any, colors: Any, opacities: Any, radii: Any, *tangents: Any
) -> Any:
    f = lambda *floats: _rasterize(n, *floats, radii)[:2]
    return jax.jvp(f, (means, conics, colors, opacities), tangents)[1]


OPS: Table = {
    "mir.rasterize_gaussians": _rasterize,
    "mir.rasterize_gaussians_grad": _rasterize_grad,
    "mir.rasterize_gaussians_tangent": _rasterize_tangent,
}
