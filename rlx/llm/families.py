"""The table of model families: what tells one decoder from another, as data."""

from __future__ import annotations

from typing import Literal

from rlx.base.frozen import frozen
from rlx.errors import ModelError, did_you_mean

__all__ = ["FAMILIES", "Family", "family_of"]


@frozen
class Family:
    """A family of decoders, beside what its configurations say.

    ``gguf`` and ``hf`` are its names in GGUF files (``general.architecture``) and in config.json
    (``model_type``). ``adjacent``: GGUF files have the rows of q and k in the order of rotary pairs
    that lie side by side. ``norm``: "rms", or "plain" for a layer norm without weights;
    ``shifted``: norms' weights are stored less 1, but in GGUF files. ``before`` and ``after`` say
    whether the two blocks of a layer have a norm there. ``qk_norm``: of each head, or of all
    together. ``every``: of so many layers the last sees all keys, where there is a window.
    ``embedding``: a factor of the embeddings, "root" for the root of their length. ``local_theta``
    is the rotary base of the layers with a window, 0 for that of all, which is not stretched there.
    """

    name: str
    gguf: tuple[str, ...]
    hf: tuple[str, ...]
    adjacent: bool = False
    norm: Literal["rms", "plain"] = "rms"
    shifted: bool = False
    before: bool = True
    after: bool = False
    qk_norm: Literal["", "head", "whole"] = ""
    activation: Literal["silu", "gelu_approx"] = "silu"
    every: int = 0
    embedding: Literal["", "root"] = ""
    local_theta: float | None = None
    experts: bool = False


_ROWS = (
    Family("llama", ("llama",), ("llama", "mistral"), adjacent=True),
    Family("qwen2", ("qwen2",), ("qwen2",)),
    Family("qwen3", ("qwen3",), ("qwen3",), qk_norm="head"),
    Family("qwen3-moe", ("qwen3moe",), ("qwen3_moe",), qk_norm="head", experts=True),
    Family(
        "gemma2", ("gemma2",), ("gemma2",), shifted=True, after=True, activation="gelu_approx",
        every=2, embedding="root",
    ),
    Family(
        "gemma3", ("gemma3",), ("gemma3_text", "gemma3"), shifted=True, after=True, qk_norm="head",
        activation="gelu_approx", every=6, embedding="root", local_theta=10000.0,
    ),
    Family("gemma", ("gemma",), ("gemma",), shifted=True, activation="gelu_approx",
           embedding="root"),
    Family("phi3", ("phi3",), ("phi3",)),
    Family("granite", ("granite",), ("granite",), adjacent=True),
    Family("olmo", ("olmo",), ("olmo",), adjacent=True, norm="plain"),
    Family("olmo2", ("olmo2",), ("olmo2",), before=False, after=True, qk_norm="whole"),
    Family("olmo3", (), ("olmo3",), before=False, after=True, qk_norm="whole", every=4,
           local_theta=0.0),
)  # fmt: skip

FAMILIES = {row.name: row for row in _ROWS}
"""Every family by name."""


def family_of(kind: Literal["gguf", "hf"], name: object) -> Family:
    """The family that a file names; ModelError if it is none of the table."""
    known = {n: row for row in _ROWS for n in (row.gguf if kind == "gguf" else row.hf)}
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        raise ModelError(
            f"no model of architecture {name!r} can be run{hint}; there are"
            f" {', '.join(sorted(known))}"
        )
    return known[name]
