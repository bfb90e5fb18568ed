"""Logits and tokens of every family of language models, beside what transformers makes of them.

    python tools/llm_families.py                    # all configurations of test/support/tiny_llm.py
    python tools/llm_families.py qwen3 gemma3 --shape 0.6b
    python tools/llm_families.py qwen3 --set hidden_size=1024 --set num_hidden_layers=28
    python tools/llm_families.py --shape 0.6b --record; python tools/make_docs.py llm_families.md

A row has the largest difference of the logits of a prompt, by their standard deviation (it may be
5e-5 with rows in f32), and how many of 64 tokens, each the likeliest behind those before it, are
the likeliest in transformers too. Weights are random, made from their names. ``--shape 0.6b`` has
models of some 0.6 billion weights, stored in bf16. Where a difference is beyond the bound, or with
``--exact``, transformers computes in f64 too, and the row says how far both are from that.
``--set`` changes entries of the configurations, and ``--record`` keeps the rows in
``docs/llm_families.json``, of which docs/llm_families.md is made. Each configuration has a process
of its own, of up to 8 GB in the large shape. It needs torch and transformers
(``pip install torch==2.13.0 transformers accelerate``).
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))
sys.path.insert(0, str(ROOT / "tools"))

from make_llm_fixtures import GREEDY, load_judge, save_model  # noqa: E402

from rlx.llm.decoder import Decoder  # noqa: E402
from rlx.llm.engine import StepRows  # noqa: E402
from rlx.tools.family_page import BOUND  # noqa: E402
from support.tiny_llm import CONFIGS, PROMPT, WIDER, config, large  # noqa: E402

RECORD = ROOT / "docs" / "llm_families.json"


def main() -> int:
    """One row a configuration; 1 if any is beyond the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--set", action="append", default=[], metavar="ENTRY=VALUE")
    parser.add_argument("--shape", choices=("tiny", "0.6b"), default="tiny")
    parser.add_argument("--tokens", type=int, default=GREEDY)
    parser.add_argument("--exact", action="store_true", help="compare both with f64")
    parser.add_argument("--record", action="store_true", help=f"keep the rows in {RECORD.name}")
    parser.add_argument("--trace", action="store_true", help="show where errors come from")
    given = parser.parse_args()
    if given.record and (given.set or given.tokens != GREEDY):
        parser.error("--record keeps the configurations as they are, so neither --set nor --tokens")
    wide = given.shape == "0.6b"
    changes = {k: json.loads(v) for k, _, v in (text.partition("=") for text in given.set)}
    import transformers.modeling_utils  # once, not in each process

    assert transformers.modeling_utils
    wrong = 0
    print(f"{'configuration':20} {'model_type':18} {'weights':>8} {'max/std':>9} tokens")
    for name in given.names or CONFIGS:
        whole = {**(large(config(name)) if wide else config(name)), **changes}
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as one:
                found = one.submit(compared, whole, given.tokens, wide, given.exact).result()
        except Exception as e:
            if given.trace:
                traceback.print_exc()
            print(f"{name:20} {whole['model_type']:18} {type(e).__name__}: {e}", flush=True)
            wrong += 1
            continue
        wrong += not found.good
        print(f"{name:20} {whole['model_type']:18} {found}", flush=True)
        if given.record:
            keep(name, whole["model_type"], given.shape, found)
    return int(wrong > 0)


@dataclass
class Found:
    """The weights of a model, the largest difference of logits from those of transformers, how many
    likeliest tokens are the same, of how many, and how far both are from logits in f64."""

    weights: int
    error: float
    same: int
    tokens: int
    exact: tuple[float, float] | None = None

    @property
    def good(self) -> bool:
        """Whether the logits are within the bound: of transformers', or of those in f64, from which
        transformers' are farther."""
        near = self.error <= BOUND
        if self.exact is not None:
            mine, theirs = self.exact
            near = near or mine <= min(BOUND, theirs)
        return near and self.same == self.tokens

    def __str__(self) -> str:
        size = f"{self.weights / 1e9:.2f}e9" if self.weights > 1e8 else str(self.weights)
        text = f"{size:>8} {self.error:9.1e} {self.same}/{self.tokens}"
        if self.exact is not None:
            text += "  from f64: RLX {:.1e}, transformers {:.1e}".format(*self.exact)
        return text if self.good else f"{text}  <- beyond the bound"


