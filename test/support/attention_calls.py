"""Calls of attention kernels on random values, and their definition in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.kernels.attention import emit as attention
from rlx.kernels.attention.emit import AttentionConfig, AttentionSizes, MaskKind, Strides
from rlx.targets.cpu.features import Features
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, bool_, f16, f32, f64, i8, i64, u8
from support.jit import host
from support.runkernel import element_strides, run_launch

__all__ = ["LANES", "MASKS", "TARGET", "TOLERANCE", "Call", "made"]

Array = np.ndarray[Any, Any]

TARGET = kernel_target(host())
LANES = TARGET.lanes(f32)
TOLERANCE = {f16: 2e-3, bf16: 1.6e-2, f32: 4e-6, f64: 4e-15}
MASKS: tuple[MaskKind, ...] = ("none", "causal", "window", "custom", "bias")


@dataclass(frozen=True)
class Call:
    """Arrays q, k, v, out as [batch, heads, rows, dim] views, and what is asked of the kernel."""

    q: Array
    k: Array
    v: Array
    out: Array
    mask: MaskKind = "none"
    mask_array: Array | None = None
    scale: float = 0.25
    softcap: float = 0.0
    window: int = 3
    decode: bool = False
    pairs: bool = False
    features: Features | None = None

    @property
    def config(self) -> AttentionConfig:
        array = self.mask_array
        of = {np.dtype(d.numpy): d for d in (f16, bf16, f32, f64, bool_, i8, u8, i64)}
        return AttentionConfig(
            of[self.q.dtype],
            self.mask,
            None if array is None else of[array.dtype],
            softcap=bool(self.softcap),
            decode=self.decode,
            pairs=self.pairs,
        )

    @property
    def sizes(self) -> AttentionSizes:
        batch, heads, queries, dim = self.q.shape
        strides = [Strides(*element_strides(x)[:3]) for x in (self.q, self.k, self.v, self.out)]
        mask = Strides(0, 0, 0)
        if self.mask == "bias":
            wide = (batch, heads, queries, self.k.shape[2])
            mask = Strides(*element_strides(self.mask_array, wide)[:3])
        elif self.mask == "custom":
            mask = Strides(element_strides(self.mask_array)[0], 0, 0)
        return AttentionSizes(
            batch, heads, self.k.shape[1], queries, self.k.shape[2], dim, self.scale, *strides,
            mask=mask, softcap=self.softcap, window=self.window,
        )  # fmt: skip

    def run(self, pieces: int = 1) -> Array:
        target = kernel_target(self.features) if self.features else TARGET
        launch = attention.launch(self.config, target, self.sizes)
        masks = [] if self.mask_array is None else [self.mask_array]
        self.out[...] = np.nan
        arrays = [self.q, self.k, self.v, *masks, self.out]
        run_launch(attention, self.config, launch, arrays, pieces, self.features)
        return self.out

    def expected(self) -> Array:
        """The definition, in f64."""
        group = self.q.shape[1] // self.k.shape[1]
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k, self.v))
        k, v = (np.repeat(x, group, axis=1) for x in (k, v))
        s = q @ k.swapaxes(-1, -2) * self.scale
        if self.softcap:
            s = self.softcap * np.tanh(s / self.softcap)
        if self.mask == "bias":
            s = s + self.mask_array.astype(np.float64)
        else:
            s = np.where(self.hidden(), -1e9, s)
        empty = s.max(axis=-1, keepdims=True) == -np.inf
        w = np.exp(s - np.where(empty, 0.0, s.max(axis=-1, keepdims=True)))
        return w / np.where(empty, 1.0, w.sum(axis=-1, keepdims=True)) @ v

    def hidden(self) -> Array:
        queries, keys = self.q.shape[2], self.k.shape[2]
        if self.mask == "custom":
            return (self.mask_array.astype(np.float64) < 0.5)[:, None, None, :]
        p, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
        if self.mask == "none":
            return np.zeros((queries, keys), bool)
        return (j > p) | ((j < p - self.window) if self.mask == "window" else False)

    def check(self) -> None:
        got, want = self.run().astype(np.float64), self.expected()
        limit = TOLERANCE[self.config.dtype] * max(1.0, np.abs(self.v.astype(np.float64)).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=limit)


def made(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int, int, int],
    dt: DType = f32,
    layout: str = "bshd",
    **asked: Any,
) -> Call:
    """A call on random values; ``shape`` is batch, heads, key heads, queries, keys, dim."""
    batch, heads, key_heads, queries, keys, dim = shape

    def array(h: int, rows: int) -> Array:
        x = rng.standard_normal(
            (batch, rows, h, dim) if layout == "bshd" else (batch, h, rows, dim)
        )
        return (x.swapaxes(1, 2) if layout == "bshd" else x).astype(dt.numpy)

    q, k, v = array(heads, queries), array(key_heads, keys), array(key_heads, keys)
    if layout == "qkv":
        rows = max(queries, keys)
        product = np.full((batch, rows, heads + 2 * key_heads, dim), np.nan, dt.numpy)
        views = np.split(product, [heads, heads + key_heads], axis=2)
        for view, x in zip(views, (q, k, v), strict=True):
            view[:, : x.shape[2]] = x.swapaxes(1, 2)
        q, k, v = (
            view[:, : x.shape[2]].swapaxes(1, 2) for view, x in zip(views, (q, k, v), strict=True)
        )
    out = np.zeros((batch, queries, heads, dim), dt.numpy).swapaxes(1, 2)
    if layout == "bhsd":
        out = np.ascontiguousarray(out)
    call = Call(q, k, v, out, **asked)
    return replace(call, mask_array=masked(rng, call)) if call.mask in ("custom", "bias") else call


def masked(rng: np.random.Generator, call: Call) -> Array:
    """A mask of the call's kind."""
    batch, heads, queries, _ = call.q.shape
    keys = call.k.shape[2]
    if call.mask == "bias":
        return rng.standard_normal((batch, heads, queries, keys)).astype(np.float32)
    keep = rng.random((batch, keys)) < 0.6
    keep[:, 0] = True
    return keep
