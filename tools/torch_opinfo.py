"""How much of torch's own table of ops (OpInfo) ``rlx.from_torch`` imports right.

    python tools/torch_opinfo.py [--only OP ...] [--samples 6] [--out FILE]

It needs torch and expecttest. Up to ``--samples`` inputs of every op, in f32 where the op has it,
are traced to core ATen, walked by the rows, run by the interpreter and compared with torch; the
first of each op is compiled too. A line of JSON an op says how many were right and what became of
the others: ``wrong`` are those that ran and differ, and no refusal is one.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 40
"""For each sample."""
ENOUGH = 400
"""The most samples of an op that are looked at."""
UNDEFINED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "svd", "linalg.svd", "linalg.eigh", "svd_lowrank", "pca_lowrank", "linalg.eig",
}  # fmt: skip
"""Ops whose results torch leaves open, such as the signs of vectors; they count as not tried."""


def traced(op: Any, sample: Any) -> tuple[Any, list[Any], list[Any]]:
    """A sample as a graph of core ATen ops, its operands, and what torch gives."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from rlx.frontends.torch.export import core_table

    pytree: Any = importlib.import_module("torch.utils._pytree")
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    operands = [x for x in leaves if isinstance(x, torch.Tensor)]

    def run(*given: Any) -> list[Any]:
        it = iter(given)
        first, rest, named = pytree.tree_unflatten(
            [next(it) if isinstance(x, torch.Tensor) else x for x in leaves], spec
        )
        found = pytree.tree_leaves(op(first, *rest, **named))
        return [t for t in found if isinstance(t, torch.Tensor)]

    expected = run(*[t.clone() for t in operands])
    how: Any = {"tracing_mode": "fake", "_allow_non_fake_inputs": True}
    pure = torch.func.functionalize(run, remove="mutations_and_views")
    graph = make_fx(pure, decomposition_table=core_table(), **how)(*operands)
    pure = torch.func.functionalize(graph, remove="mutations_and_views")
    return make_fx(pure, **how)(*operands), operands, expected


class Outcomes:
    """What became of the samples of an op."""

    def __init__(self, name: str) -> None:
        self.name, self.counts, self.why = name, Counter[str](), Counter[str]()

    def try_(self, op: Any, sample: Any, compiled: bool) -> None:
        """One sample; its stage is counted."""
        stage = "untraced"
        signal.alarm(SECONDS)
        try:
            graph, operands, expected = traced(op, sample)
            stage = "refused"
            built, outputs, feeds = self._built(graph, operands)
            stage = "failed"
            self._run(built, outputs, feeds, expected, compiled)
            stage = "right"
        except AssertionError as e:
            stage = "wrong" if stage == "failed" else stage
            self._note(stage, e)
        except (Exception, TimeoutError) as e:
            self._note(stage, e)
        finally:
            signal.alarm(0)
        self.counts[stage] += 1

    def _note(self, stage: str, e: BaseException) -> None:
        first = (str(e).strip().splitlines() or [""])[0]
        self.why[f"{stage}: {type(e).__name__}: {first}"[:200]] += 1

    def _built(self, graph: Any, operands: list[Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        import rlx
        from rlx.frontends.torch.sizes import Sizes
        from rlx.frontends.torch.tensors import array_of
        from rlx.frontends.torch.walk import Walk, type_of

        built, sizes = rlx.Graph(), Sizes({})
        number = itertools.count()

        def leaf(node: Any) -> Any:
            t = type_of(node.meta["val"], sizes, "an operand")
            return built.input(f"x{next(number)}", t.shape, t.dtype)

        outputs = list(Walk(graph, sizes, leaf).outputs())
        values = [v for v in outputs if isinstance(v, rlx.Value)]
        built.set_outputs(values)
        pairs = zip(built.inputs, operands, strict=True)
        return built, outputs, {str(v.name): array_of(t) for v, t in pairs}

    def _run(
        self, built: Any, outputs: list[Any], feeds: dict[str, Any], expected: list[Any],
        compiled: bool,
    ) -> None:  # fmt: skip
        import rlx

        theirs = [t for v, t in zip(outputs, expected, strict=True) if isinstance(v, rlx.Value)]
        _compare(rlx.interpret(built, feeds), theirs)
        if compiled:
            _compare(rlx.Session("cpu").compile(built).run(feeds), theirs)

    @property
    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, **self.counts, "why": dict(self.why)}


def _compare(found: Any, expected: list[Any]) -> None:
    import numpy as np
    import torch

    from rlx.frontends.torch.tensors import tensor_of

    for a, b in zip(found, expected, strict=True):
        ours = tensor_of(np.array(a, copy=True, order="C")).reshape(a.shape)
        torch.testing.assert_close(
            ours, b.detach(), rtol=2e-4, atol=2e-5, equal_nan=True, check_stride=False
        )


def main() -> None:
    """Survey the ops."""
    parser = argparse.ArgumentParser(
        description="How much of torch's own table of ops is imported right."
    )
    parser.add_argument("--only", nargs="*", default=None, help="these ops")
    parser.add_argument("--samples", type=int, default=6, help="of each op")
    parser.add_argument("--every", type=int, default=1, help="every so many ops")
    parser.add_argument("--out", type=Path, help="a file of results, which is continued")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["RLX_CACHE"] = "off"
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    def late(*_: Any) -> None:
        raise TimeoutError(f"over {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    torch.set_num_threads(1)
    before = given.out.read_text().splitlines() if given.out and given.out.exists() else []
    rows = {r["name"]: r for r in map(json.loads, before)}
    for op in op_db[:: given.every]:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if (given.only and name not in given.only) or name in rows or name in UNDEFINED:
            continue
        kinds = [torch.float32, torch.int64, torch.bool]
        kind = next((k for k in kinds if op.supports_dtype(k, "cpu")), torch.float32)
        found = Outcomes(name)
        try:
            signal.alarm(60)
            samples = list(itertools.islice(op.sample_inputs("cpu", kind), ENOUGH))
            signal.alarm(0)
        except Exception as e:
            samples = []
            found.why[f"no samples: {e}"[:200]] += 1
        for i, sample in enumerate(samples[:: max(1, len(samples) // given.samples)]):
            if i < given.samples:
                found.try_(op, sample, compiled=i == 0)
        rows[name] = found.row
        print(json.dumps(found.row), flush=True)
        if given.out:
            with given.out.open("a") as f:
                f.write(json.dumps(found.row) + "\n")
    totals = Counter[str]()
    for r in rows.values():
        totals.update({k: v for k, v in r.items() if isinstance(v, int)})
    whole = sum(
        1
        for r in rows.values()
        if r.get("right") and not any(r.get(k) for k in ("wrong", "refused", "failed"))
    )
    traced_ = sum(totals.values()) - totals["untraced"]
    print(
        f"{len(rows)} ops, {whole} of them whole; of {traced_} samples that torch traces"
        f" {totals['right']} are right ({totals['right'] / max(traced_, 1):.0%}), "
        + ", ".join(f"{n} {k}" for k, n in totals.items() if k != "right")
    )


if __name__ == "__main__":
    main()
