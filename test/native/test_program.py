"""Programs: schedules run natively, from one thread and from many."""

import gc
import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from rlx.runtime import _native as native
from rlx.schedule.steps import For
from support.steps import launch, main_of, prologue_of

N = 64
PACKED = native.BASE_PACKED
DTYPES = ["f16", "bf16", "f32", "f64", "bool"]
DTYPES += [sign + bits for sign in "iu" for bits in ("8", "16", "32", "64")]


@pytest.fixture
def add(kernels) -> native.Program:
    step = launch(kernels.symbol("add"), [(3, 0), (4, 0), (5, 0)], range=N)
    vector = ("f32", (N,))
    return native.Program(
        objects=[kernels],
        inputs=[("x", *vector), ("y", *vector)],
        outputs=[("z", *vector)],
        **main_of([step]),
    )


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(N).astype(np.float32)


def test_run_slots_returns_new_arrays(add):
    x, y = vector(0), vector(1)
    (first,) = add.run_slots(x, y)
    (second,) = add.run_slots(y, y)
    np.testing.assert_array_equal(first, x + y)
    np.testing.assert_array_equal(second, y + y)


def test_run_into_writes_in_place_and_may_alias(add):
    x, y = vector(0), vector(1)
    expected = x + y
    add.run_into([x, y], (x,))
    np.testing.assert_array_equal(x, expected)


def test_signatures_are_told(add):
    assert add.inputs == (("x", "f32", (N,)), ("y", "f32", (N,)))
    assert add.outputs == (("z", "f32", (N,)),)


@pytest.mark.parametrize(
    ("bad", "found", "expected"),
    [
        (lambda x: x.astype(np.float64), "f64[64]", "f32[64]"),
        (lambda x: x.view(np.int32), "i32[64]", "f32[64]"),
        (lambda x: x[:-1], "f32[63]", "f32[64]"),
        (lambda x: x.reshape(N, 1), "f32[64, 1]", "f32[64]"),
        (lambda x: np.repeat(x, 2)[::2], "not C-contiguous", "f32[64]"),
        (lambda x: np.frombuffer(bytes(4 * N + 1), np.uint8)[1:].view(x.dtype), "align", "f32"),
        (list, "list", "a buffer of f32[64]"),
        (lambda x: x.astype(">f4"), ">f", "f32[64]"),
    ],
)
def test_a_wrong_input_is_named(add, bad: Callable, found: str, expected: str):
    with pytest.raises(native.Error) as caught:
        add.run_slots(vector(0), bad(vector(1)))
    assert caught.value.where == "input 'y'"
    assert found in caught.value.found
    assert expected in caught.value.expected
    assert isinstance(caught.value, ValueError)
    add.run_slots(vector(0), vector(1))


def test_a_read_only_output_is_refused(add):
    out = vector(2)
    out.flags.writeable = False
    with pytest.raises(native.Error, match=r"output 'z'.*writable buffer of f32\[64\]"):
        add.run_into([vector(0), vector(1)], [out])