def keep(name: str, kind: str, shape: str, found: Found) -> None:
    """Put a row into the record, which has those of the configurations that there are."""
    data = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"rows": {}}
    data["versions"] = {name: version(name) for name in ("transformers", "torch")}
    rows = data["rows"]
    digits = {
        "error": float(f"{found.error:.2e}"),
        "exact": found.exact and [float(f"{x:.2e}") for x in found.exact],
    }
    rows[name] = {**rows.get(name, {}), "model_type": kind, shape: asdict(found) | digits}
    lines = [f" {json.dumps(n)}: {json.dumps(rows[n])}" for n in CONFIGS if n in rows]
    text = ",\n".join(lines)
    RECORD.write_text(
        f'{{"versions": {json.dumps(data["versions"])},\n"rows": {{\n{text}\n}}}}\n',
        encoding="utf-8",
    )


def compared(whole: dict[str, Any], tokens: int, wide: bool, exact: bool) -> Found:
    """A model of a configuration, in RLX and in transformers."""
    with tempfile.TemporaryDirectory() as folder:
        return compared_in(Path(folder), whole, tokens, wide, exact)


def compared_in(folder: Path, whole: dict[str, Any], tokens: int, wide: bool, exact: bool) -> Found:
    # Products of longer rows are as large as those of short ones; and files of large models are
    # in bf16, of which every number is one of f32.
    prompt, scale = (PROMPT[:32], 0.25 / WIDER**0.5) if wide else (PROMPT, 0.25)
    shapes = save_model(whole, folder, scale, ml_dtypes.bfloat16 if wide else "f4")["shapes"]
    mine, drawn = ours(folder, prompt, tokens)
    ids, count = prompt + drawn, len(prompt)
    theirs = theirs_in(folder, ids, "float32")
    spread = theirs[:count].std()
    error = float(np.abs(mine - theirs[:count]).max() / spread)
    likeliest = theirs[count - 1 : -1].argmax(-1).tolist()
    same = sum(a == b for a, b in zip(likeliest, drawn, strict=True))
    found = Found(sum(math.prod(s) for s in shapes.values()), error, same, tokens)
    if exact or error > BOUND:
        judge = theirs_in(folder, ids, "float64")[:count]
        far = [float(np.abs(x - judge).max() / spread) for x in (mine, theirs[:count])]
        found.exact = far[0], far[1]
    return found


def ours(folder: Path, prompt: list[int], count: int) -> tuple[Any, list[int]]:
    """The logits of a prompt, and so many of the likeliest tokens behind it, each from what is
    before it."""
    m = Decoder.load(folder, cache="f32", page_size=16, threads=1, context=128)
    pages = list(range(8))
    states = [3] if m.states is not None else []
    if states:
        pages = pages[: m.cache.table[1]]
    logits = m.step(StepRows.of([(prompt, 0, pages)], every=True, states=states))
    drawn, last = [], logits
    for n in range(count):
        drawn.append(int(last[-1].argmax()))
        last = m.step(StepRows.of([(drawn[-1:], len(prompt) + n, pages)], states=states))
    return logits, drawn


def theirs_in(folder: Path, ids: list[int], dtype: Literal["float32", "float64"]) -> Any:
    """The logits of transformers, computed in a type."""
    import torch

    with in_double() if dtype == "float64" else nullcontext(), torch.no_grad():
        model = load_judge(folder, dtype)
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def in_double() -> Any:
    """A context in which torch takes f64 where a program asks for f32, as models do for norms,
    softmax and rotary angles whatever the type of their weights."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Widened(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.Tensor.float:
                func = torch.Tensor.double
            wide = tuple(torch.float64 if a is torch.float32 else a for a in args)
            named = {
                k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()
            }
            return func(*wide, **named)

    return Widened()


if __name__ == "__main__":
    sys.exit(main())
