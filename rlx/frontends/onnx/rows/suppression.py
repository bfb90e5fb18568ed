"""Non-maximum suppression of boxes that are known while importing: how many are kept depends on
them, and RLX has no tensors of a length that depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ShapeError, UnsupportedError
from rlx.frontends.onnx.node import Node, Result

__all__ = ["suppression"]

Array = np.ndarray[Any, Any]


def suppression(n: Node) -> Result:
    """Of each class the best boxes, without those that lie over a better one: rows of batch, class
    and box."""
    try:
        boxes, scores = n.array(0), n.array(1)
    except UnsupportedError as e:
        raise UnsupportedError(
            "how many boxes it keeps depends on data, and RLX has no tensors of such a length:"
            " export the model without non-maximum suppression, and apply that to its outputs"
            f" ({e.message})"
        ) from None
    if (
        boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4
        or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2])
    ):  # fmt: skip
        raise ShapeError(
            f"its boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit; expected"
            " [batch, boxes, 4] and [batch, classes, boxes]"
        )
    most = int(n.array(2).reshape(-1)[0]) if n.has(2) else 0
    overlap = np.float32(n.array(3).reshape(-1)[0]) if n.has(3) else np.float32(0)
    least = np.float32(n.array(4).reshape(-1)[0]) if n.has(4) else np.float32(-np.inf)
    ends = _corners(boxes, bool(n.attr("center_point_box", 0)))
    found: list[tuple[int, int, int]] = []
    for batch, cls in np.ndindex(scores.shape[:2]):
        order = np.argsort(-scores[batch, cls], kind="stable")
        kept: list[int] = []
        for i in order[scores[batch, cls][order] > least]:
            if len(kept) >= most:
                break
            n.spend(max(len(kept), 1), ops=1)
            if not (_overlaps(ends[batch, i], ends[batch, kept]) > overlap).any():
                kept.append(int(i))
        found += [(batch, cls, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centered: bool) -> Array:
    """Boxes by their least and their greatest corner."""
    if centered:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _overlaps(box: Array, others: Array) -> Array:
    """The area that a box shares with each of others, over the area of both; 0 for an empty box."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.where((sides > 0).all(-1), sides.prod(-1), 0)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(-1)
    union = area + areas - shared
    fits = (area > 0) & (areas > 0) & (union > 0)
    return np.divide(shared, union, out=np.zeros_like(union), where=fits)
