"""Random numbers in graphs, as ``jax.random`` draws them: a key says what is drawn.

    key = g.input("key", [2], "u32")
    a, b = (rlx.random.split(key)[n] for n in (0, 1))
    noise = rlx.random.normal(a, [4, 8])
    ...
    f.run({"key": rlx.random.key_data(seed)})

A key is a u32[2], an input like any other. The same key gives the same numbers, on every target
and at any number of threads; a run with another key draws others. A key is used once: ``split``
makes two of it, ``fold_in`` one for a number, such as that of a step. Keys of shape [..., 2] draw
for each of them, along new leading axes.

Bits, and uniform numbers in [0, 1), are those of jax to the bit (its threefry keys, which count in
partitions as they do by default). ``philox4x32``, ``philox_bits`` and ``philox_uniform`` draw by
Philox-4x32-10 instead, as cuRAND and PyTorch do on GPUs.
"""

from __future__ import annotations

from rlx.ir.builders import located as _located
from rlx.ops.random import distributions as _distributions
from rlx.ops.random import philox as _philox

__all__ = [
    "bernoulli", "bits", "categorical", "exponential", "fold_in", "gumbel", "key", "key_data",
    "normal", "permutation", "philox4x32", "philox_bits", "philox_uniform", "randint", "split",
    "truncated_normal", "uniform",
]  # fmt: skip

bernoulli = _located(_distributions.bernoulli)
bits = _located(_distributions.bits)
categorical = _located(_distributions.categorical)
exponential = _located(_distributions.exponential)
fold_in = _located(_distributions.fold_in)
gumbel = _located(_distributions.gumbel)
key = _located(_distributions.key)
key_data = _located(_distributions.key_data)
normal = _located(_distributions.normal)
permutation = _located(_distributions.permutation)
philox4x32 = _located(_philox.philox4x32)
philox_bits = _located(_philox.philox_bits)
philox_uniform = _located(_philox.philox_uniform)
randint = _located(_distributions.randint)
split = _located(_distributions.split)
truncated_normal = _located(_distributions.truncated_normal)
uniform = _located(_distributions.uniform)
