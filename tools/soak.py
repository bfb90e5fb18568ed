"""Run random graphs in every way there is, and compare with the reference interpreter.

    python tools/soak.py --graphs 2000 [--seed N]
        [--device NAME | --transforms | --jax | --sizes | --artifacts | --numpy | --torch]

On the processor each is compiled for other CPUs or with donated inputs too, and called with other
numbers of threads, with views, with one array for two inputs, and several times at once: all must
give the same bits. With ``--device`` they run on the device of a GPU's API (``vulkan``), or its
stand-in, and are of ops and types that it runs. With ``--transforms`` the graphs are random ones
under random nestings of transforms; with ``--jax`` such, in f64, of which the interpreter's results
are compared with those of JAX, which must be installed. With ``--sizes`` two sizes of each graph
become symbols, and what is lowered for many sizes, in a variant and in a general one, must have the
bits of the compile for each. With ``--artifacts`` they are saved, loaded, given params anew and run
at many sizes. Progress goes to stderr. A failure is printed as what
``rlx.tools.reduce`` leaves of its graph, in HIR text, with the seed that makes it again
(``--graphs 1 --seed S``); the exit code is then 1.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

from support.random_graphs import random_case  # noqa: E402 -- found by the path above
from support.random_runs import failure, report  # noqa: E402
from support.random_transforms import transformed  # noqa: E402
from support.symbolic import is_bound, judge, with_symbols  # noqa: E402

OTHERS = (1, 4, 17)
"""Sizes at which is compared what was lowered at another."""

Result = tuple[int, str | None]
"""Nodes of the graph, 0 where the seed gives none or it is refused, and what is wrong."""


def plain(seed: int) -> Result:
    """A graph as it is."""
    case = random_case(seed)
    found = failure(case)
    return len(case.graph), report(case, found) if found else None


def on_device(api: str, seed: int) -> Result:
    """A graph on a device."""
    from support.device import device_of
    from support.random_device import case_on

    case, device = case_on(api, seed), device_of(api)
    found = failure(case, device)
    if found is not None and found.refused:
        return 0, None
    return len(case.graph), report(case, found, device) if found else None


def under_transforms(seed: int) -> Result:
    """A graph under transforms."""
    made = transformed(seed)
    if made is None:
        return 0, None
    found = failure(made.case)
    return len(made.case.graph), f"{made}\n{report(made.case, found)}" if found else None


def against_jax(seed: int) -> Result:
    """A graph under transforms, and the same by JAX."""
    from support.jax_graphs import Unable, case_for_jax, disagreement

    made = case_for_jax(seed)
    if made is None:
        return 0, None
    try:
        found = disagreement(made)
    except Unable as e:
        print(f"seed {seed}: JAX fails: {str(e).splitlines()[0]}", file=sys.stderr)
        return 0, None
    text = f"seed {seed}: {made}: {found}\n{made.source.graph.to_mlir()}"
    return len(made.case.graph), text if found else None


def of_sizes(seed: int) -> Result:
    """A graph with each of its sizes as a symbol."""
    graph, wrong = random_case(seed).graph, list[str]()
    for symbolic, size in with_symbols(graph)[:2]:
        others = [{"n": n} for n in OTHERS if n != size and is_bound(symbolic, {"n": n})]
        for general in (False, True):
            wrong += judge(symbolic, {"n": size}, others, general)[1]
    text = f"seed {seed}: {'; '.join(wrong)}\n{graph.to_mlir()}"
    return len(graph), text if wrong else None


def through_artifacts(seed: int) -> Result:
    """A graph's artifact, and one for many sizes."""
    from support.random_artifacts import disagreement

    case = random_case(seed, 1 + seed % 6)
    found = disagreement(case)
    text = f"seed {seed}: {found}\n{case.graph.to_mlir()}"
    return len(case.graph), text if found else None


def against_numpy(seed: int) -> Result:
    """A program in NumPy's words, and the same by NumPy."""
    from support.numpy_programs import Program, difference

    program = Program.of(seed)
    found = difference(program)
    return len(program.steps), f"seed {seed}: {found}" if found else None


def against_torch(seed: int) -> Result:
    """A program of torch with views and writes in place, and the same by torch."""
    from support.torch_programs import Program, difference

    program = Program(seed)
    found = difference(program)
    lines = program.source.splitlines()
    return len(lines), f"seed {seed}: {found}\n{program.source}" if found else None


def tried(run: Callable[[int], Result], seed: int) -> Result:
    """What a seed gives; an exception is a finding."""
    try:
        return run(seed)
    except Exception:
        return 0, f"seed {seed}: {traceback.format_exc()}"


def without(api: str) -> str:
    """Why there is no device for the code of a GPU's API here; "" if there is one."""
    from support.conformance import STANDS, facts, gpu_targets

    targets = [t for t in gpu_targets() if t not in STANDS]
    if api not in targets:
        return f"--device is one of {', '.join(targets)}, found {api!r}"
    return "" if facts(api).runs else f"{api}: {facts(api).why}"


def told(graphs: int, nodes: int, failed: int, start: float) -> str:
    """How far it has come."""
    seconds = time.perf_counter() - start
    return f"{graphs} graphs, {nodes} nodes, {failed} failed, {seconds:.0f} s"


def main() -> int:
    """Run the graphs of the seeds from ``--seed`` on; 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no graph is begun")
    parser.add_argument("--device", help="a GPU's API, in place of the processor")
    parser.add_argument("--transforms", action="store_true", help="derivatives and batches of them")
    parser.add_argument("--jax", action="store_true", help="the same, compared with JAX")
    parser.add_argument("--sizes", action="store_true", help="with symbols for their sizes")
    parser.add_argument("--artifacts", action="store_true", help="saved, loaded, at many sizes")
    parser.add_argument("--numpy", action="store_true", help="programs of NumPy's functions")
    parser.add_argument("--torch", action="store_true", help="programs of torch, compiled")
    given = parser.parse_args()
    if given.device and (why := without(given.device)):
        parser.error(why)
    ways = {
        "jax": against_jax, "transforms": under_transforms, "sizes": of_sizes,
        "artifacts": through_artifacts, "numpy": against_numpy, "torch": against_torch,
    }  # fmt: skip
    run = next((ways[name] for name in ways if getattr(given, name)), plain)
    run = partial(on_device, given.device) if given.device else run
    start, graphs, nodes, failed = time.perf_counter(), 0, 0, 0
    for n in range(given.graphs):
        if time.perf_counter() - start > given.seconds:
            break
        size, wrong = tried(run, given.seed + n)
        graphs, nodes = graphs + (size > 0), nodes + size
        if wrong is not None:
            failed += 1
            print(wrong, flush=True)
        if (n + 1) % 50 == 0:
            print(told(graphs, nodes, failed, start), file=sys.stderr, flush=True)
    print(told(graphs, nodes, failed, start), file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
