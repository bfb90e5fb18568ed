"""Ctrl-C in the middle of a run: it ends soon, and what there was before can be used on.

What would never end runs in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import ToolchainError
from rlx.runtime import _native
from rlx.runtime.interrupts import held
from rlx.targets.gpu.driver import Driver
from support.device import APIS, compiled, session

ENDLESS = {
    "launches": ("rlx.while_loop(less, lambda c: c * 1, x)", [400]),
    "no launches": ("rlx.while_loop(lambda c: c < 9, lambda c: c, x)", []),
    "a kernel": ("rlx.while_loop(less, lambda c: c * 1, x)", [4]),
    "a kernel with a limit": ("rlx.while_loop(less, lambda c: c * 1, x, limit=10**15)", []),
    "a loop in a loop": (
        "rlx.fori(9, lambda i, c: rlx.while_loop(less, lambda d: d * 1, c), x)", []
    ),
    "a loop in a branch": (
        "rlx.fori(9, lambda i, c: rlx.cond(c < 99, lambda c: rlx.while_loop(less,"
        " lambda d: d * 1, c), lambda c: c, c), x)", []
    ),
    "a loop in a test": (
        "rlx.while_loop(lambda c: less(rlx.while_loop(less, lambda d: d * 1, c)),"
        " lambda c: c + 1, x)", []
    ),
    "rounds": ("rlx.fori(10**14, lambda i, c: c * 1, x)", []),
    "the prologue": (
        "x * (rlx.while_loop(less, lambda c: c * 1, g.param('w', value=np.float32(1))) / 10)", []
    ),
}  # fmt: skip
"""Graphs on x, and the shape of x. Where x, or the param, is 1, nothing but a signal ends them;
where they are 10, the result is x."""

CHILD = """
import os, signal, sys, threading, time
import numpy as np
import rlx

def interrupted(run):
    "What a run took to end by KeyboardInterrupt, with Ctrl-C after a fifth of a second."
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    try:
        run()
    except KeyboardInterrupt:
        timer.join()
        return time.perf_counter() - began
    raise SystemExit("no KeyboardInterrupt")
"""


class CtrlC:
    """Presses Ctrl-C when a driver is told to run, by the number of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self._presses = 0, ()
        run = Driver.run

        def counted(driver: Driver, work: Any) -> None:
            self.calls += 1
            if self.calls in self._presses:
                signal.raise_signal(signal.SIGINT)
            run(driver, work)

        monkeypatch.setattr(Driver, "run", counted)

    @contextmanager
    def at(self, *presses: int) -> Generator[None]:
        self.calls, self._presses = 0, presses
        yield
        self._presses = ()


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> CtrlC:
    return CtrlC(monkeypatch)


def child(text: str) -> str:
    """What a process prints that runs CHILD and the text; it has five minutes, of which it needs a
    few seconds on a machine that does nothing else."""
    code = CHILD + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends a process there")
def test_ctrl_c_ends_a_run_and_the_next_is_right() -> None:
    child(f"""
        def less(c):
            return c.sum() < 9

        for name, (graph, shape) in {ENDLESS!r}.items():
            print(name, file=sys.stderr, flush=True)
            g = rlx.Graph("g")
            x = g.input("x", shape)
            g.set_outputs(eval(graph))
            f = rlx.Session("cpu").compile(g)
            one, ten = np.full(shape, 1, np.float32), np.full(shape, 10, np.float32)
            if shape == [400]:
                one /= 400
            assert interrupted(lambda: f.run({{"x": one}})) < 10
            if name == "a kernel":
                assert interrupted(lambda: f.run_into({{"x": one}}, [one.copy()])) < 10
            if g.params:
                f.set_param("w", np.float32(10))
            if name != "rounds":
                assert (f.run({{"x": ten}})[0] == ten).all()
    """)


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends a process there")
def test_the_runs_of_other_threads_go_on() -> None:
    child("""
        g = rlx.Graph("g")
        x = g.input("x", [400])
        rounds = g.input("rounds", [], "i64")
        g.set_outputs(rlx.fori(rounds, lambda i, c: c + 1, x))
        f = rlx.Session("cpu").compile(g)
        zero, found = np.zeros(400, np.float32), []

        def other():
            while not done:
                found.append(f.run({"x": zero, "rounds": np.int64(1000)})[0][0])

        done = []
        threads = [threading.Thread(target=other) for _ in range(2)]
        for t in threads:
            t.start()
        assert interrupted(lambda: f.run({"x": zero, "rounds": np.int64(10**14)})) < 20
        done.append(True)
        for t in threads:
            t.join()
        assert set(found) == {1000}
    """)


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends a process there")
def test_a_run_in_place_ends_first_and_at_the_second_ctrl_c_leaves_no_halves() -> None:
    child("""
        g = rlx.Graph("g")
        x, n, last = g.input("x", [400]), g.input("n", [400], "i32"), g.input("last", [])
        y = rlx.while_loop(lambda c: c.max() < last, lambda c: c + 1, x)
        g.set_outputs([y, n + 1, y.sum()])
        f = rlx.Session("cpu").compile(g, donate=((0, 0), (1, 1)))
        x, n = np.zeros(400, np.float32), np.zeros(400, np.int32)

        def run(last):
            f.run_in_place({"last": np.float32(last)}, {"x": x, "n": n})

        run(3)
        assert (x == 3).all() and (n == 1).all()
        took = interrupted(lambda: run(1.6e7))  # which float32 still counts
        assert (x == 1.6e7).all() and (n == 2).all(), (x, n)
        again = threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT))
        again.start()
        x[:] = 0
        assert 1 < interrupted(lambda: run(1e9)) < 60  # 1e9 is never met: 2**24 + 1 is 2**24
        assert np.isnan(x).all() and (n == -1).all(), (x, n)
        x[:], n[:] = 0, 0
        run(3)
        assert (x == 3).all() and (n == 1).all()
    """)


