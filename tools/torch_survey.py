"""Which models of timm and transformers ``rlx.from_torch`` imports right, with fresh weights.

    python tools/torch_survey.py timm [--only NAME ...] [--out FILE]
    python tools/torch_survey.py transformers [--device interpret]
    python tools/torch_survey.py transformers --out FILE --page docs/transformers.md

It needs torch and the package (`pip install torch timm transformers`), and downloads nothing:
models are made from their configurations, the smallest of each family of timm and each
architecture of transformers made small (``torch_survey_configs.py``). Weights are drawn so that no
output vanishes, and an output that hardly varies counts as no test. Each model is imported,
compiled and compared with ``ep.module()`` in a process of its own, which has ``--seconds`` of CPU;
a line of JSON a model says what became of it, and the counts come last. Where f32 itself does not
tell, since torch's result is further than half the tolerance from that in f64, ours may be twice as
far from that; with an error above 1e-2 it is undecided. A FILE of results is continued, by several
processes too; with ``--page`` nothing is run, and a page says what it holds. With ``--device
interpret`` nothing is compiled, which is quicker for small models.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from torch_survey_page import page

MEMORY = 14 << 30
"""The most address space of a process."""
TOLERANCE = 1e-4
"""Of a result, as a part of its largest element."""
UNDECIDED = 1e-2
"""The error from which a result that is as exact as torch's tells nothing: rounding decides it."""
SPREAD = 1e-4
"""The least deviation of an output that tells anything."""

Result = dict[str, Any]


def enliven(model: Any) -> None:
    """Draw weights anew where the fresh ones would let outputs vanish: matrices with a deviation of
    1/sqrt(fan-in), and no vector of zeros."""
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if not p.dtype.is_floating_point or p.numel() == 0:
                continue
            if p.ndim >= 2:
                fan_in = p[0].numel()
                if float(p.float().std()) < 0.5 * fan_in**-0.5:
                    p.normal_(0, fan_in**-0.5)
            elif float(p.float().abs().max()) < 1e-2:
                p.normal_(0, 0.1)
        for name, b in model.named_buffers():
            if name.endswith("running_var"):
                b.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                b.normal_(0, 0.1)


def settle(model: Any, *args: Any, **kwargs: Any) -> None:
    """Give batch norms the statistics of what they see, so that what goes through many layers
    neither grows nor vanishes: where it does, rounding decides the result."""
    import torch

    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for m in norms:
        m.train().momentum = None
        m.reset_running_stats()
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except ValueError:  # a channel of one element has no variance
        for m in norms:
            m.reset_running_stats()
    for m in norms:
        m.eval()


def tensors(found: Any) -> list[Any]:
    """The tensors of what a model returns."""
    import torch

    if isinstance(found, torch.Tensor):
        return [found]
    if hasattr(found, "to_tuple"):
        found = found.to_tuple()
    inner = found.values() if isinstance(found, dict) else found
    return [t for v in inner for t in tensors(v)] if isinstance(found, list | tuple | dict) else []


