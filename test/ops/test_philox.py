"""Philox against the known answers of Random123, and against whole numbers of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import DTypeError, GraphError, RlxError, ShapeError

Array = np.ndarray[Any, Any]

# kat_vectors of Random123, philox4x32 10: counter, key, answer. The last are digits of pi.
KNOWN = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)  # fmt: skip


def by_hand(counter: Any, key: Any) -> list[int]:
    """The rounds as the paper writes them, in Python's integers."""
    c, k = [int(v) for v in counter], [int(v) for v in key]
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(right >> 32) ^ c[1] ^ k[0], right % 2**32, (left >> 32) ^ c[3] ^ k[1], left % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def test_hashes_are_the_known_ones() -> None:
    counters = np.array([c for c, _, _ in KNOWN], np.uint32)
    keys = np.array([k for _, k, _ in KNOWN], np.uint32)
    more = np.random.default_rng(0).integers(0, 1 << 32, (50, 6), np.uint32)
    counters, keys = np.concatenate([counters, more[:, :4]]), np.concatenate([keys, more[:, 4:]])
    g = rlx.Graph("philox")
    c, k = g.input("c", [53, 4], "u32"), g.input("k", [53, 2], "u32")
    g.set_outputs([rlx.random.philox4x32(k, c), rlx.random.philox4x32(k[2], c)])
    feeds = {"c": counters, "k": keys}
    each, one = rlx.Session("cpu").compile(g).run(feeds)
    for a, b in zip((each, one), rlx.interpret(g, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [tuple(row) for row in each[:3]] == [answer for _, _, answer in KNOWN]
    for found, counter, key in zip(each[3:], counters[3:], keys[3:], strict=True):
        assert found.tolist() == by_hand(counter, key)
    assert one[7].tolist() == by_hand(counters[7], keys[2])


def test_streams_count_on() -> None:
    g = rlx.Graph("stream")
    k = g.input("k", [2], "u32")
    start = (1 << 32) - 2
    drawn = rlx.random.philox_bits(k, [3, 7], start)
    unit = rlx.random.philox_uniform(k, 1000)
    g.set_outputs([drawn, unit, rlx.random.philox_bits(k, [])])
    key = rlx.random.key_data(2026)
    bits, unit, first = rlx.Session("cpu").compile(g).run({"k": key})
    want = [w for i in range(start, start + 6) for w in by_hand([i % 2**32, i >> 32, 0, 0], key)]
    assert bits.ravel().tolist() == want[:21]
    assert int(first) == by_hand([0] * 4, key)[0]
    assert unit.dtype == np.float32 and unit.min() >= 0 and unit.max() < 1
    assert abs(unit.mean() - 0.5) < 0.03 and len(np.unique(unit)) > 990


def test_what_is_refused() -> None:
    g = rlx.Graph("bad")
    k, keys, c = (g.input(n, s, "u32") for n, s in (("k", [2]), ("ks", [3, 2]), ("c", [5, 4])))
    philox, bits = rlx.random.philox4x32, rlx.random.philox_bits
    cases: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: philox(k, g.input("i", [4], "i64")), DTypeError, "a counter is u32, found i64"),
        (lambda: philox(keys, c), ShapeError, "a key each or one for all"),
        (lambda: philox(k, k), ShapeError, "last axis of 4 words"),
        (lambda: bits(keys, [4]), ShapeError, "takes one key"),
        (lambda: bits(k, [4], -1), GraphError, "start is 0 to 2"),
    ]
    for make, error, match in cases:
        with pytest.raises(error, match=match):
            make()
