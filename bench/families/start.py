"""A new process to its first result, with nothing kept from before, and its memory.

The time runs from the start of the interpreter, through imports, the building and compiling of the
case and the packing of weights, to the first result. Memory is the largest resident set until then,
and some runs later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from bench.case import Case
from bench.families import find_case
from bench.measure import Bench, Failure, Options, Row
from bench.runtimes import EXPORTED

CASES = (("minilm", "1x128"), ("bert", "layer 1x128"), ("llama", "decode after 512"))

NO_CACHE = {"RLX_CACHE": "off", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


def rows(options: Options) -> Iterator[Row | Failure]:
    """Each library's first result of each case, round by round in new processes."""
    fresh = replace(options, environment=NO_CACHE)
    for family, name in CASES[: 1 if options.quick else None]:
        case = find_case(family, name)
        if options.names(case.name):
            for threads in options.threads:
                yield from first_results(fresh, family, case, threads)


def first_results(
    options: Options, family: str, case: Case, threads: int
) -> Iterator[Row | Failure]:
    """The rows of a case: seconds, and MiB."""
    times: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    with Bench(options, threads) as bench:
        exported = bench.export(family, case)
        for _ in range(max(1, options.rounds // 3)):
            for name, worker in bench.workers.items():
                if not case.runs_on(name) or (name in EXPORTED and "error" in exported):
                    continue
                start = time.perf_counter()
                out = str(bench.folder / f"{name}.npy")
                answer = worker.ask(prepare=[family, case.name], out=out)
                worker.close()
                if "error" in answer:
                    yield Failure("start", case.name, threads, name, answer["error"])
                    continue
                wall = time.perf_counter() - start - answer["warming_s"]
                spent = answer["cpu_s"] if bench.clock == "cpu" else wall
                times.setdefault(name, []).append(spent)
                memory.setdefault(name, []).append(answer["peak_mib"])
    for what, unit, found in (("first result", "s", times), ("memory", "MiB", memory)):
        for name, values in found.items():
            label = f"{family} {case.name}, {what}"
            yield Row("start", label, threads, name, values, min(values), unit)