@pytest.mark.skipif(os.name == "nt", reason="os.kill ends a process there")
def test_a_handler_that_returns_ends_nothing_and_any_that_raises_does() -> None:
    child("""
        g = rlx.Graph("g")
        x = g.input("x", [400])
        g.set_outputs(rlx.fori(10**14, lambda i, c: c + 1, x))
        f = rlx.Session("cpu").compile(g)
        seen = []

        class Late(Exception):
            pass

        def handler(number, frame):
            seen.append(number)
            if len(seen) == 3:
                raise Late

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        try:
            f.run({"x": np.zeros(400, np.float32)})
        except Late:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(seen) == 3
    """)


# -- devices whose launches Python makes -------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_ctrl_c_ends_a_run_on_a_device_between_launches(api: str, ctrl_c: CtrlC) -> None:
    g = rlx.Graph("g")
    x = g.input("x", [64])
    y = rlx.while_loop(lambda c: c.max() < 9, lambda c: c + 1, x)
    g.set_outputs([y, y.sum()])
    device = session(api)
    f = compiled(api, g, donate=((0, 0),))
    zero = np.zeros(64, np.float32)
    assert (f.run({"x": zero})[0] == 9).all()
    with ctrl_c.at(3), pytest.raises(KeyboardInterrupt):
        f.run({"x": zero})
    assert ctrl_c.calls < 8
    assert (f.run({"x": zero})[0] == 9).all()
    state = device.to_device(zero)
    with ctrl_c.at(3), pytest.raises(KeyboardInterrupt):
        f.run_in_place({}, {"x": state})
    assert (state.numpy() == 9).all()
    state = device.to_device(zero)
    with ctrl_c.at(3, 5), pytest.raises(KeyboardInterrupt):
        f.run_in_place({}, {"x": state})
    assert np.isnan(state.numpy()).all()
    state, before = device.to_device(zero), signal.signal(signal.SIGINT, lambda *_: sys.exit(3))
    try:  # whatever the handler raises
        with ctrl_c.at(3, 5), pytest.raises(SystemExit):
            f.run_in_place({}, {"x": state})
    finally:
        signal.signal(signal.SIGINT, before)
    assert np.isnan(state.numpy()).all()
    with ctrl_c.at(3, 5), pytest.raises(KeyboardInterrupt):
        f.run_in_place({}, {"x": zero})
    assert (zero == 0).all()
    f.run_in_place({}, {"x": zero})
    assert (zero == 9).all()


def test_a_native_module_older_than_the_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph("g")
    x = g.input("x", [])
    g.set_outputs(rlx.while_loop(lambda c: c < 9, lambda c: c + 1, x))
    monkeypatch.setattr(_native, "ABI_VERSION", 1)
    with pytest.raises(ToolchainError, match=r"module is of ABI 1.*make setup"):
        rlx.Session("cpu").compile(g)


# -- what is held back -------------------------------------------------------------------------


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_what_is_held_back_comes_at_the_end_or_where_it_is_let_through() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), held():
        press()
        done.append(1)
    with pytest.raises(KeyboardInterrupt), held() as interrupts:
        press()
        interrupts.let_through(1)
        done.append(2)
        press()
        interrupts.let_through(1)
        done.append(0)
    with pytest.raises(KeyboardInterrupt), held() as interrupts:
        with interrupts.open():
            done.append(3)
        press()
        with interrupts.open():
            done.append(0)
    with pytest.raises(KeyboardInterrupt), held() as interrupts, interrupts.open():
        press()
        done.append(0)
    assert done == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_is_none_of_pythons_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held() as interrupts:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            press()
            interrupts.let_through()
    finally:
        signal.signal(signal.SIGINT, before)
