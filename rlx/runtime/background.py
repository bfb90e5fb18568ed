"""Work that no call waits for, on one thread of the process: compiles of what will be faster.

The thread lives while there is work, and begins a while after it was asked: not while the call
that asked is running, and not at all in a process that does little else. What is at work stops at
its next checkpoint where somebody waits to compile, and is done last then; where the process ends
it stops too, and the rest is dropped. A child of a fork has none. Where the system starts no
thread, nothing is done: who asks may ask again.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from rlx.base.giving_way import GaveWayError, compiles, giving_way
from rlx.base.process import lock_of
from rlx.base.threads import threads_with_large_stacks

__all__ = ["later", "waited"]

PAUSE = 0.25
"""Seconds until the thread begins: more than a first call takes after its compile."""

Work = Callable[[], None]
_NO_THREADS = {RuntimeError, getattr(builtins, "PythonFinalizationError", RuntimeError)}
"""What Python raises where it starts no thread; other errors are of classes below these."""


class _Worker:
    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._end)

    def _forget(self) -> None:
        self._left: deque[Work] = deque()
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._ended = False

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            self._left.clear()
        self.wait()

    def add(self, work: Work) -> bool:
        """Queue work behind what is queued. Returns whether it will be done."""
        with self._lock:
            if self._ended or (self._thread is None and not self._started()):
                return False
            self._left.append(work)
            return True

    def _started(self) -> bool:
        """Whether the thread could be started. It waits for the lock."""
        thread = threading.Thread(target=self._run, name="rlx-variants", daemon=True)
        try:
            with threads_with_large_stacks():
                thread.start()
        except RuntimeError:  # there are as many as the system allows, or the process ends
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        self._hurry.wait(PAUSE)
        while True:
            with self._lock:
                if not self._left:
                    self._thread = None
                    return
                work = self._left.popleft()
            try:
                with giving_way(self._asked):
                    work()
            except GaveWayError:
                self._put_off(work)
            except Exception as e:  # a defect, which is to be seen, and no reason to end
                if type(e) in _NO_THREADS and self._ending():
                    continue  # a compile needs some
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))

    def _asked(self) -> bool:
        return self._ended or compiles.wanted

    def _put_off(self, work: Work) -> None:
        with self._lock:
            if not self._ended:
                self._left.append(work)
        time.sleep(0.001)  # who waits is to be the next
        while compiles.wanted and not self._ended:
            time.sleep(0.001)

    def _ending(self) -> bool:
        return self._ended or not threading.main_thread().is_alive()

    def wait(self) -> None:
        """Wait until all is done, which begins at once."""
        self._hurry.set()
        while (thread := self._thread) is not None and thread.is_alive():
            thread.join()
        self._hurry.clear()


_worker = _Worker()


def later(work: Work) -> bool:
    """Queue work for the background thread. Returns False if no thread could be started."""
    return _worker.add(work)


def waited() -> None:
    """Wait until all work is done."""
    _worker.wait()
