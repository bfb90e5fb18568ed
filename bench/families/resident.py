"""Memory of a warm process that embeds: its largest resident set, against other libraries'.

With the encoder in the compile cache, a process of RLX loads MiniLM or a BERT-base of random
weights from a model's directory, and embeds 8x128 or 1x384 tokens and a text. The row "1.15 x
needed" is that many times the weights and the arena: the goal is at least 1 against it. The other
libraries run the same encoder in their benchmark process, without a tokenizer; those that read no
file hold the weights as arrays besides, as their users mostly do while loading.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Case
from bench.families import bert, find_case
from bench.families.memory import arena_bytes
from bench.families.minilm import model_dir
from bench.measure import OURS, ROOT, Bench, Failure, Options, Row, environment
from bench.runtimes import EXPORTED
from bench.worker import peak_mib

CASES = (("minilm", "8x128", (8, 128)), ("bert", "whole 1x384", (1, 384)))


def embed(model: Path, batch: int, tokens: int) -> None:
    """What RLX's process does; prints its peak, and whether it had to compile."""
    from rlx.models import Embed

    encoder = Embed.from_dir(model)
    ids = np.full((batch, tokens), 2000)
    encoder.encode_ids(ids, np.ones_like(ids))
    encoder.encode(["A text, for which the tokenizer is loaded."])
    print(json.dumps([peak_mib(), "torch_mlir" in sys.modules]))


def write_base(model: Path) -> Path:
    """BERT-base in a directory: MiniLM's tokenizer, and random weights."""
    from rlx.models import SafeTensors
    from rlx.models.safetensors import write_safetensors

    source = Path(model_dir())
    shutil.copytree(source, model, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((source / "config.json").read_text())
    config |= {"hidden_size": bert.HIDDEN, "num_attention_heads": bert.HEADS}
    config |= {"intermediate_size": bert.INNER, "num_hidden_layers": 12}
    (model / "config.json").write_text(json.dumps(config))
    sizes = {384: bert.HIDDEN, 1536: bert.INNER}
    rng, arrays = np.random.default_rng(0), dict[str, Any]()
    for name, a in SafeTensors(source / "model.safetensors").items():
        for full in _names(name):
            shape = tuple(sizes.get(n, n) for n in a.shape)
            made = rng.standard_normal(shape, np.float32) * np.float32(0.02)
            arrays[full] = made if a.dtype == np.float32 else np.asarray(a)
    write_safetensors(model / "model.safetensors", arrays)
    return model


def _names(name: str) -> list[str]:
    """The tensors of BERT-base's 12 layers that take the place of one in MiniLM's 6."""
    layer = re.search(r"layer\.(\d+)\.", name)
    if layer is None:
        return [name]
    return [name.replace(layer[0], f"layer.{int(layer[1]) + more}.") for more in (0, 6)]


def rows(options: Options) -> Iterator[Row | Failure]:
    """Each library's peak of each model, in MiB."""
    for family, name, shape in CASES[: 1 if options.quick else None]:
        case = find_case(family, name)
        if options.names(case.name):
            for threads in options.threads:
                with Bench(options, threads) as bench:
                    yield from _peaks(bench, family, case, shape)


def _peaks(
    bench: Bench, family: str, case: Case, shape: tuple[int, int]
) -> Iterator[Row | Failure]:
    label = f"{family} {case.name}, warm process"

    def row(who: str, mib: float) -> Row:
        return Row("resident", label, bench.threads, who, [mib], mib, "MiB")

    model = Path(model_dir()) if family == "minilm" else write_base(bench.folder / "base")
    needed = (model / "model.safetensors").stat().st_size + arena_bytes(case)
    yield row("1.15 x needed", 1.15 * needed / 2**20)
    fill, warm = (_run(model, shape, bench) for _ in range(2))
    if warm[1]:
        yield Failure("resident", label, bench.threads, OURS, "the second process compiled too")
    if fill[1]:
        yield row(OURS, warm[0])
    exported = bench.export(family, case)
    for name, worker in bench.workers.items():
        if name == OURS or (name in EXPORTED and "error" in exported) or not case.runs_on(name):
            continue
        answer = worker.ask(prepare=[family, case.name], out=str(bench.folder / f"{name}.npy"))
        worker.close()
        if "error" in answer:
            yield Failure("resident", label, bench.threads, name, answer["error"])
        else:
            yield row(name, answer["peak_mib"])


def _run(model: Path, shape: tuple[int, int], bench: Bench) -> tuple[float, bool]:
    command = [sys.executable, "-m", "bench.families.resident", str(model), *map(str, shape)]
    own = {"RLX_CACHE_DIR": str(bench.folder / "cache"), "RLX_NUM_THREADS": str(bench.threads)}
    env = environment(RLX_CACHE="on", **own)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=ROOT)
    mib, compiled = json.loads(done.stdout)
    return mib, compiled


if __name__ == "__main__":
    embed(Path(sys.argv[1]), *map(int, sys.argv[2:]))
