"""Threads with room on their stacks, for the C++ of compilers.

The stack of a thread may be small: by ``threading.stack_size``, by ``ulimit -s``, or since a
program in C made it so. MLIR's registration of its passes alone takes more than 256 KiB.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["on_large_stack", "threads_with_large_stacks"]

T = TypeVar("T")

BYTES = 8 << 20
"""What Linux gives a thread by default. Only what is touched takes memory."""

_changing = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits for the end of a block: a child would keep its size, and find the lock held.
    os.register_at_fork(
        before=_changing.acquire,
        after_in_parent=_changing.release,
        after_in_child=_changing.release,
    )


@contextmanager
def threads_with_large_stacks() -> Generator[None]:
    """The threads that Python starts in the block have stacks of ``BYTES`` at least, or of what was
    asked for if that is more."""
    with _changing:
        before = threading.stack_size()
        threading.stack_size(max(before, BYTES))
        try:
            yield
        finally:
            threading.stack_size(before)


def on_large_stack(call: Callable[[], T]) -> T:
    """What ``call`` gives, or raises, on a thread with a large stack."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rlx-stack")
    with threads_with_large_stacks():
        thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
