"""Angles of rotary position embedding, with the ways in which models stretch their context."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError

__all__ = ["Rotary"]

Array = np.ndarray[Any, Any]

_KINDS = ("default", "none", "linear", "llama3", "yarn", "dynamic")


@frozen
class Rotary:
    """Rotary embedding of the first ``dim`` elements of a head, of a base ``theta``.

    ``kind`` is how it is stretched: "default" (not at all), "linear", "llama3" or "yarn" (B. Peng
    et al., 2023), each by ``factor``, or "dynamic", which is not at all up to the context that the
    model has here; ``original`` is the context before that. ``low`` and ``high``
    are the turns between which llama3 and yarn pass from one to the other.
    """

    theta: float
    dim: int
    kind: str = "default"
    factor: float = 1.0
    original: float = 0.0
    low: float = 1.0
    high: float = 4.0
    attention: float | None = None
    truncate: bool = True

    @staticmethod
    def of(rope: Mapping[str, Any], dim: int, context: int) -> Rotary:
        """From the entries that config.json has for it. ModelError for a kind that is not known."""
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if rope.get("long_factor"):
            kind = "longrope"  # which old files of phi3 call "su" or "yarn"
        if kind == "dynamic" and rope.get("alpha"):
            kind = "dynamic with alpha"
        if kind not in _KINDS:
            raise ModelError(
                f"rotary embedding of the kind {kind!r} cannot be run; there are"
                f" {', '.join(_KINDS)}"
            )
        low, high = ("low_freq_factor", "high_freq_factor")
        if kind == "yarn":
            low, high = "beta_slow", "beta_fast"
        try:
            made = Rotary(
                float(rope["rope_theta"]), int(dim), kind, float(rope.get("factor") or 1.0),
                float(rope.get("original_max_position_embeddings") or context),
                float(rope.get(low) or 1.0), float(rope.get(high) or (32 if kind == "yarn" else 4)),
                _attention(rope), bool(rope.get("truncate", True)),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise ModelError(
                f"what is said of rotary embeddings, {dict(rope)}, cannot be read: {e!r}; expected"
                " numbers, rope_theta among them"
            ) from None
        if not (0 < made.theta < math.inf and 0 < made.factor < math.inf):
            raise ModelError(
                f"rotary embeddings have rope_theta {made.theta} and factor {made.factor}, expected"
                " positive numbers"
            )
        return made

    def frequencies(self) -> Array:
        """Radians a position of each pair, f64 ``[dim / 2]``."""
        whole = self.theta ** (-np.arange(0, self.dim, 2, dtype=np.float64) / self.dim)
        if self.kind == "linear":
            return whole / self.factor
        if self.kind == "llama3":
            turns = self.original * whole / (2 * math.pi)
            share = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
            return whole * (share + (1 - share) / self.factor)
        if self.kind == "yarn":
            low, high = (self._pair_of(turns) for turns in (self.high, self.low))
            if self.truncate:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, self.dim - 1)
            ramp = (np.arange(self.dim // 2) - low) / max(high - low, 1e-3)
            share = 1 - np.clip(ramp, 0.0, 1.0)
            return whole * (share + (1 - share) / self.factor)
        return whole

    def _pair_of(self, turns: float) -> float:
        """Which pair turns so often over the original context."""
        ratio = self.original / (turns * 2 * math.pi)
        return self.dim * math.log(ratio) / (2 * math.log(self.theta))

    @property
    def magnitude(self) -> float:
        """A factor of the tables."""
        if self.kind != "yarn":
            return 1.0
        return _grown(self.factor, 1.0) if self.attention is None else float(self.attention)

    def sharpness(self, share: float) -> float:
        """A factor of the scores of latent attention, for how far the context is stretched."""
        return 1.0 if self.kind == "default" or not share else _grown(self.factor, share) ** 2

    def tables(self, context: int, factors: Array | None = None) -> tuple[Array, Array]:
        """Cosines and sines of all positions, f32 ``[context, dim / 2]``. ``factors`` divide the
        frequencies, as some files ask."""
        frequencies = self.frequencies()
        if factors is not None:
            frequencies = frequencies / factors
        # As Hugging Face has it: the frequencies and the angles are rounded to f32.
        angles = np.arange(context, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
        wide = angles.astype(np.float64)
        cos, sin = (f(wide) * self.magnitude for f in (np.cos, np.sin))
        return cos.astype(np.float32), sin.astype(np.float32)


def _attention(rope: Mapping[str, Any]) -> float | None:
    """The factor of the tables that a configuration gives, None if it gives none."""
    given = rope.get("attention_factor")
    shares = [float(rope.get(name) or 0.0) for name in ("mscale", "mscale_all_dim")]
    if given is not None or not all(shares):
        return given
    factor = float(rope.get("factor") or 1.0)
    return _grown(factor, shares[0]) / _grown(factor, shares[1])


def _grown(factor: float, share: float) -> float:
    """How much larger scores are made where positions are so much closer."""
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0
