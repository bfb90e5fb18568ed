"""JAX programs as they are, on the platform ``rlx`` beside JAX's own CPU backend: run as a script
with ``JAX_PLATFORMS=rlx,cpu``, it prints a line of JSON for each program."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PROGRAMS: dict[str, Callable[[np.random.Generator], Any]] = {}


def program(f: Callable[[np.random.Generator], Any]) -> Callable[[np.random.Generator], Any]:
    PROGRAMS[f.__name__] = f
    return f


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


@program
def mlp_trained(rng: np.random.Generator) -> Any:
    x, p = (
        drawn(rng, 16, 8),
        {"w": drawn(rng, 8, 32) / 3, "b": drawn(rng, 32), "v": drawn(rng, 32, 4) / 5},
    )

    @jax.jit
    def step(p: Any) -> Any:
        def loss(p: Any) -> Any:
            h = jax.nn.gelu(x @ p["w"] + p["b"])
            return -jax.nn.log_softmax(h @ p["v"])[:, 0].mean()

        value, slopes = jax.value_and_grad(loss)(p)
        return value, jax.tree.map(lambda a, d: a - 0.1 * d, p, slopes)

    for _ in range(2):
        _, p = step(p)
    return step(p)


@program
def transformer_under_scan(rng: np.random.Generator) -> Any:
    layers = {n: drawn(rng, 3, 16, 16) / 5 for n in ("q", "k", "v", "o", "m")}
    x, seen = drawn(rng, 2, 10, 16), np.tril(np.ones((10, 10), bool))

    def layer(h: Any, w: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", h @ w["q"], h @ w["k"]) / 4
        h = h + jax.nn.softmax(jnp.where(seen, scores, -1e9)) @ (h @ w["v"]) @ w["o"]
        return h + jax.nn.silu(h) @ w["m"], h.mean()

    def loss(layers: Any) -> Any:
        h, means = lax.scan(layer, x, layers)
        return (h**2).mean() + means.sum()

    return jax.jit(jax.value_and_grad(loss))(layers)


@program
def conv_net(rng: np.random.Generator) -> Any:
    x: Any = drawn(rng, 2, 12, 12, 3)
    kernels = (drawn(rng, 3, 3, 3, 8) / 5, drawn(rng, 3, 3, 8, 4) / 8)
    conv = partial(lax.conv_general_dilated, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def net(kernels: Any) -> Any:
        h = jax.nn.relu(conv(x, kernels[0], (1, 1), "SAME"))
        h = lax.reduce_window(h, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = conv(h, kernels[1], (2, 2), "VALID")
        return (h**2).mean()

    return jax.jit(jax.value_and_grad(net))(kernels)


@program
def fourier(rng: np.random.Generator) -> Any:
    x = drawn(rng, 4, 16)
    return jnp.fft.fft2(x), jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x))


@program
def linear_algebra(rng: np.random.Generator) -> Any:
    a, b = drawn(rng, 5, 5), drawn(rng, 5, 2)
    s = a @ a.T + 5 * np.eye(5, dtype=np.float32)
    found = [jnp.linalg.cholesky(s), jnp.linalg.solve(s, b), jnp.linalg.inv(s), jnp.linalg.det(a)]
    found += [*jnp.linalg.qr(a[:, :3]), *jnp.linalg.qr(a, mode="complete")]
    found += [jnp.linalg.lstsq(a[:, :3], b)[0], jnp.linalg.pinv(a[:3])]
    return found, jnp.linalg.eigvalsh(s), jnp.linalg.svd(a, compute_uv=False), jnp.linalg.slogdet(s)


@program
def draws(rng: np.random.Generator) -> Any:
    keys, r = jax.random.split(jax.random.key(3), 6), jax.random
    return (
        r.normal(keys[0], (50,)), r.uniform(keys[1], (20,)), r.randint(keys[2], (9,), 0, 100),
        r.permutation(keys[3], 10), r.categorical(keys[4], drawn(rng, 4, 5)),
        r.gamma(keys[5], 2.5, (5,)),
    )  # fmt: skip


@program
def loops_and_branches(rng: np.random.Generator) -> Any:
    def grow(c: Any) -> Any:
        return c[0] + 1, c[1] * 1.1 + c[0]

    grown = lax.while_loop(lambda c: (c[0] < 10) & (c[1].sum() < 1e4), grow, (0, jnp.ones(3)))
    return (
        grown,
        lax.fori_loop(0, 5, lambda i, x: x + i, 1.0),
        lax.switch(2, [lambda: 1, lambda: 2, lambda: 3]),
    )


@program
def element_types(rng: np.random.Generator) -> Any:
    names = (
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "float16",
        "bfloat16",
        "bool",
        "complex64",
    )
    arrays = [jnp.asarray(np.arange(6).astype(n)) for n in names]
    return [(x, x + x, x.sum(), x.astype("float32") if n != "complex64" else x.real)
            for n, x in zip(names, arrays, strict=True)]  # fmt: skip


@program
def sorting_and_indexing(rng: np.random.Generator) -> Any:
    x, i = jnp.asarray(drawn(rng, 5, 9)), np.array([3, 0, 4])
    return (
        jnp.sort(x), jnp.argsort(x), lax.top_k(x, 3), x[i], x.at[i].set(1.0), x.at[i, 2].add(2.0),
        lax.dynamic_slice(x, (2, 3), (2, 2)), jnp.cumsum(x, 1),
        lax.associative_scan(jnp.maximum, x),
    )  # fmt: skip


@program
def derivatives_and_batches(rng: np.random.Generator) -> Any:
    x = drawn(rng, 4, 5)
    rows = jax.vmap(lambda r: jnp.dot(r, r))(x)
    return (
        rows,
        jax.jacfwd(lambda v: jnp.sin(v) * v.sum())(x[0]),
        jax.hessian(lambda v: (v**3).sum())(x[0]),
    )


@program
def arrays_that_are_views(rng: np.random.Generator) -> Any:
    x = drawn(rng, 4, 6)
    return (
        jnp.asarray(x.T) + 1,
        jnp.asarray(x[::2, ::-1]),
        jnp.zeros((0, 3)) + 1,
        jnp.asarray(np.float32(3)),
    )


def difference(a: Any, b: Any) -> float:
    """Between arrays of one type and shape; infinite for others."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return float("inf")
    a, b = (v.astype(np.complex128) for v in (a, b))
    return float(np.max(np.abs(a - b) / (0.1 + np.abs(a)), initial=0))


def main() -> None:
    devices = [jax.devices(platform)[0] for platform in ("cpu", "rlx")]
    for name, f in PROGRAMS.items():
        try:
            found: list[Any] = []
            for device in devices:
                with jax.default_device(device):
                    found.append(
                        [np.asarray(v) for v in jax.tree.leaves(f(np.random.default_rng(1)))]
                    )
            worst = max(difference(a, b) for a, b in zip(*found, strict=True))
            print(json.dumps({"name": name, "worst": worst}))
        except Exception as e:
            print(json.dumps({"name": name, "error": str(e)}))


if __name__ == "__main__":
    main()
