"""Peak memory of MiniLM against what no process can do without.

The base is a process that imports NumPy, the MLIR bindings and LLVM, and reads the weights' file
once. The other loads the tokenizer, encodes a text, and embeds random tokens at 1x16, 1x128 and
8x128, compiling on the way. The table gives the largest resident set of each in MiB, and their
ratio; the goal is at most 1.3.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

SHAPES = ((1, 16), (1, 128), (8, 128))
"""Batch and tokens."""


def load_base(model: Path) -> None:
    """The libraries and the weights, with no work done."""
    import llvmlite.binding as llvm
    import numpy as np

    from rlx.dialects.context import make_context
    from rlx.models import SafeTensors

    make_context()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for a in SafeTensors(model / "model.safetensors").values():
        a.reshape(-1).view(np.uint8)[::512].max(initial=0)


def embed(model: Path) -> None:
    """A text, and each shape twice: the first call compiles it."""
    import numpy as np

    from rlx.models import Embed

    encoder = Embed.from_dir(model)
    encoder.encode(["A text, for which the tokenizer is loaded."])
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        ids = rng.integers(1000, 20_000, shape)
        for _ in range(2):
            encoder.encode_ids(ids, np.ones_like(ids))


WORK = {"base": load_base, "minilm": embed}


def peak(work: str, model: Path) -> float:
    """MiB of a fresh process that does the work."""
    command = [sys.executable, "-m", "bench.memory", str(model), "--work", work]
    # What the compile cache has would spare MiniLM the compiler.
    env = {**os.environ, "RLX_CACHE": "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return float(done.stdout)


def main(argv: list[str]) -> int:
    """Print the table; with ``--work``, be one of the processes and print its peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="directory of model.safetensors")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    model = args.model or installed_model()
    if args.work:
        WORK[args.work](model)
        # KiB on Linux, bytes on macOS.
        unit = 1024 if sys.platform == "darwin" else 1
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 1024)
        return 0
    base, minilm = (peak(work, model) for work in WORK)
    print("| base MiB | MiniLM MiB | ratio |\n|---|---|---|")
    print(f"| {base:.0f} | {minilm:.0f} | {minilm / base:.2f} |")
    return 0


def installed_model() -> Path:
    """The directory of the installed model package."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
    from find_model import minilm_dir

    found = minilm_dir()
    if found is None:
        raise SystemExit("the model's package is not installed; give its directory")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
