"""The process in which Triton compiles, from the side of who asks."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlx.errors import ToolchainError

__all__ = ["ask"]

_SCRIPT = Path(__file__).with_name("stages.py")


class _Compiler:
    """A running process. It ends with its standard input, so with this process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        line = ""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass  # it has ended: there is no answer
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").split()[-40:]
        return {"error": f"its process ended with {code}: {' '.join(last)}", "ended": True}

    def end(self) -> None:
        """Close its input, which ends it, and wait for that."""
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._said.close()


class _Asker:
    """The process that runs, or none yet; one request at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: _Compiler | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            running = self.running
            if running is None or running.owner != os.getpid():  # a fork has none yet
                self.running = running = _Compiler()
            answer = running.answer(request)
            if "ended" in answer:
                running.end()
                self.running = None
            return answer

    def end(self) -> None:
        """Leave no process behind."""
        if self.running is not None and self.running.owner == os.getpid():
            self.running.end()
            self.running = None


_asker = _Asker()
atexit.register(_asker.end)


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """What the compiler answers; ToolchainError, with its words, for what it refuses, and if it
    ends for it: the next request has a new process."""
    answer = _asker.ask(request)
    if "error" in answer:
        raise ToolchainError(answer["error"])
    return answer
