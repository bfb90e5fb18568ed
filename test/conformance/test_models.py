"""Whole models on every GPU target that this machine can run: MiniLM, and a decoder layer of
Llama's shape that writes a KV cache step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from rlx.models import Embed, embed
from support.conformance import gpu_targets, need
from support.device import device_of, session
from support.minilm import PACKAGE, minilm_dir

STEPS, T, E, HEADS, KV_HEADS, D, F = 5, 8, 32, 4, 2, 8, 48

REPRESENTATIVE = ("vulkan", "opencl", "cuda", "rocm")
"""Targets on which the large model runs in every session. The others take source, as ``opencl``
does from the same printer; the layers of a decoder run on all of them."""

RELATIVE, ABSOLUTE = 2e-5, 2e-5
"""As for an op, with the roundings of a layer."""


@pytest.fixture(params=gpu_targets())
def target(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return request.param


def decoder() -> rlx.Graph:
    """One token: its hidden state, the caches and its position to the next state and caches."""
    g = rlx.Graph("decoder")
    x, at = g.input("x", [1, 1, E]), g.input("at", [3], "i32")
    cos, sin = g.input("cos", [1, D // 2]), g.input("sin", [1, D // 2])
    seen = g.input("seen", [1, T], "i32")
    caches = [g.input(n, [1, T, KV_HEADS * D]) for n in ("keys", "values")]
    h = g.rms_norm(x, g.param("ln1", [E]))
    q = g.rope(h @ g.param("wq", [E, HEADS * D]), cos, sin, head_dim=D)
    k = g.rope(h @ g.param("wk", [E, KV_HEADS * D]), cos, sin, head_dim=D)
    v = h @ g.param("wv", [E, KV_HEADS * D])
    keys, values = (
        g.dynamic_update_slice(cache, new, at) for cache, new in zip(caches, (k, v), strict=True)
    )
    mixed = g.attention(q, keys, values, seen, num_heads=HEADS, kv_heads=KV_HEADS)
    y = x + mixed @ g.param("wo", [HEADS * D, E])
    h = g.rms_norm(y, g.param("ln2", [E]))
    gate, up = h @ g.param("gate", [E, F]), h @ g.param("up", [E, F])
    g.set_outputs([y + (gate.silu() * up) @ g.param("down", [F, E]), keys, values])
    return g


def test_a_decoder_with_a_cache(target: str) -> None:
    g, rng = decoder(), np.random.default_rng(0)
    compiled = session(target).compile(g)
    params = {
        str(v.name): (rng.standard_normal(v.type.static_shape) / np.sqrt(v.shape[0])).astype("f4")
        for v in g.params
    }
    for name, value in params.items():
        compiled.set_param(name, value)
    empty = np.zeros((1, T, KV_HEADS * D), np.float32)
    state: dict[str, list[Any]] = {"found": [empty, empty], "expected": [empty, empty]}
    for step in range(STEPS):
        angle = step / 10 ** np.arange(D // 2)
        feeds = {
            "x": rng.standard_normal((1, 1, E)).astype(np.float32),
            "at": np.array([0, step, 0], np.int32),
            "cos": np.cos(angle)[None].astype(np.float32),
            "sin": np.sin(angle)[None].astype(np.float32),
            "seen": (np.arange(T)[None] <= step).astype(np.int32),
        }
        found = compiled.run(
            {**feeds, **dict(zip(("keys", "values"), state["found"], strict=True))}
        )
        caches = dict(zip(("keys", "values"), state["expected"], strict=True))
        expected = interpret(g, {**feeds, **caches}, params)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=RELATIVE, atol=ABSOLUTE)
        state["found"], state["expected"] = found[1:], expected[1:]
    assert all(np.abs(c[0, :STEPS]).min() > 0 and not c[0, STEPS:].any() for c in state["found"])


def test_a_causal_layer_of_llama(target: str) -> None:
    g = rlx.Graph("prompt")
    s = 6
    shapes = {
        "x": (2, s, E), "g1": (E,), "wq": (E, HEADS * D), "wk": (E, KV_HEADS * D),
        "wv": (E, KV_HEADS * D), "wo": (HEADS * D, E), "g2": (E,), "gate": (E, F), "up": (E, F),
        "down": (F, E), "cos": (s, D // 2), "sin": (s, D // 2),
    }  # fmt: skip
    v = {name: g.input(name, shape) for name, shape in shapes.items()}
    block = [v["x"], v["g1"], None, v["wq"], v["wk"], v["wv"], v["wo"], v["g2"], None]
    rest = [v[n] for n in ("gate", "up", "down", "cos", "sin")]
    g.set_outputs(g.llama_decoder_block(*block, *rest, num_heads=HEADS, kv_heads=KV_HEADS))
    rng = np.random.default_rng(1)
    feeds = {n: (rng.standard_normal(shape) / 4).astype(np.float32) for n, shape in shapes.items()}
    (found,), (expected,) = session(target).compile(g).run(feeds), interpret(g, feeds)
    np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE)


@pytest.mark.skipif(minilm_dir() is None, reason=f"the package {PACKAGE} is not installed")
@pytest.mark.parametrize(
    "target",
    [t if t in REPRESENTATIVE else pytest.param(t, marks=pytest.mark.slow) for t in gpu_targets()],
    indirect=True,
)
def test_minilm_at_2x16(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What stands in for a device goes by another name, and has its types.
    integers = embed.integers_of(target)
    monkeypatch.setattr(embed, "integers_of", lambda device: integers)
    model = minilm_dir()
    assert model is not None
    ids = np.random.default_rng(2).integers(1000, 20000, (2, 16))
    mask = np.ones_like(ids)
    mask[1, 11:] = 0
    found, expected = (
        Embed.from_dir(model, device=d).encode_ids(ids, mask)
        for d in (device_of(target), "interpret")
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
