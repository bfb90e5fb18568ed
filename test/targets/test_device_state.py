"""What crosses between host and device, and what stays there from run to run."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import rlx
from rlx.errors import (
    DeviceLostError,
    DTypeError,
    FaultError,
    GraphError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
)
from rlx.runtime.devices import dlpack
from rlx.runtime.devices.device_array import DeviceArray
from rlx.runtime.devices.gpu_executable import _ERROR
from rlx.targets.gpu.driver import Driver
from support.device import compiled, session
from support.tolerances import assert_close

APIS = ("opencl", "gpu", "vulkan", "cuda")

N, WIDTH = 6, 5

rng = np.random.default_rng(0)
W = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)


def decoder() -> rlx.Graph:
    """A row is put into a cache, and what is there is looked at."""
    g = rlx.Graph("decoder")
    x, at = g.input("x", [1, WIDTH]), g.input("at", [N, 1], "bool")
    row = x @ g.param("w", [WIDTH, WIDTH])
    new = at.where(row, g.input("cache", [N, WIDTH]))
    g.set_outputs([new.sum(axis=0), new])
    return g


def at(n: int) -> np.ndarray[Any, Any]:
    """The row of a number."""
    return np.arange(N)[:, None] == n


def expected(rows: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    cache = np.zeros((N, WIDTH), np.float32)
    for n, row in enumerate(rows):
        cache[n] = row @ W
    return cache


class Traffic:
    """Bytes that go to the device of a driver and come from it."""

    def __init__(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.back = 0, 0
        write, read = driver.write, driver.read_into

        def counted_write(buffer: Any, offset: int, data: Any) -> None:
            self.there += memoryview(data).nbytes
            write(buffer, offset, data)

        def counted_read(buffer: Any, offset: int, target: Any) -> None:
            self.back += memoryview(target).nbytes
            read(buffer, offset, target)

        monkeypatch.setattr(driver, "write", counted_write)
        monkeypatch.setattr(driver, "read_into", counted_read)

    def since(self) -> tuple[int, int]:
        found = (self.there, self.back)
        self.there = self.back = 0
        return found


@pytest.mark.parametrize("api", APIS)
def test_only_inputs_and_outputs_cross(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled(api, decoder())
    traffic = Traffic(f.backend.driver, monkeypatch)  # type: ignore[attr-defined]
    f.set_param("w", W)
    assert traffic.since() == (W.nbytes, 0)
    feeds = {"x": np.ones((1, WIDTH), np.float32), "at": at(0),
             "cache": np.zeros((N, WIDTH), np.float32)}  # fmt: skip
    for _ in range(2):
        f.run(feeds)
        assert traffic.since() == (N + 4 * (WIDTH + N * WIDTH), 4 * (WIDTH + N * WIDTH))


@pytest.mark.parametrize("api", APIS)
def test_state_stays_on_the_device(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled(api, decoder())
    driver = f.backend.driver  # type: ignore[attr-defined]
    f.set_param("w", W)
    state: Any = np.zeros((N, WIDTH), np.float32)
    rows = [rng.standard_normal(WIDTH).astype(np.float32) for _ in range(N)]
    traffic = Traffic(driver, monkeypatch)
    before, total = 0, state
    for n, row in enumerate(rows):
        total, state = f.run_on_device({"x": row[None], "at": at(n), "cache": state})
        found = traffic.since()
        assert found == ((N + 4 * (WIDTH + N * WIDTH), 0) if n == 0 else (N + 4 * WIDTH, 0))
        if n == 2:
            before = driver.allocated
        assert n < 3 or driver.allocated <= before, "memory that is free is used again"
    assert isinstance(state, DeviceArray) and state.shape == (N, WIDTH) and state.dtype == "f32"
    assert_close(state.numpy(), expected(rows))
    assert_close(total.numpy(), expected(rows).sum(0))


@pytest.mark.parametrize("api", APIS)
def test_results_that_are_kept_are_not_written_over(api: str) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4]) + 1.0)
    f = compiled(api, g)
    kept: list[Any] = [np.zeros(4, np.float32)]
    for _ in range(12):
        kept += f.run_on_device({"x": kept[-1]})
    for n, a in enumerate(kept[1:], 1):
        np.testing.assert_array_equal(a.numpy(), np.full(4, n, np.float32))


@pytest.mark.parametrize("api", APIS)
def test_donated_state_is_written_in_place(api: str) -> None:
    f = compiled(api, decoder(), donate=((2, 1),))
    f.set_param("w", W)
    host = np.zeros((N, WIDTH), np.float32)
    there = session(api).to_device(host)
    rows = [rng.standard_normal(WIDTH).astype(np.float32) for _ in range(3)]
    for n, row in enumerate(rows):
        for state in (host, there):
            (total,) = f.run_in_place({"x": row[None], "at": at(n)}, {"cache": state})
            assert_close(total, expected(rows[: n + 1]).sum(0))
    assert_close(host, expected(rows))
    assert_close(there.numpy(), expected(rows))
    # Other runs leave what they were given as it is.
    feeds = {"x": rows[0][None], "at": at(4), "cache": there}
    (_, new), (_, stays) = f.run(feeds), f.run_on_device(feeds)
    assert_close(there.numpy(), expected(rows))
    assert_close(stays.numpy(), new)
    assert np.abs(new[4]).sum() > 0


@pytest.mark.parametrize("api", APIS)
def test_state_that_is_read_as_another_input_too_is_refused(api: str) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [8]) + g.input("y", [8]).flip(0))
    f = compiled(api, g, donate=((0, 0),))
    there = session(api).to_device(np.arange(8, dtype=np.float32))
    with pytest.raises(GraphError, match="state 'x' shares memory with input 'y'"):
        f.run_in_place({"y": there}, {"x": there})
    np.testing.assert_array_equal(there.numpy(), np.arange(8))
    np.testing.assert_array_equal(f.run({"x": there, "y": there})[0], np.full(8, 7))


def test_arrays_that_do_not_fit_are_refused() -> None:
    f = compiled("cuda", decoder())
    f.set_param("w", W)
    s = session("cuda")
    feeds: dict[str, Any] = {"x": np.ones((1, WIDTH), np.float32), "at": at(0)}
    with pytest.raises(ShapeError, match=r"input 'cache' has shape \[6, 5\], found \[5\]"):
        f.run({**feeds, "cache": s.to_device(np.zeros(5, np.float32))})
    with pytest.raises(DTypeError, match="input 'cache' is f32, found f64"):
        f.run({**feeds, "cache": s.to_device(np.zeros((N, WIDTH)))})
    with pytest.raises(DTypeError, match=r"takes NumPy arrays of .*, found list"):
        s.to_device([1.0])  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"found complex256|found float128"):
        s.to_device(np.zeros(2, np.longdouble))


def test_the_host_has_no_memory_of_its_own() -> None:
    f = rlx.Session("cpu").compile(decoder())
    f.set_param("w", W)
    with pytest.raises(UnsupportedError, match="device 'cpu' computes in the host's memory"):
        rlx.Session("cpu").to_device(W)
    with pytest.raises(UnsupportedError, match="device 'cpu' computes in the host's memory"):
        f.run_on_device({"x": np.ones((1, WIDTH), np.float32), "at": at(0),
                         "cache": np.zeros((N, WIDTH), np.float32)})  # fmt: skip
    there = session("cuda").to_device(np.zeros((N, WIDTH), np.float32))
    with pytest.raises(DTypeError, match="found a DeviceArray that NumPy cannot read"):
        f.run({"x": np.ones((1, WIDTH), np.float32), "at": at(0), "cache": there})


def test_arrays_of_another_device_are_refused() -> None:
    there = session("metal").to_device(np.zeros((N, WIDTH), np.float32))
    f = compiled("cuda", decoder())
    f.set_param("w", W)
    with pytest.raises(GraphError, match=r"input 'cache' lies on metal.*runs on cuda \(Mock GPU"):
        f.run({"x": np.ones((1, WIDTH), np.float32), "at": at(0), "cache": there})
    with pytest.raises(BufferError, match="no address to hand over"):
        there.__dlpack__()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dtype", [np.float32, bfloat16, np.bool_, np.int8])
def test_numpy_makes_a_copy_of_an_array_of_a_device(api: str, dtype: Any) -> None:
    a = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    there = session(api).to_device(a)
    for found in (np.asarray(there), np.array(there), np.asarray(there, copy=True)):
        assert found.dtype == a.dtype and found.tobytes() == a.tobytes()
        found[...] = 1  # it is nobody else's
    np.testing.assert_array_equal(there.numpy(), a)
    wide = np.asarray(there, np.float64)
    assert wide.dtype == np.float64 and wide.tolist() == a.tolist()
    assert np.add(there, np.ones(3)).tolist() == (a.astype(float) + 1).tolist()
    with pytest.raises(ValueError, match="by a copy to the host's memory, and copy=False"):
        np.asarray(there, copy=False)
    empty = session(api).to_device(np.zeros((0, 2), np.float32))
    assert np.asarray(empty).shape == (0, 2)


def test_a_copy_is_handed_over_where_one_is_asked_for() -> None:
    a = np.arange(6, dtype=np.float32)
    there = session("cuda").to_device(a)
    own = dlpack.imported(there.__dlpack__(copy=False), "it")
    copied = dlpack.imported(there.__dlpack__(copy=True, stream=1, max_version=(1, 0)), "it")
    assert own.address == there.buffer.raw[0] != copied.address
    for t in (own, copied):
        seen = np.ctypeslib.as_array((ctypes.c_float * 6).from_address(t.address))
        np.testing.assert_array_equal(seen, a)
    seen[...] = 0  # of the copy
    np.testing.assert_array_equal(there.numpy(), a)
    for t in (own, copied):
        t.release()
    assert not dlpack._given
    with pytest.raises(BufferError, match="no address to hand over"):
        session("metal").to_device(a).__dlpack__(copy=True)


def test_memory_of_a_device_is_not_the_hosts() -> None:
    there = session("cuda").to_device(np.zeros(3, np.float32))
    with pytest.raises(BufferError, match=r"lies on cuda \(Mock GPU.*numpy\(\) for a copy"):
        there.__dlpack__(dl_device=(1, 0))


def test_elements_that_rlx_has_not_are_refused() -> None:
    a = aligned((3,))
    capsule = dlpack.exported(a.ctypes.data, "f32", (3,), (2, 0), a)
    managed = ctypes.cast(dlpack._pointer(capsule, b"dltensor"), ctypes.POINTER(dlpack._Managed))
    managed.contents.tensor.bits = 24
    with pytest.raises(DTypeError, match="the cache has elements of DLPack's kind 2 with 24 bits"):
        dlpack.imported(capsule, "the cache")


def test_a_fault_of_no_known_site() -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("table", [3, 2]).gather(g.input("i", [1], "i64")))
    f: Any = compiled("cuda", g)._executable({})
    f.driver.write(f.weights.of["error", 0], 0, _ERROR.pack(1, 99))
    with pytest.raises(FaultError, match="reported fault 1 at the unknown site 99"):
        f._check_faults()


# -- memory that is handed over ------------------------------------------------------------


class Foreign:
    """An array of another library in the memory of a CUDA device, which is here the host's."""

    def __init__(self, a: np.ndarray[Any, Any], ordinal: int = 0) -> None:
        self.a, self.place, self.shape = a, (dlpack.DEVICES["cuda"], ordinal), a.shape
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, stream: int) -> Any:
        self.streams.append(stream)
        name = {"f": "f", "i": "i"}[self.a.dtype.kind] + str(8 * self.a.itemsize)
        capsule = dlpack.exported(self.a.ctypes.data, name, self.a.shape, self.place, self.a)
        if not self.a.flags.c_contiguous:
            at = ctypes.pythonapi.PyCapsule_GetPointer
            at.restype, at.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
            managed = ctypes.cast(at(capsule, b"dltensor"), ctypes.POINTER(dlpack._Managed))
            steps = [s // self.a.itemsize for s in self.a.strides]
            self.steps = (ctypes.c_int64 * len(steps))(*steps)
            managed.contents.tensor.strides = self.steps
        return capsule


def aligned(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """An array at a round address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + 16, np.uint8)
    at = -room.ctypes.data % 16
    return room[at : at + size].view(dtype).reshape(shape)


def test_memory_of_another_library_is_used_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [3, 4]) * 2.0)
    f = compiled("cuda", g)
    driver = f.backend.driver  # type: ignore[attr-defined]
    traffic = Traffic(driver, monkeypatch)
    a = aligned((3, 4))
    a[...] = rng.standard_normal((3, 4))
    given = Foreign(a)
    (y,) = f.run({"x": given})
    assert traffic.since()[0] == 0
    assert given.streams == [driver.stream]
    assert_close(y, a * 2)
    a += 1.0
    assert_close(f.run({"x": given})[0], a * 2)
    f._executable({})._runs.clear()  # type: ignore[attr-defined]
    gc.collect()
    driver.sync()
    assert not dlpack._given, "what was handed over is released"


def test_memory_of_ours_goes_to_another_library_and_comes_back() -> None:
    s, a = session("cuda"), rng.standard_normal((3, 4)).astype(np.float32)
    there = s.to_device(a)
    assert there.__dlpack_device__() == (2, 0)
    t = dlpack.imported(there.__dlpack__(), "it")
    assert (t.dtype, t.shape) == ("f32", (3, 4))
    seen = np.ctypeslib.as_array((ctypes.c_float * 12).from_address(t.address)).reshape(3, 4)
    np.testing.assert_array_equal(seen, a)
    del there
    gc.collect()
    np.testing.assert_array_equal(seen, a)
    t.release()
    assert not dlpack._given
    there = s.to_device(a)
    there.__dlpack__()  # a capsule that nobody takes
    assert not dlpack._given


def test_memory_that_was_given_away_is_written_by_no_later_run() -> None:
    # Another library lets go of it while its own stream still reads it.
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4]) * 2.0)
    f = compiled("cuda", g)
    feeds = {"x": np.ones(4, np.float32)}
    (y,) = f.run_on_device(feeds)
    kept = y.buffer
    dlpack.imported(y.__dlpack__(), "it").release()
    del y
    gc.collect()
    (z,) = f.run_on_device(feeds)
    assert z.buffer is not kept
    again = z.buffer
    del z
    assert f.run_on_device(feeds)[0].buffer is again, "what nobody else had is used again"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (Foreign(aligned((4, 3)).T), DTypeError, "input 'x' is not contiguous"),
        (Foreign(aligned((16,))[1:13].reshape(3, 4)), DTypeError, "16 does not divide"),
        (Foreign(aligned((3, 4)), 1), GraphError, "device 1 of DLPack's kind 2.*is 0 of kind 2"),
        (Foreign(aligned((3, 5))), ShapeError, r"has shape \[3, 4\], found \[3, 5\]"),
        (Foreign(aligned((3, 4), np.int32)), DTypeError, "is f32, found i32"),
    ],
)
def test_memory_that_does_not_fit_is_refused(given: Foreign, error: Any, message: str) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [3, 4]) * 2.0)
    f = compiled("cuda", g)
    with pytest.raises(error, match=message):
        f.run({"x": given})


# -- failures ------------------------------------------------------------------------------


def test_a_graph_that_is_too_large_for_the_device_says_so() -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [1 << 26]) * 2.0)  # the stand-in has no more than 2^27 bytes at once
    with pytest.raises(OutOfMemoryError, match=r"no memory for a buffer of 268435456 bytes beside"):
        compiled("cuda", g)


def test_a_device_that_is_lost_in_a_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    g = rlx.Graph("g")
    g.set_outputs(g.input("x", [4]) * 2.0)
    f = compiled("cuda", g)
    driver = f.backend.driver  # type: ignore[attr-defined]

    def lost(*_: object) -> None:
        raise DeviceLostError("it was pulled out")

    monkeypatch.setattr(driver, "_run", lost)
    with pytest.raises(DeviceLostError, match="pulled out"):
        f.run({"x": np.zeros(4, np.float32)})
    with pytest.raises(DeviceLostError, match="open it again"):
        f.run({"x": np.zeros(4, np.float32)})
    driver.lost = ""
