"""The thread for work that no call waits for, as the process ends."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from rlx.runtime.background import later

def work():
    threading.main_thread().join()
    ThreadPoolExecutor(1).submit(int)

later(work)
"""


def test_work_that_needs_threads_is_dropped_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
