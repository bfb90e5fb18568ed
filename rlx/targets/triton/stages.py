"""Triton's compiler as a process of its own: a file to run, which imports nothing of RLX.

Triton brings an LLVM and an MLIR. In one process with ours, or with a driver's, their symbols may
meet: what imports Triton then ends with a signal. Each line of standard input is a request, each
line of standard output its answer, both in JSON: ``rlx.targets.triton.compile`` is the other side.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FACTS = ("num_warps", "num_ctas", "shared", "global_scratch_size", "profile_scratch_size")
"""What the stages say of a kernel that its launch must know."""


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """The texts of the stages, in base 64, and the facts."""
    knobs, libtriton, backends, compiler = (
        importlib.import_module(f"triton.{name}")
        for name in ("knobs", "_C.libtriton", "backends.compiler", "compiler.compiler")
    )
    ir = libtriton.ir
    target = backends.GPUTarget(request["backend"], request["arch"], request["wave"])
    backend, context = compiler.make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(request["text"], encoding="utf-8")
        module: Any = ir.parse_mlir_module(str(path), context)
    module.context = context
    options = backend.parse_options(request["options"])
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, backends.Language.TRITON)
    said: dict[str, Any] = {"target": target, **options.__dict__}
    found: dict[str, str] = {}
    with knobs.compilation.scope():
        # Lines of a file that is gone would be in the code, and make no two compiles alike.
        knobs.compilation.disable_line_info = True
        for name, stage in stages.items():
            if name != "cubin":  # the driver assembles PTX, for the GPU that it has
                module = stage(module, said)
                if name in request["stages"]:
                    text = module if isinstance(module, bytes) else str(module).encode()
                    found[name] = base64.b64encode(text).decode()
    return {"found": found, "said": {fact: said.get(fact) for fact in FACTS}}


def serve() -> None:
    """Answer until the input ends. What the compiler prints goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for line in sys.stdin:
            try:
                answer = compiled(json.loads(line))
            except Exception as e:  # the compiler raises what its stages do
                answer = {"error": " ".join(str(e).split())[:400] or type(e).__name__}
            print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    serve()
