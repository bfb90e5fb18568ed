"""The steps of ``bench train`` in PyTorch, eager and compiled, and in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.train_cases import LEARNING_RATE, Case, Transformer

__all__ = ["prepare_inductor", "prepare_jax", "prepare_torch", "torch_loss"]

Step = Callable[[], float]


def prepare_torch(case: Case, threads: int) -> Step:
    """Eager, with the fused SGD."""
    return _torch_step(case, threads, compiled=False)


def prepare_inductor(case: Case, threads: int) -> Step:
    """Through torch.compile."""
    return _torch_step(case, threads, compiled=True)


def _torch_step(case: Case, threads: int, *, compiled: bool) -> Step:
    import torch

    torch.set_num_threads(threads)
    weights = {n: torch.from_numpy(v).requires_grad_() for n, v in case.weights().items()}
    x, labels = map(torch.from_numpy, case.data())
    optimizer = torch.optim.SGD(weights.values(), lr=LEARNING_RATE, fused=True)
    loss_of: Any = torch_loss
    if compiled:
        loss_of = torch.compile(torch_loss, dynamic=False)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(case, weights, x, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_loss(case: Case, w: dict[str, Any], x: Any, labels: Any) -> Any:
    """The loss of a batch."""
    import torch.nn.functional as f

    if case.transformer is not None:
        logits = _torch_transformer(case.transformer, w, x)
        return f.cross_entropy(logits.flatten(0, -2), labels.flatten())
    if case.kind == "mlp":
        h = f.relu(x @ w["w1"] + w["b1"])
        return f.cross_entropy(h @ w["w2"] + w["b2"], labels)
    h = f.relu(f.conv2d(x, w["w1"], w["b1"], padding=1))
    h = f.relu(f.conv2d(h, w["w2"], w["b2"], padding=1))
    h = f.max_pool2d(h, 2).flatten(1)
    return f.cross_entropy(h @ w["w3"] + w["b3"], labels)


def _torch_transformer(t: Transformer, w: dict[str, Any], ids: Any) -> Any:
    import torch.nn.functional as f

    batch, tokens = ids.shape

    def norm(x: Any, n: str) -> Any:
        return f.layer_norm(x, (t.width,), w["gamma" + n], w["beta" + n])

    def layer_norm(x: Any, i: int, n: int) -> Any:
        return f.layer_norm(x, (t.width,), w[f"{i}.gamma{n}"], w[f"{i}.beta{n}"])

    def dense(x: Any, name: str) -> Any:
        layer, _, part = name.partition(".")
        return f.linear(x, w[f"{layer}.w{part}"].T, w[f"{layer}.b{part}"])

    def attention(x: Any, i: int) -> Any:
        q, k, v = (
            dense(x, f"{i}.{n}").view(batch, tokens, t.heads, -1).transpose(1, 2) for n in "qkv"
        )
        out = f.scaled_dot_product_attention(q, k, v, is_causal=t.decoder)
        return dense(out.transpose(1, 2).reshape(batch, tokens, t.width), f"{i}.o")

    def feed(x: Any, i: int) -> Any:
        return dense(f.gelu(dense(x, f"{i}.1")), f"{i}.2")

    x = f.embedding(ids, w["words"]) + w["places"][:tokens]
    if t.decoder:
        for i in range(t.layers):
            x = x + attention(layer_norm(x, i, 1), i)
            x = x + feed(layer_norm(x, i, 2), i)
        return norm(x, "") @ w["head"]
    x = norm(x, "")
    for i in range(t.layers):
        x = layer_norm(x + attention(x, i), i, 1)
        x = layer_norm(x + feed(x, i), i, 2)
    return x.mean(1) @ w["head"]


def prepare_jax(case: Case, threads: int) -> Step:
    """One jitted function; it takes the threads that the process may use. Weights are donated."""
    import jax
    import jax.numpy as jnp

    def loss_of(w: dict[str, Any], x: Any, labels: Any) -> Any:
        logits = _jax_logits(case, w, x)
        own = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
        return -own.mean()

    def update(w: dict[str, Any], x: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(w, x, labels)
        return loss, {n: v - LEARNING_RATE * grads[n] for n, v in w.items()}

    compiled = jax.jit(update, donate_argnums=0)
    weights = {n: jnp.asarray(v) for n, v in case.weights().items()}
    x, labels = map(jnp.asarray, case.data())

    def step() -> float:
        nonlocal weights
        loss, weights = compiled(weights, x, labels)
        jax.block_until_ready(weights)
        return float(loss)

    return step


def _jax_logits(case: Case, w: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if case.transformer is not None:
        return _jax_transformer(case.transformer, w, x)
    if case.kind == "mlp":
        return jax.nn.relu(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]

    def conv(x: Any, n: str) -> Any:
        y = jax.lax.conv_general_dilated(x, w["w" + n], (1, 1), ((1, 1), (1, 1)))
        return jax.nn.relu(y + w["b" + n][:, None, None])

    h = conv(conv(x, "1"), "2")
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return h.reshape(h.shape[0], -1) @ w["w3"] + w["b3"]


def _jax_transformer(t: Transformer, w: dict[str, Any], ids: Any) -> Any:
    import jax

    batch, tokens = ids.shape

    def norm(x: Any, gamma: str, beta: str) -> Any:
        y = x - x.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return y * w[gamma] + w[beta]

    def layer_norm(x: Any, i: int, n: int) -> Any:
        return norm(x, f"{i}.gamma{n}", f"{i}.beta{n}")

    def dense(x: Any, name: str) -> Any:
        layer, _, part = name.partition(".")
        return x @ w[f"{layer}.w{part}"] + w[f"{layer}.b{part}"]

    def attention(x: Any, i: int) -> Any:
        q, k, v = (dense(x, f"{i}.{n}").reshape(batch, tokens, t.heads, -1) for n in "qkv")
        out = jax.nn.dot_product_attention(q, k, v, is_causal=t.decoder)
        return dense(out.reshape(batch, tokens, t.width), f"{i}.o")

    def feed(x: Any, i: int) -> Any:
        return dense(jax.nn.gelu(dense(x, f"{i}.1"), approximate=False), f"{i}.2")

    x = w["words"][ids] + w["places"][:tokens]
    if t.decoder:
        for i in range(t.layers):
            x = x + attention(layer_norm(x, i, 1), i)
            x = x + feed(layer_norm(x, i, 2), i)
        return norm(x, "gamma", "beta") @ w["head"]
    x = norm(x, "gamma", "beta")
    for i in range(t.layers):
        x = layer_norm(x + attention(x, i), i, 1)
        x = layer_norm(x + feed(x, i), i, 2)
    return x.mean(1) @ w["head"]
