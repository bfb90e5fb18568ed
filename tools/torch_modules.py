"""How many of torch's own table of modules (module_db) train through ``backend="rlx"``.

    python tools/torch_modules.py [--only MODULE ...] [--samples 3] [--out FILE]

It needs torch and expecttest. Of every module up to ``--samples`` inputs are run forward and
backward, by torch and by ``torch.compile(module, backend="rlx")``: results and the gradients of
inputs and weights are compared. A line of JSON a module says what became of it.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

SECONDS = 120
"""For each module."""


def outcome(info: Any, samples: int) -> dict[str, Any]:
    """What becomes of a module: "right", or the stage that failed, and why."""
    import torch

    found: dict[str, Any] = {"name": info.name.removeprefix("nn."), "stage": "inputs", "tried": 0}
    signal.alarm(SECONDS)
    try:
        kind = torch.float32
        inputs = list(itertools.islice(info.module_inputs_func(
            info, device="cpu", dtype=kind, requires_grad=True, training=False), 200))  # fmt: skip
        for case in inputs[:: max(1, len(inputs) // samples)][:samples]:
            if case.forward_input is None:
                continue
            found["stage"] = "eager"
            torch.manual_seed(0)
            made = case.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(kind).eval()
            args, kwargs = case.forward_input.args, case.forward_input.kwargs
            expected = trained(module, module, args, kwargs)
            found["stage"] = "compiled"
            torch._dynamo.reset()
            torch._dynamo.config.allow_rnn = True
            other = copy.deepcopy(module)
            from rlx.frontends.torch.backend import backend

            run = torch.compile(other, backend=backend, fullgraph=True)
            given = trained(run, other, args, kwargs)
            found["stage"] = "wrong"
            for a, b in zip(given, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, equal_nan=True)
            found["tried"] += 1
        found["stage"] = "right" if found["tried"] else "no input"
    except (Exception, TimeoutError) as e:
        found["why"] = f"{type(e).__name__}: {e}"[:500]
    finally:
        signal.alarm(0)
    return found


def trained(run: Any, module: Any, args: Any, kwargs: Any) -> list[Any]:
    """The results of a call, and the gradients of the sum of those that have one."""
    import torch

    pytree = torch.utils._pytree

    def fresh(x: Any) -> Any:
        return (
            x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        )

    args, kwargs = pytree.tree_map(fresh, (args, kwargs))
    leaves = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    wanted = [x for x in (*leaves, *module.parameters()) if x.requires_grad]
    torch.manual_seed(1)
    results = [x for x in pytree.tree_leaves(run(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    whole = [x for x in results if x.requires_grad]
    if not whole or not wanted:
        return [x.detach() for x in results]
    total = sum((x * torch.cos(torch.arange(x.numel()).reshape(x.shape))).sum() for x in whole)
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return [*[x.detach() for x in results], *[x for x in gradients if x is not None]]


def main() -> None:
    """Survey the modules."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", default=None, help="these modules")
    parser.add_argument("--samples", type=int, default=3, help="of each module")
    parser.add_argument("--out", type=Path, help="a file of results, which is continued")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["RLX_CACHE"] = "off"
    import torch
    from torch.testing._internal.common_modules import module_db

    def late(*_: Any) -> None:
        raise TimeoutError(f"over {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    torch.set_num_threads(1)
    before = given.out.read_text().splitlines() if given.out and given.out.exists() else []
    rows = {r["name"]: r for r in map(json.loads, before)}
    for info in module_db:
        name = info.name.removeprefix("nn.")
        if (given.only and name not in given.only) or name in rows:
            continue
        rows[name] = outcome(info, given.samples)
        print(json.dumps(rows[name]), flush=True)
        if given.out:
            with given.out.open("a") as f:
                f.write(json.dumps(rows[name]) + "\n")
    counts = Counter(r["stage"] for r in rows.values())
    listed = ", ".join(f"{stage} {n}" for stage, n in counts.most_common())
    print(f"{len(rows)} modules: {listed}", file=sys.stdout)


if __name__ == "__main__":
    main()
