"""The process of one library: it prepares a case, then answers with times.

Requests are JSON objects, one a line, on standard input; answers likewise on standard output.
``{"prepare": [family, case], "out": FILE}`` makes the call, runs it, and saves its result as FILE.
``{"time": seconds, "blocks": n, "clock": "wall" or "cpu"}`` runs it for about so long, n times. On
a device a block begins and ends with a wait for it; the calls between are not waited for.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.device import Started

WARM_SECONDS, WARM_RUNS = 0.2, 3

LONG = 0.25
"""Seconds of a call from which a block is one call, and a round one block."""

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Service:
    """What was prepared last, in the process of a library."""

    def __init__(self, runtime: str, threads: int, device: str = "") -> None:
        self.runtime, self.threads, self.device = runtime, threads, device
        self.run: Callable[[], Any] | None = None
        self.wait: Callable[[], None] = _no_wait
        self.once = 0.0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request says."""
        return self.prepare(request) if "prepare" in request else self.time(request)

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the call, and run it until it is warm."""
        self.run = None
        gc.collect()
        from bench.families import find_case

        start = time.perf_counter()
        case, out = find_case(*request["prepare"]), Path(request["out"])
        make = self.maker(case, out.parent)
        made = time.perf_counter()
        prepared = make()
        self.run, self.wait = prepared.call, prepared.wait
        result = prepared.fetch(self.run())
        done = time.perf_counter()
        import numpy as np

        if result.dtype.itemsize == 2:  # bfloat16 is no type of NumPy's files
            result = result.astype(np.float32)
        np.save(out, case.checked(result))
        used, warming = time.process_time(), time.perf_counter()
        self.warm()
        spent = time.perf_counter() - warming
        return {
            "import_s": made - start, "first_s": done - made, "warming_s": spent, "cpu_s": used,
            "peak_mib": peak_mib(),
        }  # fmt: skip

    def maker(self, case: Any, folder: Path) -> Callable[[], Started]:
        """What makes the call; the library is imported."""
        if self.runtime in case.own:
            return partial(_on_host, partial(case.own[self.runtime], case, self.threads))
        library = importlib.import_module(f"bench.runtimes.{self.runtime}")
        if self.device and hasattr(library, "prepare_on"):
            return partial(library.prepare_on, case, self.device)
        return partial(_on_host, partial(library.prepare, case, self.threads, folder))

    def warm(self) -> None:
        """A few runs, the fastest of which says how many make a block."""
        assert self.run is not None
        begin, times = time.perf_counter(), []
        while len(times) < WARM_RUNS or time.perf_counter() - begin < WARM_SECONDS / 4:
            start = time.perf_counter()
            self.run()
            self.wait()
            times.append(time.perf_counter() - start)
            if time.perf_counter() - begin > WARM_SECONDS:
                break
        self.once = min(times)

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds a run in each of some blocks, after a run that brings the caches back."""
        assert self.run is not None
        run, found, now = self.run, [], CLOCKS[request["clock"]]
        count = max(1, int(request["time"] / max(self.once, 1e-9)))
        blocks = request["blocks"]
        if self.once > LONG:  # of which the caches are a small part
            blocks = 1
        else:
            run()
        for _ in range(blocks):
            self.wait()
            start = now()
            for _ in range(count):
                run()
            self.wait()
            found.append((now() - start) / count)
        return {"seconds": found}


def _on_host(make: Callable[[], Callable[[], Any]]) -> Started:
    """A call that is done when it returns."""
    import numpy as np

    from bench.device import Started

    def fetch(result: Any) -> Any:
        return np.asarray(result[0] if isinstance(result, tuple | list) and result else result)

    return Started(make(), _no_wait, fetch)


def _no_wait() -> None:
    pass


def peak_mib() -> float:
    """The largest resident set of this process so far, in MiB."""
    import resource

    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says begins with the process that started this one
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert peak is not None
        return int(peak[1]) / 1024

    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main(runtime: str, threads: int, device: str = "") -> None:
    """Answer requests until standard input ends."""
    _end_with_parent()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    # What libraries print goes to the log, also what they print from C.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    service = Service(runtime, threads, device)
    for line in sys.stdin:
        try:
            answer = service.answer(json.loads(line))
        except Exception as e:  # a library that fails is reported, and the others go on
            answer = {"error": " ".join(f"{type(e).__name__}: {e}".split())[:300]}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _end_with_parent() -> None:
    """On Linux, have this process killed when its parent ends in any way: a stopped process would
    not notice that its input has ended."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
