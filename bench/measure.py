"""Cases timed in rounds that go through the processes of all libraries in turn."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array, Case
from bench.runtimes import EXPORTED, NEEDS, RUNTIMES

ROOT = Path(__file__).resolve().parents[1]
OURS = "rlx"
ALSO_OURS = ("rlx_onnx",)
"""RLX once more, another way: in the tables, but no peer."""


def environment(**given: str) -> dict[str, str]:
    """That of a process to measure: this tree is in its path, and Python keeps what it translates
    of sources, as it does for users, wherever this process was told not to."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": path, **given}


@dataclass
class Row:
    """What one library took for one case."""

    family: str
    case: str
    threads: int
    runtime: str
    values: list[float]
    """One of each round: the median of its blocks."""
    least: float
    unit: str = "s"
    error: float | None = None
    """The difference from the reference, as a part of its largest element."""
    first: float | None = None
    """Seconds from the arrays to the first result: compiling, packing, and one run."""
    flops: float = 0
    moved: float = 0
    """Bytes, as in ``Case``."""
    dtype: str = ""
    padded: str = ""
    part: float = 0
    """Those of ``Case``."""

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)


@dataclass
class Failure:
    """A library that could not run a case, or computed something else."""

    family: str
    case: str
    threads: int
    runtime: str
    reason: str


@dataclass
class Options:
    """How much is measured, by whom."""

    runtimes: Sequence[str] = RUNTIMES
    threads: Sequence[int] = (1,)
    rounds: int = 8
    blocks: int = 3
    seconds: float = 0.003
    """Of a block."""
    only: Sequence[str] = ()
    quick: bool = False
    cpu_clock: bool = False
    """Whether at one thread the CPU time of the process is measured, which other work on the
    machine disturbs less. The process has one CPU then, so no thread of it hides work."""
    pythons: dict[str, str] = field(default_factory=dict)
    """The interpreter of a library, where it is not this one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the processes get besides."""
    timeout: float = 300
    device: str = ""
    """The device that all run on; by default each has threads of the CPU."""

    def names(self, case: str) -> bool:
        """Whether a case's name is among those asked for."""
        return not self.only or any(text in case for text in self.only)

    def takes(self, case: Case) -> bool:
        """Whether a case is to be run."""
        return self.names(case.name) and (case.quick or not self.quick)

    def installed(self) -> list[str]:
        """The libraries that there are; those of another interpreter are taken on trust."""
        return [
            name
            for name in self.runtimes
            if name in self.pythons or all(_is_there(p) for p in NEEDS.get(name, (name,)))
        ]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


class Worker:
    """The process of a library, stopped whenever it has nothing to do."""

    def __init__(self, runtime: str, threads: int, options: Options, log: Path) -> None:
        self.runtime, self.threads, self.options, self.log = runtime, threads, options, log
        self.process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        count = str(self.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RLX_NUM_THREADS")
        given = {
            **dict.fromkeys(names, count),
            "TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_COMPILE_THREADS": "1",
            **self.options.environment,
        }  # fmt: skip
        python = self.options.pythons.get(self.runtime, sys.executable)
        with self.log.open("w") as log:
            return subprocess.Popen(
                [python, "-m", "bench.worker", self.runtime, count, self.options.device],
                cwd=ROOT, env=environment(**given),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,  # so that what it starts is stopped and ended with it
            )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; an ``error`` in it if there is none."""
        if self.process is None:
            self.process = self._start()
        p = self.process
        assert p.stdin and p.stdout
        try:
            os.killpg(p.pid, signal.SIGCONT)
            p.stdin.write(json.dumps(request) + "\n")
            p.stdin.flush()
            ready, _, _ = select.select([p.stdout], [], [], self.options.timeout)
            line = p.stdout.readline() if ready else ""
        except (BrokenPipeError, ProcessLookupError):
            ready, line = [p.stdout], ""
        if line:
            # Its threads may wait busily for more work: not in the time of the others.
            os.killpg(p.pid, signal.SIGSTOP)
            return json.loads(line)
        reason = self._last_words() if ready else f"no answer in {self.options.timeout:.0f} s"
        self.close()
        return {"error": reason}

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return f"the process died: {' '.join(' '.join(lines[-4:]).split())[:300]}"

    def close(self) -> None:
        """End the process; the next request starts another."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            # Whoever else holds its output must not be waited for.
            for pipe in (self.process.stdin, self.process.stdout):
                with suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]
            self.process.wait()
            self.process = None


