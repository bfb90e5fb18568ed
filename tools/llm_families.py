"""Logits and tokens of every family of language models, beside what transformers makes of them.

    python tools/llm_families.py                    # all configurations of test/support/tiny_llm.py
    python tools/llm_families.py qwen3 gemma3 --set hidden_size=1024 --set num_hidden_layers=28

A row has the largest difference of the logits of a prompt, by their standard deviation (it may be
5e-5 with rows in f32), and how many of 64 likeliest tokens are the same. Weights are random, made
from their names. ``--shape 0.6b`` has models of some 0.6 billion weights, and compares the logits
of 32 tokens alone. ``--set`` changes entries of the configurations. It needs torch and transformers
(``pip install torch==2.13.0 transformers accelerate``).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))
sys.path.insert(0, str(ROOT / "tools"))

from make_llm_fixtures import GREEDY, judged  # noqa: E402

from rlx.errors import RlxError  # noqa: E402
from rlx.llm.decoder import Decoder  # noqa: E402
from rlx.llm.engine import StepRows  # noqa: E402
from support.tiny_llm import CONFIGS, PROMPT, WIDER, config, large  # noqa: E402

BOUND = 5e-5


def main() -> int:
    """One row a configuration; 1 if any is beyond the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--set", action="append", default=[], metavar="ENTRY=VALUE")
    parser.add_argument("--shape", choices=("tiny", "0.6b"), default="tiny")
    parser.add_argument("--tokens", type=int, help=f"by default {GREEDY}, of large models none")
    parser.add_argument("--trace", action="store_true", help="show where errors come from")
    given = parser.parse_args()
    wide = given.shape == "0.6b"
    tokens = (0 if wide else GREEDY) if given.tokens is None else given.tokens
    # Products of longer rows are as large as those of short ones.
    prompt, scale = (PROMPT[:32], 0.25 / WIDER**0.5) if wide else (PROMPT, 0.25)
    changes = {k: json.loads(v) for k, _, v in (text.partition("=") for text in given.set)}
    wrong = 0
    print(f"{'configuration':20} {'model_type':18} {'tensors':>7} {'max/std':>9} tokens")
    for name in given.names or CONFIGS:
        whole = {**(large(config(name)) if wide else config(name)), **changes}
        try:
            with tempfile.TemporaryDirectory() as folder:
                made, logits, greedy = judged(whole, Path(folder), tokens, prompt, scale)
                error, same = compared(Path(folder), prompt, logits, greedy)
        except (RlxError, ValueError, TypeError, RuntimeError, AttributeError, KeyError) as e:
            if given.trace:
                traceback.print_exc()
            print(f"{name:20} {whole['model_type']:18} {type(e).__name__}: {e}", flush=True)
            wrong += 1
            continue
        good = error <= BOUND and same == len(greedy)
        wrong += not good
        print(
            f"{name:20} {whole['model_type']:18} {len(made['shapes']):7} {error:9.1e}"
            f" {same}/{len(greedy)}{'' if good else '  <- beyond the bound'}",
            flush=True,
        )
    return int(wrong > 0)


def compared(folder: Path, prompt: list[int], logits: Any, greedy: Any) -> tuple[float, int]:
    """The largest difference by the deviation, and how many tokens are the same from the first."""
    m = Decoder.load(folder, cache="f32", page_size=16, threads=1, context=128)
    pages = list(range(8))
    states = [3] if m.states is not None else []
    if states:
        pages = pages[: m.cache.table[1]]
    mine = m.step(StepRows.of([(prompt, 0, pages)], every=True, states=states))
    error = float(np.abs(mine - logits).max() / logits.std())
    for n, token in enumerate(greedy.tolist()):
        if int(mine[-1].argmax()) != token:
            return error, n
        mine = m.step(StepRows.of([([token], len(prompt) + n, pages)], states=states))
    return error, len(greedy)


if __name__ == "__main__":
    sys.exit(main())
