"""Logits and tokens of every family of language models, beside what transformers makes of them.

    python tools/llm_families.py                    # all configurations of test/support/tiny_llm.py
    python tools/llm_families.py qwen3 gemma3 --set hidden_size=1024 --set num_hidden_layers=28

A row has the largest difference of the logits of a prompt, by their standard deviation (it may be
5e-5 with rows in f32), and how many of 64 likeliest tokens are the same. Weights are random, made
from their names. ``--set`` changes entries of the configurations. It needs torch and transformers
(``pip install torch==2.13.0 transformers accelerate``).
"""

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
from support.tiny_llm import CONFIGS, PROMPT, config  # noqa: E402

BOUND = 5e-5


def main() -> int:
    """One row a configuration; 1 if any is beyond the bound."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--set", action="append", default=[], metavar="ENTRY=VALUE")
    parser.add_argument("--tokens", type=int, default=GREEDY)
    parser.add_argument("--trace", action="store_true", help="show where errors come from")
    given = parser.parse_args()
    changes = {k: json.loads(v) for k, _, v in (text.partition("=") for text in given.set)}
    wrong = 0
    print(f"{'configuration':20} {'model_type':18} {'tensors':>7} {'max/std':>9} tokens")
    for name in given.names or CONFIGS:
        whole = {**config(name), **changes}
        try:
            with tempfile.TemporaryDirectory() as folder:
                made, logits, greedy = judged(whole, Path(folder), given.tokens)
                error, same = compared(Path(folder), logits, greedy)
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


def compared(folder: Path, logits: Any, greedy: Any) -> tuple[float, int]:
    """The largest difference by the deviation, and how many tokens are the same from the first."""
    m = Decoder.load(folder, cache="f32", page_size=16, threads=1, context=128)
    pages = list(range(8))
    mine = m.step(StepRows.of([(PROMPT, 0, pages)], every=True))
    error = float(np.abs(mine - logits).max() / logits.std())
    for n, token in enumerate(greedy.tolist()):
        if int(mine[-1].argmax()) != token:
            return error, n
        mine = m.step(StepRows.of([([token], len(PROMPT) + n, pages)]))
    return error, len(greedy)


if __name__ == "__main__":
    sys.exit(main())