class Bench:
    """The processes of one run at one number of threads."""

    def __init__(self, options: Options, threads: int) -> None:
        self.options, self.threads = options, threads
        self.clock = "cpu" if options.cpu_clock and threads == 1 else "wall"
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-bench-"))
        self.workers = {name: self.worker(name) for name in options.installed()}
        self.exporter = self.worker("export")

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for w in (*self.workers.values(), self.exporter):
            w.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def worker(self, runtime: str) -> Worker:
        """A process for a library, started at its first request."""
        return Worker(runtime, self.threads, self.options, self.folder / f"{runtime}.log")

    def run(self, family: str, case: Case) -> Iterator[Row | Failure]:
        """A case in all libraries: compare their results, then time those that agree."""

        def failure(runtime: str, reason: str) -> Failure:
            return Failure(family, case.name, self.threads, runtime, reason)

        alive: dict[str, Row] = {}
        for name, found in self.prepare(family, case):
            if isinstance(found, str):
                yield failure(name, found)
            else:
                alive[name] = found
        for _ in range(self.options.rounds):
            for name, row in list(alive.items()):
                answer = self.workers[name].ask(
                    time=self.options.seconds, blocks=self.options.blocks, clock=self.clock
                )
                if "error" in answer:
                    del alive[name]
                    yield failure(name, answer["error"])
                    continue
                row.values.append(statistics.median(answer["seconds"]))
                row.least = min(row.least, *answer["seconds"])
        yield from alive.values()

    def prepare(self, family: str, case: Case) -> Iterator[tuple[str, Row | str]]:
        """Have every library make a case; its row, without times, or why it has none."""
        self.clear()
        want, exported = case.reference(), None
        for name, worker in self.workers.items():
            if not case.runs_on(name):
                continue
            if name in EXPORTED and name not in case.own:
                exported = exported or self.export(family, case)
                if "error" in exported:
                    yield name, f"export: {exported['error']}"
                    continue
            out = self.folder / f"{name}.npy"
            answer = worker.ask(prepare=[family, case.name], out=str(out))
            if "error" in answer:
                yield name, answer["error"]
                continue
            off = difference(np.load(out), want)
            if not off <= case.tolerance:
                yield name, f"the numbers differ: by {off:.1e} of the largest"
                continue
            yield name, Row(
                family, case.name, self.threads, name, [], float("inf"), error=off,
                first=answer["first_s"], flops=case.flops, moved=case.moved, dtype=case.dtype,
                padded=case.padded, part=case.part,
            )  # fmt: skip

    def export(self, family: str, case: Case) -> dict[str, Any]:
        """Write the files of a case."""
        return self.exporter.ask(prepare=[family, case.name], out=str(self.folder / "export.npy"))

    def clear(self) -> None:
        """Remove the files of the case before."""
        for file in self.folder.iterdir():
            if file.suffix != ".log":
                file.unlink()


def difference(found: Array, want: Array) -> float:
    """The largest difference as a part of the largest element; infinite if the shapes differ."""
    if found.shape != want.shape:
        return float("inf")
    scale = np.abs(want).max(initial=0) or 1.0
    return float(np.abs(found - want).max(initial=0) / scale)


def load_average() -> float:
    """Processes that want to run, over the last minute."""
    return os.getloadavg()[0]


def clock() -> str:
    """The time of day, to the second, with its zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