def judge(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Result) -> None:
    """Import a model and compare it; ``result`` gains the stage that was reached, and errors."""
    import numpy as np
    import torch

    import rlx
    from rlx.frontends.torch.tensors import array_of

    class Flat(torch.nn.Module):
        """Gives tensors alone, of models whose results are no pytree."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *a: Any, **k: Any) -> Any:
            return tuple(tensors(self.inner(*a, **k)))

    whole = Flat(model).eval()
    with torch.no_grad():
        result["stage"] = "eager"
        expected = whole(*args, **kwargs)
    program, graph = _imported(whole, args, kwargs, result)
    result["stage"] = "compile"
    given, named = program.example_inputs
    found = rlx.Session(result["device"]).compile(graph).run(_feeds(program, given, named))
    theirs: list[Any] = []
    judges = [("wrong", expected)]
    try:
        with torch.no_grad():
            exported_result = tensors(program.module()(*given, **named))
        judges = [("wrong", exported_result), ("eager differs", expected)]
    except RuntimeError as e:  # of torch, whose program of the module may not run
        result["torch's program"] = str(e)[:200]
    for stage, judge_of in judges:
        result["stage"] = stage
        theirs = [array_of(t) for t in judge_of]
        result["error"] = _furthest(found, theirs)
        if result["error"] > TOLERANCE and not _as_exact(
            whole, args, kwargs, found, theirs, result
        ):
            raise AssertionError(f"it differs by {result['error']:.3g}")
        if result["error"] > UNDECIDED:
            result["stage"] = "undecided"
            return
    lively = [float(np.std(a)) for a in theirs if a.dtype.kind == "f" and a.size > 1]
    result["spread"] = max(lively, default=1.0)
    result["stage"] = "right" if result["spread"] > SPREAD else "vanishes"


def _imported(
    whole: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Result
) -> tuple[Any, Any]:
    """The program of a model and its graph; of a model of transformers that torch.export or RLX
    refuses as it is, by the exporter of that package."""
    import torch

    from rlx.frontends.torch.export import program_of
    from rlx.frontends.torch.importer import import_program

    def plain() -> Any:
        with torch.no_grad():
            return torch.export.export(whole, args, kwargs, strict=False)

    def by_exporter() -> Any:
        from transformers.exporters.configs import DynamoConfig
        from transformers.exporters.exporter_dynamo import DynamoExporter

        exporter, given = DynamoExporter(), copy.deepcopy(kwargs)
        return exporter.export_program(whole.inner, given, DynamoConfig())[0]

    refusals: list[tuple[str, Exception]] = []
    ways = {"torch.export": plain, "transformers' exporter": by_exporter}
    for result["by"], way in list(ways.items())[: 1 if args else 2]:
        result["stage"] = "export"
        try:
            exported = way()
            program, _ = program_of(exported, (), {}, None)
            result["stage"] = "import"
            return program, import_program(program, {})[0]
        except Exception as e:
            refusals.append((result["stage"], e))
    result["stage"], reason = refusals[0]
    result["by exporter"] = f"{refusals[-1][0]}: {refusals[-1][1]}"[:300]
    raise reason


def _furthest(found: Sequence[Any], theirs: Sequence[Any]) -> float:
    import numpy as np

    from rlx.frontends.common.check import relative_error

    pairs = zip(found, theirs, strict=True)
    return max(relative_error(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _as_exact(
    whole: Any, args: Any, kwargs: Any, found: Any, theirs: Any, result: Result
) -> bool:  # fmt: skip
    """Whether ours is as near to the result in f64 as torch's is, where f32 does not tell: twice as
    far at most."""
    import torch

    def wide(t: Any) -> Any:
        return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t

    whole.double()
    with torch.no_grad():
        args, kwargs = _pytree().tree_map(wide, (args, kwargs))
        exact = [t.numpy() for t in whole(*args, **kwargs)]
    result["f64 error"], result["torch's"] = _furthest(found, exact), _furthest(theirs, exact)
    return result["torch's"] > TOLERANCE / 2 and result["f64 error"] <= 2 * result["torch's"]


def _pytree() -> Any:
    return importlib.import_module("torch.utils._pytree")


def _feeds(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    import torch

    from rlx.frontends.torch.tensors import array_of

    leaves = _pytree().tree_leaves((args, kwargs))
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    pairs = zip(names, leaves, strict=True)
    return {n: array_of(t) for n, t in pairs if isinstance(t, torch.Tensor)}


# -- processes -----------------------------------------------------------------------------


class Late(BaseException):
    """The time of a model is up, which no ``except Exception`` of its code is to catch."""


def in_process(
    name: str, run: Callable[[Result], None], seconds: int, device: str = "cpu"
) -> Result:
    """The result of a model in a child, which memory and time may end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child({"name": name, "stage": "build", "device": device}, run, seconds, write)
    os.close(write)
    data, start = b"", time.monotonic()
    while time.monotonic() - start < 20 * seconds:
        if select.select([read], [], [], 1)[0]:
            more = os.read(read, 1 << 20)
            if not more:
                break
            data += more
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    return json.loads(data) if data else {"name": name, "stage": "died", "why": f"status {status}"}


def _child(result: Result, run: Callable[[Result], None], seconds: int, write: int) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def late(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        run(result)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except Late:
        signal.setitimer(signal.ITIMER_PROF, 0)
        result["why"] = f"TimeoutError: over {seconds} s of CPU time"
    except BaseException as e:
        signal.setitimer(signal.ITIMER_PROF, 0)
        result["why"] = f"{type(e).__name__}: {e}"[:400]
    result["seconds"] = round(sum(os.times()[:2]), 1)
    os.write(write, (json.dumps(result) + "\n").encode())
    os._exit(0)


def _load(package: str) -> None:
    """Import once what every child needs."""
    import torch

    import rlx.compiler.driver
    from rlx.frontends.torch.export import program_of

    assert rlx.compiler.driver
    program_of(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {}, None)
    if package == "transformers":
        import transformers.models.bert.modeling_bert as model

        assert model


def _results(path: Path | None) -> dict[str, Result]:
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {r["name"]: r for r in map(json.loads, lines)}


def main() -> None:
    """Survey the models of a package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("package", choices=("timm", "transformers"))
    parser.add_argument("--only", nargs="*", default=None, help="these models")
    parser.add_argument("--out", type=Path, help="a file of results, which is continued")
    parser.add_argument("--seconds", type=int, default=150, help="of CPU time, for each model")
    parser.add_argument("--device", default="cpu", help="a session's, such as interpret")
    parser.add_argument("--every", type=int, default=1, help="every so many models")
    parser.add_argument("--page", type=Path, help="write this page of the results in --out")
    given = parser.parse_args()
    if given.page:
        found = list(_results(given.out).values())
        given.page.write_text(page(given.package, found), encoding="utf-8")
        return
    warnings.simplefilter("ignore")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", RLX_CACHE="off")
    import torch
    import torch_survey_models as models

    torch.set_num_threads(1)
    _load(given.package)
    cases = models.timm_cases() if given.package == "timm" else models.transformers_cases()
    results = _results(given.out)
    order = sorted(cases, key=lambda name: zlib.crc32(name.encode()))  # a part is a fair sample
    for name in order[:: given.every]:
        results.update(_results(given.out))  # another process may have added some
        if (given.only and name not in given.only) or name in results:
            continue
        result = results[name] = in_process(name, cases[name], given.seconds, given.device)
        print(json.dumps(result), flush=True)
        if given.out:
            with given.out.open("a") as f:
                f.write(json.dumps(result) + "\n")
    counts = Counter(r["stage"] for r in results.values())
    print(
        f"{given.package}: {len(results)} models, "
        + ", ".join(f"{stage} {n}" for stage, n in counts.most_common())
    )


if __name__ == "__main__":
    main()
