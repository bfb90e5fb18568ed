"""What docs/concurrency.md says of threads, forks and interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import knobs
from rlx.errors import FaultError, UnsupportedError
from rlx.runtime import backend


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work`` gives, or raises, in threads that begin together."""
    start, found = threading.Barrier(count), dict[int, Any]()

    def body(n: int) -> None:
        start.wait(600)
        try:
            found[n] = work(n)
        except Exception as e:
            found[n] = e

    threads = [threading.Thread(target=body, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(600)
    return [found[n] for n in range(count)]


def scaled(factor: float) -> rlx.Graph:
    g = rlx.Graph("scaled")
    x = g.input("x", [4, 4])
    g.set_outputs((x @ x) * factor)
    return g


def child(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_graphs_are_built_and_compiled_by_many_threads_of_one_session() -> None:
    session, one = rlx.Session("cpu"), np.ones((4, 4), np.float32)
    found = at_once(6, lambda n: session.compile(scaled(n)).run({"x": one})[0][0, 0])
    assert found == [4 * n for n in range(6)]


def test_a_cache_builds_equal_graphs_once() -> None:
    cache, session = rlx.CompileCache(), rlx.Session("cpu")
    found = at_once(6, lambda n: cache.compile(session, scaled(2)))
    assert len(set(map(id, found))) == 1 and (cache.misses, cache.hits) == (1, 5)


def test_graph_devices_give_every_thread_its_own_result() -> None:
    g = rlx.Graph("g")
    x, w = g.input("x", [8]), g.param("w", [8])
    g.set_outputs(x * w)
    runner = rlx.GraphDevices(g, rlx.DevicePolicy(allow=("cpu", "interpret")))
    runner.set_param("w", np.full(8, 3, np.float32))

    def work(n: int) -> bool:
        device, value = ("cpu", "interpret")[n % 2], np.full(8, n, np.float32)
        found = [runner.run_try([device], {"x": value}) for _ in range(20)]
        return all(d == device and (y[0] == 3 * n).all() for d, y in found)

    assert at_once(6, work) == [True] * 6


def test_a_knob_that_is_scoped_is_so_in_all_threads_until_its_block_ends() -> None:
    inside, read = threading.Event(), threading.Event()

    def work(n: int) -> Any:
        if n == 0:
            with knobs.num_threads.scoped(7):
                inside.set()
                assert read.wait(60)
            return knobs.num_threads.get() != 7
        assert inside.wait(60)
        found = [knobs.num_threads.get() for _ in range(100)]
        read.set()
        return found == [7] * 100

    assert at_once(2, work) == [True] * 2


def test_a_param_is_seen_whole() -> None:
    g = rlx.Graph("g")
    x, w = g.input("x", [64]), g.param("w", [64])
    g.set_outputs([x * w, (w * 2).sum()])
    f = rlx.Session("cpu").compile(g)
    f.set_param("w", np.ones(64, np.float32))
    one = np.ones(64, np.float32)

    def work(n: int) -> bool:
        if n == 0:
            for value in range(100):
                f.set_param("w", np.full(64, value, np.float32))
            return True
        results = [f.run({"x": one}) for _ in range(200)]
        return all((a == a[0]).all() and total == 128 * a[0] for a, total in results)

    assert at_once(4, work) == [True] * 4


def test_an_error_ends_the_call_of_its_own_thread() -> None:
    @rlx.custom_op("contract.positive", infer=lambda x: x)
    def positive(x: Any) -> Any:
        if (x < 0).any():
            raise ArithmeticError("a negative number")
        return x

    g = rlx.Graph("g")
    x = g.input("x", [8])
    g.set_outputs(positive(x + 1) * 2)
    f = rlx.Session("cpu").compile(g)

    def work(n: int) -> Any:
        value = np.full(8, -5 if n == 0 else n, np.float32)
        return [f.run({"x": value})[0][0] for _ in range(50)]

    failed, *others = at_once(4, work)
    assert isinstance(failed, FaultError) and isinstance(failed.__cause__, ArithmeticError)
    assert others == [[2 * (n + 1)] * 50 for n in (1, 2, 3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_compiles_compiles_and_runs() -> None:
    said = child("""
        import os, threading, numpy as np, rlx

        def graph(n, length=3):
            g = rlx.Graph("g")
            x = y = g.input("x", [4, 4])
            for i in range(length):
                y = (y @ x + n).tanh()
            g.set_outputs(y)
            return g

        cache, session = rlx.CompileCache(), rlx.Session("cpu")
        one = np.ones((4, 4), np.float32)
        expected = cache.compile(session, graph(1)).run({"x": one})[0]
        begun = threading.Event()

        def work():
            for n in range(2, 5):
                begun.set()
                cache.compile(session, graph(n, 60))

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                found = cache.compile(session, graph(1)).run({"x": one})[0]
                cache.compile(session, graph(99, 4)).run({"x": one})
                os._exit(0 if (found == expected).all() else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        thread.join()
    """)
    assert said.split() == ["0", "0", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_profiles_profiles() -> None:
    said = child("""
        import os, signal, threading, numpy as np, rlx
        g = rlx.Graph("g")
        g.set_outputs(g.input("x", [64, 64]).tanh())
        f = rlx.Session("cpu").compile(g)
        x = {"x": np.ones((64, 64), np.float32)}
        f.profile(x, 2)  # a fork within an import would be Python's own trouble
        ended = threading.Event()

        def work():
            while not ended.is_set():
                f.profile(x, 50)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                f.profile(x, 2)
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        ended.set()
        thread.join()
    """)
    assert said.split() == ["0"] * 5


def test_a_daemon_thread_in_a_run_ends_with_the_process() -> None:
    said = child("""
        import threading, time, numpy as np, rlx
        g = rlx.Graph("g")
        x = g.input("x", [400])
        g.set_outputs(rlx.while_loop(lambda c: c.sum() < 9, lambda c: c * 1, x))
        f = rlx.Session("cpu").compile(g)
        zero = np.zeros(400, np.float32)
        threading.Thread(target=lambda: f.run({"x": zero}), daemon=True).start()
        time.sleep(0.3)
        print("end")
    """)
    assert said == "end\n"


def test_another_interpreter_is_refused() -> None:
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    said = child(f"""
        import {name} as interpreters
        code = '''
        try:
            import rlx
            rlx.Session("cpu")
        except Exception as e:
            print(type(e).__name__, e)
        '''
        import textwrap
        interpreters.run_string(interpreters.create(), textwrap.dedent(code))
    """)
    # From 3.12 on Python itself refuses the native module there.
    assert ("UnsupportedError" in said and "use processes" in said) or "ImportError" in said, said


def test_the_refusal_of_another_interpreter_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "is_main_interpreter", lambda: False)
    with pytest.raises(UnsupportedError, match=r"test_contract.*main interpreter .* processes"):
        rlx.Session("cpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_within_a_property_that_is_kept_computes_it() -> None:
    said = child("""
        import os, signal, threading
        from rlx.base.cached import cached_property

        class Slow:
            forked = threading.Event()
            begun = threading.Event()

            @cached_property
            def value(self):
                self.begun.set()
                self.forked.wait()
                return [1]

        one, seen = Slow(), []
        thread = threading.Thread(target=lambda: seen.append(one.value))
        thread.start()
        one.begun.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            Slow.forked = threading.Event()
            Slow.forked.set()
            os._exit(0 if one.value == Slow().value == [1] else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        one.forked.set()
        thread.join()
        print(seen[0] is one.value, Slow.value.__doc__)
    """)
    assert said.split() == ["0", "True", "None"]
