"""Runs written to a file, and run again to see whether they give the same.

with rlx.RunRecorder(f, "runs.jsonl") as recorded:
    recorded.run({"x": x})
for found in rlx.replay("runs.jsonl", g):
    print(found)
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located, public
from rlx.runtime.session import CompiledGraph

__all__ = ["ReplayedRun", "RunRecorder", "replay"]

Array = np.ndarray[Any, Any]


class ReplayedRun(NamedTuple):
    """A run that was made again: its number in the file, and the largest difference of an element
    of each output from what was recorded, absolute; 0 means the same bits but for nan and signs of
    0."""

    number: int
    differences: tuple[float, ...]

    @property
    def same(self) -> bool:
        """Whether all outputs are what they were."""
        return not any(self.differences)


@public
class RunRecorder:
    """A compiled graph whose runs are written to a file, a line of JSON each: the arrays of their
    inputs and outputs. Params are not written. A file that is there is added to."""

    def __init__(self, compiled: CompiledGraph, path: str | Path) -> None:
        self.compiled, self.path = compiled, Path(path)
        self._file = self.path.open("a", encoding="utf-8")

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """As ``CompiledGraph.run``; a run that fails is not written."""
        given = {name: np.array(value) for name, value in inputs.items()}
        outputs = self.compiled.run(inputs)
        line = {
            "inputs": {name: _text(a) for name, a in given.items()},
            "outputs": [_text(a) for a in outputs],
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        return outputs

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@located
def replay(path: str | Path, compiled: CompiledGraph) -> list[ReplayedRun]:
    """Make the runs of a file again, and compare what they give. GraphError for a line that is no
    run, ShapeError for outputs of other shapes or types, and what a run raises."""
    found: list[ReplayedRun] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines()):
        inputs, expected = _read(line, number)
        outputs = compiled.run(inputs)
        found.append(ReplayedRun(number, _differences(number, outputs, expected)))
    return found


def _differences(number: int, found: Sequence[Array], want: Sequence[Array]) -> tuple[float, ...]:
    kinds = [[f"{a.dtype}{list(a.shape)}" for a in arrays] for arrays in (found, want)]
    if kinds[0] != kinds[1]:
        gave, had = (", ".join(k) for k in kinds)
        raise ShapeError(f"run {number} gives {gave}, and gave {had} as it was recorded")
    return tuple(map(_difference, found, want))


def _difference(a: Array, b: Array) -> float:
    if np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return 0.0
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b)]
    gap = np.abs(wide[0] - wide[1])
    gap[(wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))] = 0
    return float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf).max(initial=0))


def _text(a: Array) -> str:
    """An array as text: a file of NumPy's, in base64, with the element type where NumPy has
    none."""
    buffer = io.BytesIO()
    np.save(buffer, a.view(np.uint16) if a.dtype.name == "bfloat16" else a, allow_pickle=False)
    return f"{a.dtype.name}:{base64.b64encode(buffer.getvalue()).decode()}"


def _array(text: str) -> Array:
    name, _, data = text.partition(":")
    a = np.load(io.BytesIO(base64.b64decode(data)), allow_pickle=False)
    if name == "bfloat16":
        import ml_dtypes

        return a.view(ml_dtypes.bfloat16)
    return a


def _read(line: str, number: int) -> tuple[dict[str, Array], list[Array]]:
    try:
        said = json.loads(line)
        inputs = {str(name): _array(text) for name, text in said["inputs"].items()}
        return inputs, [_array(text) for text in said["outputs"]]
    except (ValueError, KeyError, TypeError, AttributeError, EOFError) as e:
        raise GraphError(f"line {number + 1} is no recorded run: {e}") from None
