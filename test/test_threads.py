"""Compiling where the stack is small: MLIR's registration of its passes alone takes 256 KiB."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from rlx.base.threads import BYTES, on_large_stack, threads_with_large_stacks

SMALL = 128 << 10

COMPILE = """
import threading, numpy as np, rlx

def nested(x, depth):
    if not depth:
        return x.relu()
    return rlx.cond(x.sum() > 0, lambda v: nested(v, depth - 1), lambda v: v, x)

def work():
    g = rlx.Graph("g")
    x = g.input("x", [8, 8])
    chain = x
    for _ in range(100):
        chain = (chain * 1.5 + x).tanh()
    g.set_outputs([(x @ x).softmax(-1), chain, nested(x, 30)])
    with rlx.knobs.cache.scoped(False):
        rlx.Session("cpu").compile(g).run({"x": np.ones((8, 8), np.float32)})
    print("done")
"""

THREAD = f"""
threading.stack_size({SMALL})
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

LIMITED = """
import os, resource, sys
_, most = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, most))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""

FORKED = """
import os, threading, time
from rlx.base.threads import on_large_stack, threads_with_large_stacks

def work(inside):
    with threads_with_large_stacks():
        inside.set()
        time.sleep(0.2)

inside = threading.Event()
threading.Thread(target=work, args=[inside]).start()
inside.wait()
if child := os.fork():
    print("done" if os.waitpid(child, 0)[1] == 0 else "failed")
else:
    found = threading.Thread(target=on_large_stack, args=[lambda: None], daemon=True)
    found.start()
    found.join(20)
    os._exit(found.is_alive() or threading.stack_size() != 0)
"""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_with_a_small_stack_compiles() -> None:
    assert run(COMPILE + THREAD) == "done\n"


def test_a_process_with_a_small_stack_compiles() -> None:
    pytest.importorskip("resource")
    assert run(LIMITED, COMPILE + "work()") == "done\n"


def test_what_was_asked_for_stays_and_errors_come_back() -> None:
    before = threading.stack_size(SMALL)
    try:
        with threads_with_large_stacks():
            assert threading.stack_size(BYTES) == BYTES
        assert threading.stack_size(4 * BYTES) == SMALL
        with threads_with_large_stacks():
            assert threading.stack_size() == 4 * BYTES
        assert threading.stack_size(SMALL) == 4 * BYTES
        assert on_large_stack(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            on_large_stack(lambda: 1 // 0)
        assert threading.stack_size(SMALL) == SMALL
    finally:
        threading.stack_size(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_while_a_thread_is_started_starts_its_own() -> None:
    assert run(FORKED) == "done\n"
