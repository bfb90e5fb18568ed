"""Blocks with a recurrent state in place of keys and values: Mamba (A. Gu, T. Dao, 2023), Mamba 2
(T. Dao, A. Gu, 2024), the gated delta rule (S. Yang et al., 2024), and a gated convolution alone.

Each has a convolution along the sequence. Its rows and the recurrence's states lie in slots
of their own, one to a sequence (``mir.causal_conv_rows`` and its like).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx.ir.value import Value
from rlx.llm.config import ModelConfig
from rlx.llm.graph_weights import GraphWeights
from rlx.llm.recurrent import Recurrent

__all__ = ["Mixer"]


class Mixer:
    """The block of a layer. ``slots`` and ``positions`` are those of the rows, ``conv`` and
    ``state`` the layer's states; ``written`` are these after the rows."""

    def __init__(
        self, weights: GraphWeights, config: ModelConfig, name: str, at: tuple[Value, Value],
        states: Sequence[Value],
    ) -> None:  # fmt: skip
        self.w, self.c, self.name = weights, config, name
        self.at, self.conv, self.state = at, states[0], states[-1]
        assert config.recurrent is not None
        self.r: Recurrent = config.recurrent
        self.written: list[Value] = []

    def rows(self, x: Value) -> Value:
        """What the block makes of rows, f32 ``[rows, hidden]``."""
        kinds: dict[str, Callable[[Value], Value]] = {
            "mamba": self.mamba, "mamba2": self.mamba2, "delta": self.delta,
            "conv": self.short,
        }  # fmt: skip
        y = kinds[self.r.kind](x)
        return self.w.linear(y, f"{self.name}.ssm_out", (self.c.hidden, self.r.inner))

    def mamba(self, x: Value) -> Value:
        """Mamba: the step sizes and how the state is written and read are made of the convolved
        rows."""
        r, rows, n = self.r, x.shape[0], self.r.size
        both = self.w.linear(x, f"{self.name}.ssm_in", (2 * r.inner, self.c.hidden))
        x, gate = self.convolved(both[:, : r.inner]), both[:, r.inner :]
        made = self.w.linear(x, f"{self.name}.ssm_x", (r.rank + 2 * n, r.inner))
        delta, b, c = made[:, : r.rank], made[:, r.rank : r.rank + n], made[:, r.rank + n :]
        if r.part_eps:
            delta, b, c = (y.rms_norm(eps=r.part_eps) for y in (delta, b, c))
        elif self.c.family.part_norms:
            delta, b, c = (
                y.rms_norm(
                    self.w.vector(f"{self.name}.ssm_{part}_norm.weight", size), eps=self.c.eps
                )
                for y, part, size in ((delta, "dt", r.rank), (b, "b", n), (c, "c", n))
            )
        delta = self.w.linear(delta, f"{self.name}.ssm_dt", (r.inner, r.rank)).softplus()
        a = self.param("ssm_a", (r.inner, n))
        y = self.scanned(
            x.reshape([rows, r.inner, 1]), delta, a, b.reshape([rows, 1, n]),
            c.reshape([rows, 1, n]),
        )  # fmt: skip
        return (y.reshape(x.shape) + x * self.param("ssm_d", (r.inner,))) * gate.silu()

    def mamba2(self, x: Value) -> Value:
        """Mamba 2: heads with one decay each; what it gives is gated and has a norm in groups."""
        r, rows = self.r, x.shape[0]
        across = r.groups * r.size
        size = r.inner + r.channels + r.heads
        whole = self.w.linear(x, f"{self.name}.ssm_in", (size, self.c.hidden))
        gate, delta = whole[:, : r.inner], whole[:, r.inner + r.channels :]
        mixed = self.convolved(whole[:, r.inner : r.inner + r.channels])
        x = mixed[:, : r.inner].reshape([rows, r.heads, r.width])
        b, c = (
            mixed[:, at : at + across].reshape([rows, r.groups, r.size])
            for at in (r.inner, r.inner + across)
        )
        delta = (delta + self.w.vector(f"{self.name}.ssm_dt.bias", r.heads)).softplus()
        if r.least > 0 or r.most < np.inf:
            delta = delta.clip(r.least, r.most)
        y = self.scanned(x, delta, self.param("ssm_a", (r.heads, 1)), b, c)
        y = y + x * self.param("ssm_d", (r.heads, 1))
        y = y.reshape([rows, r.inner]) * gate.silu()
        parts = y.reshape([rows, r.groups, r.inner // r.groups]).rms_norm(eps=self.c.eps)
        return parts.reshape([rows, r.inner]) * self.w.vector(
            f"{self.name}.ssm_norm.weight", r.inner
        )

    def delta(self, x: Value) -> Value:
        """The gated delta rule: queries and keys of length 1, and values."""
        r, rows = self.r, x.shape[0]
        across = r.groups * r.size
        mixed, gate, beta, a = self.delta_parts(x)
        mixed = self.convolved(mixed)
        q, k = (
            _of_length_1(mixed[:, at : at + across].reshape([rows, r.groups, r.size]))
            for at in (0, across)
        )
        v = mixed[:, 2 * across :].reshape([rows, r.heads, r.width])
        beta = beta.sigmoid()
        a = (a + self.w.vector(f"{self.name}.ssm_dt.bias", r.heads)).softplus()
        fade = a * self.param("ssm_a", (r.heads,))
        y, state = q.gated_delta_rows(k, v, fade, beta, self.state, *self.at)
        self.written.append(state)
        norm = self.w.vector(f"{self.name}.ssm_norm.weight", r.width)
        return y.rms_norm(norm, eps=self.c.eps).reshape(gate.shape) * gate.silu()

    def delta_parts(self, x: Value) -> list[Value]:
        """What is convolved, gates, and the two numbers of each head, of matrices of their own or
        of two."""
        r, name, hidden = self.r, self.name, self.c.hidden
        sizes = {"qkv": r.channels, "gate": r.inner, "beta": r.heads, "alpha": r.heads}
        if self.c.family.apart:
            return [
                self.w.linear(x, f"{name}.ssm_{part}", (n, hidden)) for part, n in sizes.items()
            ]
        whole = self.w.linear(x, f"{name}.ssm_in", (r.channels + r.inner, hidden))
        both = self.w.linear(x, f"{name}.ssm_ba", (2 * r.heads, hidden))
        return [
            whole[:, : r.channels], whole[:, r.channels :], both[:, : r.heads], both[:, r.heads :]
        ]  # fmt: skip

    def short(self, x: Value) -> Value:
        """A convolution of a few taps, with a gate before it and one behind."""
        n = self.r.inner
        whole = self.w.linear(x, f"{self.name}.ssm_in", (3 * n, self.c.hidden))
        before, behind, x = (whole[:, at : at + n] for at in (0, n, 2 * n))
        return behind * self.convolution(before * x)

    def convolved(self, x: Value) -> Value:
        """Rows behind the convolution and its activation."""
        return self.convolution(x).silu()

    def convolution(self, x: Value) -> Value:
        """Rows behind the convolution."""
        name, r = f"{self.name}.ssm_conv1d", self.r
        w = self.param("ssm_conv1d.weight", (r.channels, r.kernel), turned=True)
        y, conv = x.causal_conv_rows(w, self.conv, *self.at)
        self.written.append(conv)
        if self.w.has_bias(name):
            y = y + self.w.vector(f"{name}.bias", r.channels)
        return y

    def scanned(self, x: Value, delta: Value, a: Value, b: Value, c: Value) -> Value:
        """What the state of each head makes of the rows."""
        y, state = x.selective_scan_rows(delta, a, b, c, self.state, *self.at)
        self.written.append(state)
        return y

    def param(self, part: str, shape: tuple[int, ...], *, turned: bool = False) -> Value:
        """A small weight in f32, its last dims swapped if ``turned``."""
        name = f"{self.name}.{part}"
        if name in self.w.used:
            return self.w.used[name]
        found = self.w.tensor(name, shape).dequantize()
        return self.w.param(name, np.ascontiguousarray(found.T) if turned else found)


def _of_length_1(x: Value) -> Value:
    return x * ((x * x).sum(axes=-1, keep_dim=True) + 1e-6).rsqrt()
