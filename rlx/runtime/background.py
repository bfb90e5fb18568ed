"""Work that no call waits for, on one thread of the process: compiles of what will be faster.

The thread lives while there is work. At the end of the process the work at hand is waited for,
since a compiler cannot be stopped halfway, and the rest is dropped. A child of a fork has none.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from rlx.base.process import lock_of
from rlx.base.threads import threads_with_large_stacks

__all__ = ["later", "waited"]

Work = Callable[[], None]


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
        self._ended = False

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            self._left.clear()
        self.wait()

    def add(self, work: Work) -> None:
        """Do it after what there is to do."""
        with self._lock:
            if self._ended:
                return
            self._left.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rlx-variants", daemon=True)
                with threads_with_large_stacks():
                    self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._left:
                    self._thread = None
                    return
                work = self._left.popleft()
            try:
                work()
            except Exception as e:  # a defect, which is to be seen, and no reason to end
                if isinstance(e, RuntimeError) and self._ending():
                    continue  # Python starts no threads any more, which a compile needs
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))

    def _ending(self) -> bool:
        return self._ended or not threading.main_thread().is_alive()

    def wait(self) -> None:
        """Until all is done."""
        while (thread := self._thread) is not None and thread.is_alive():
            thread.join()


_worker = _Worker()


def later(work: Work) -> None:
    """Do some work on the thread for it, after all that was asked for before."""
    _worker.add(work)


def waited() -> None:
    """Wait until all work is done."""
    _worker.wait()
