"""The process of ``bench.families.llm_process``: a language model loaded, and its first token. It
imports nothing that the engine does not."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def rlx_token(path: str, threads: int, context: int, prompt: Any) -> int:
    """RLX's."""
    import rlx

    llm = rlx.LLM(path, threads=threads, context=context)
    return llm.generate([prompt], max_new_tokens=1)[0].ids[0]


def llama_token(path: str, threads: int, context: int, prompt: Any) -> int:
    """llama.cpp's."""
    from bench.runtimes.llama_cpp import LlamaCpp

    model = LlamaCpp(Path(path), threads, context, 1)
    ids = model.ids(prompt) if isinstance(prompt, str) else prompt
    rows = [(token, at, 0, at == len(ids) - 1) for at, token in enumerate(ids)]
    return int(model.step(rows)[0].argmax())


TOKENS: dict[str, Callable[[str, int, int, Any], int]] = {
    "rlx": rlx_token, "llama_cpp": llama_token,
}  # fmt: skip


def main(runtime: str, path: str, threads: str, context: str, prompt: str, fills: str) -> None:
    """Print the token, the CPU time of the process, and its peak in MiB. One that ``fills`` RLX's
    cache stays until what is made in the background is there too."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    token = TOKENS[runtime](path, int(threads), int(context), json.loads(prompt))
    used = time.process_time()
    from bench.worker import peak_mib

    print(json.dumps([token, used, peak_mib()]), flush=True)
    if fills and runtime == "rlx":
        from rlx.runtime.background import waited

        waited()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