def test_a_wrong_number_of_inputs_lists_the_names(add):
    with pytest.raises(native.Error, match=r"found 1 buffers, expected 2 \(x, y\)"):
        add.run_slots(vector(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_every_dtype_and_shape_passes_through(kernels, dtype: str, shape: tuple[int, ...]):
    kinds = {"f": "float", "i": "int", "u": "uint"}
    name = {"bool": "bool", "bf16": "uint16"}.get(dtype) or kinds[dtype[0]] + dtype[1:]
    data = np.random.default_rng(0).integers(0, 2, shape).astype(name)
    copy = launch(kernels.symbol("copy"), [(3, 0), (4, 0)], range=data.nbytes)
    program = native.Program(
        objects=[kernels],
        inputs=[("x", dtype, shape)],
        outputs=[("y", dtype, shape)],
        **main_of([copy]),
    )
    (result,) = program.run_slots(data)
    assert result.dtype == data.dtype
    np.testing.assert_array_equal(result, data)


def harmonic(kernels) -> native.Program:
    terms = 200
    step = launch(
        kernels.symbol("harmonic"), [(3, 0), (4, 0)], range=N, scratch=4 * terms, sizes=[terms]
    )
    signature = ("f32", (N,))
    return native.Program(
        objects=[kernels],
        inputs=[("x", *signature)],
        outputs=[("y", *signature)],
        **main_of([step]),
    )


def test_the_number_of_threads_does_not_change_a_bit(kernels):
    program, x = harmonic(kernels), vector(3)
    results = []
    for threads in (1, 2, 7):
        native.set_threads(threads)
        results.append(program.run_slots(x)[0].tobytes())
    assert len(set(results)) == 1


def test_eight_threads_call_at_once(kernels):
    program, calls = harmonic(kernels), 10_000
    inputs = [vector(seed) for seed in range(8)]
    native.set_threads(1)
    expected = [program.run_slots(x)[0] for x in inputs]
    native.set_threads(2)
    wrong: list[int] = []

    def caller(index: int) -> None:
        out = np.empty(N, np.float32)
        for _ in range(calls):
            program.run_into([inputs[index]], [out])
            if out.tobytes() != expected[index].tobytes():
                wrong.append(index)

    threads = [threading.Thread(target=caller, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def wait_for(pid: int, seconds: float) -> int:
    """The exit status of a child, which is killed when it takes longer."""
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    timer.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        timer.cancel()


def weights_of_two(kernels) -> native.Weights:
    """Packs 2a and 2b; behind them lie counts of how often each prologue step ran."""
    packed_b, count_a, count_b, count_once = 4 * N, 8 * N, 8 * N + 8, 8 * N + 16
    pack = kernels.symbol("pack")
    prologue = [
        (launch(pack, [(3, 0), (PACKED, 0), (PACKED, count_a)], range=N, grain=N), [0]),
        (launch(pack, [(4, 0), (PACKED, packed_b), (PACKED, count_b)], range=N, grain=N), [1]),
        (launch(kernels.symbol("add_constant"), [(PACKED, count_once)], sizes=[1]), []),
    ]
    return native.Weights(
        objects=[kernels],
        params=[("a", "f32", (N,)), ("b", "f32", (N,))],
        packed_bytes=8 * N + 24,
        **prologue_of(prologue),
    )


def program_on(kernels, weights: native.Weights, rounds: int = 1) -> native.Program:
    """out = x + 2a, `rounds` times, and the counts."""
    add = launch(kernels.symbol("add"), [(5, 0), (PACKED, 0), (6, 0)], range=N)
    copy = launch(kernels.symbol("copy"), [(PACKED, 8 * N), (7, 0)], range=24, grain=24)
    return native.Program(
        weights=weights,
        objects=[kernels],
        inputs=[("x", "f32", (N,))],
        outputs=[("out", "f32", (N,)), ("counts", "i64", (3,))],
        **main_of([For(rounds, (add,), None, False), copy]),
    )


@pytest.fixture
def weights(kernels) -> native.Weights:
    return weights_of_two(kernels)


@pytest.fixture
def program(kernels, weights) -> native.Program:
    return program_on(kernels, weights)


def test_a_forked_child_starts_afresh(kernels, weights):
    """The fork comes while another thread is inside a call and the pool is at work for it."""
    program, x = program_on(kernels, weights, rounds=300), vector(4)
    weights.set_param(0, vector(5))
    weights.set_param(1, vector(5))
    program.run_slots(x)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            program.run_slots(x)

    def child() -> int:
        for threads in (2, 3, 2):  # the parent's workers are not there to leave
            native.set_threads(threads)
            weights.set_param(0, vector(threads))  # the parent's call is not there to end
            if program.run_slots(x)[0].tobytes() != (x + 2 * vector(threads)).tobytes():
                return 3
        return 0

    other = threading.Thread(target=keep_busy)
    other.start()
    try:
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                os._exit(child())
            assert wait_for(pid, 600) == 0
    finally:
        stop.set()
        other.join()


def test_only_the_prologue_of_a_changed_param_runs_again(weights, program):
    x = vector(0)
    a, b = vector(1), vector(2)
    weights.set_param(0, a)
    weights.set_param(1, b)
    out, counts = program.run_slots(x)
    np.testing.assert_array_equal(out, x + 2 * a)
    assert list(counts) == [1, 1, 1]
    assert list(program.run_slots(x)[1]) == [1, 1, 1]
    weights.set_param(0, b)
    out, counts = program.run_slots(x)
    np.testing.assert_array_equal(out, x + 2 * b)
    assert list(counts) == [2, 1, 1]


def test_a_param_that_was_never_set_is_named(weights, program):
    weights.set_param(0, vector(0))
    with pytest.raises(native.Error, match=r"param 'b' \(index 1\): found no value, expected f32"):
        program.run_slots(vector(0))


def test_a_param_is_kept_alive_and_checked(weights, program):
    x = vector(0)
    weights.set_param(0, vector(1))  # no other reference
    weights.set_param(1, vector(2))
    np.testing.assert_array_equal(program.run_slots(x)[0], x + 2 * vector(1))
    with pytest.raises(native.Error, match="param 'a'"):
        weights.set_param(0, x[1:])
    with pytest.raises(native.Error, match="index 2"):
        weights.set_param(2, x)
    np.testing.assert_array_equal(program.run_slots(x)[0], x + 2 * vector(1))


def test_params_change_while_calls_run(kernels, weights):
    programs = [program_on(kernels, weights) for _ in range(2)]
    x = np.zeros(N, np.float32)
    values = [np.full(N, value, np.float32) for value in (1, 2, 3)]
    weights.set_param(0, values[0])
    weights.set_param(1, values[0])
    torn: list[np.ndarray] = []

    def caller(program: native.Program) -> None:
        for _ in range(2000):
            out, _ = program.run_slots(x)
            if len(set(out)) != 1 or out[0] not in (2, 4, 6):
                torn.append(out)

    threads = [threading.Thread(target=caller, args=(programs[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for i in range(300):
        weights.set_param(0, values[i % 3])
    for thread in threads:
        thread.join()
    assert torn == []


def test_programs_share_what_the_prologue_made(kernels, weights, program):
    other, x = program_on(kernels, weights, rounds=2), vector(0)
    a, b = vector(1), vector(2)
    weights.set_param(0, a)
    weights.set_param(1, a)
    for p in (program, other, program):
        out, counts = p.run_slots(x)
        np.testing.assert_array_equal(out, x + 2 * a)
        assert list(counts) == [1, 1, 1]
    weights.set_param(0, b)
    for p in (other, program):
        out, counts = p.run_slots(x)
        np.testing.assert_array_equal(out, x + 2 * b)
        assert list(counts) == [2, 1, 1]


def test_weights_live_as_long_as_a_program_on_them(kernels):
    weights = weights_of_two(kernels)
    program, x = program_on(kernels, weights), vector(0)
    for index in (0, 1):
        weights.set_param(index, vector(1))
    del weights
    gc.collect()
    np.testing.assert_array_equal(program.run_slots(x)[0], x + 2 * vector(1))


def test_constants_follow_the_params(kernels):
    double, summed = kernels.symbol("pack"), kernels.symbol("add")
    weights = native.Weights(
        objects=[kernels],
        params=[("a", "f32", (N,))],
        constants=[vector(1)],
        packed_bytes=4 * N + 8,
        **prologue_of([(launch(double, [(4, 0), (PACKED, 0), (PACKED, 4 * N)], range=N), [])]),
    )
    weights.set_param(0, vector(0))
    program = native.Program(
        weights=weights,
        objects=[kernels],
        constants=[vector(2)[:0], vector(3)],
        outputs=[("out", "f32", (N,))],
        **main_of([launch(summed, [(PACKED, 0), (5, 0), (6, 0)], range=N)]),
    )
    np.testing.assert_array_equal(program.run_slots()[0], 2 * vector(1) + vector(3))
    with pytest.raises(native.Error, match=r"constants\[1\]: found list"):
        native.Program(weights=weights, objects=[], constants=[vector(0), [1.0]])
    with pytest.raises(native.Error, match="offset 8 in base 4"):
        native.Program(
            weights=weights,
            objects=[kernels],
            constants=[vector(0)[:1]],
            **main_of([launch(double, [(4, 8)])]),
        )


def test_profiling_times_each_launch(weights, program):
    for index in (0, 1):
        weights.set_param(index, vector(index))
    program.run_slots(vector(0))
    assert program.launch_times() == [(0, 0)] * 2
    program.set_profiling(True)
    program.run_slots(vector(0))
    program.set_profiling(False)
    times = program.launch_times()
    assert len(times) == 2
    assert all(time > 0 and calls == 1 for time, calls in times)
    program.run_slots(vector(0))
    assert program.launch_times() == times
