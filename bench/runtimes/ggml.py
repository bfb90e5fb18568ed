"""ggml, the library of llama.cpp: one product, by its CPU backend.

Its libraries are those of the package llama-cpp-python, or lie in the folder GGML_LIBRARIES. The
weight lies in the buffer that the library itself would choose: repacked, or for AMX, where a kind
of buffer takes the product.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_bool, c_int, c_int64, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array, Run

F32 = 0
DATA_ROOM = 1 << 20


class _Params(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("memory", c_void_p), ("no_alloc", c_bool)]


def product(packed: Array, number: int, shape: tuple[int, int], x: Array, threads: int) -> Run:
    """The product of rows by a weight ``[n, k]`` of ggml's type of a number."""
    base, cpu = (_library(name) for name in ("base", "cpu"))
    backend = cpu.ggml_backend_cpu_init()
    cpu.ggml_backend_cpu_set_n_threads(backend, threads)
    plain = base.ggml_backend_get_default_buffer_type(backend)
    for kind in _extra(base, cpu, backend):
        run = _made(base, backend, kind, packed, number, shape, x)
        if run is not None and _survives(run):
            return run
    run = _made(base, backend, plain, packed, number, shape, x)
    assert run is not None, "the plain buffer takes all products"
    return run


def _made(
    base: Any, backend: Any, kind: Any, packed: Array, number: int, shape: tuple[int, int],
    x: Array,
) -> Run | None:  # fmt: skip
    """The call with the weight in a kind of buffer; None if that does not take the product."""
    (n, k), m = shape, len(x)
    weights, rest = (base.ggml_init(_Params(DATA_ROOM, None, True)) for _ in range(2))
    w = base.ggml_new_tensor_2d(weights, number, k, n)
    rows = base.ggml_new_tensor_2d(rest, F32, k, m)
    y = base.ggml_mul_mat(rest, w, rows)
    held = base.ggml_backend_alloc_ctx_tensors_from_buft(weights, kind)
    if not held or not base.ggml_backend_supports_op(backend, y):
        return None
    base.ggml_backend_alloc_ctx_tensors(rest, backend)
    for tensor, data in ((w, packed), (rows, x)):
        assert data.flags.c_contiguous
        base.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)
    graph = base.ggml_new_graph(rest)
    base.ggml_build_forward_expand(graph, y)
    out = np.empty((m, n), np.float32)

    def run() -> Array:
        base.ggml_backend_graph_compute(backend, graph)
        base.ggml_backend_tensor_get(y, out.ctypes.data, 0, out.nbytes)
        return out

    return run


def _survives(run: Run) -> bool:
    """Whether a process lives through a call. Compiled by GCC 12, the library's products by AMX end
    it: the stores of a tile configuration are dropped there."""
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _extra(base: Any, cpu: Any, backend: Any) -> list[Any]:
    """The kinds of buffers for weights besides the plain one."""
    address = base.ggml_backend_reg_get_proc_address(
        cpu.ggml_backend_cpu_reg(), b"ggml_backend_dev_get_extra_bufts"
    )
    listed = ctypes.CFUNCTYPE(c_void_p, c_void_p)(address)(base.ggml_backend_get_device(backend))
    found, at = [], 0
    while listed and (kind := ctypes.cast(listed, ctypes.POINTER(c_void_p))[at]):
        found.append(kind)
        at += 1
    return found


def _library(part: str) -> Any:
    folder = os.environ.get("GGML_LIBRARIES")
    if folder is None:
        spec = find_spec("llama_cpp")
        assert spec is not None and spec.origin is not None
        folder = str(Path(spec.origin).parent / "lib")
    found = ctypes.CDLL(os.path.join(folder, f"libggml-{part}.so"), mode=ctypes.RTLD_GLOBAL)
    pointers = (
        "ggml_init ggml_new_tensor_2d ggml_mul_mat ggml_new_graph ggml_backend_cpu_init"
        " ggml_backend_cpu_reg ggml_backend_get_device ggml_backend_reg_get_proc_address"
        " ggml_backend_get_default_buffer_type ggml_backend_alloc_ctx_tensors_from_buft"
        " ggml_backend_alloc_ctx_tensors"
    )
    for name in pointers.split():
        if hasattr(found, name):
            getattr(found, name).restype = c_void_p
    given = {
        "ggml_init": [_Params],
        "ggml_new_tensor_2d": [c_void_p, c_int, c_int64, c_int64],
        "ggml_mul_mat": [c_void_p] * 3,
        "ggml_new_graph": [c_void_p],
        "ggml_build_forward_expand": [c_void_p] * 2,
        "ggml_backend_cpu_set_n_threads": [c_void_p, c_int],
        "ggml_backend_get_device": [c_void_p],
        "ggml_backend_reg_get_proc_address": [c_void_p, ctypes.c_char_p],
        "ggml_backend_get_default_buffer_type": [c_void_p],
        "ggml_backend_alloc_ctx_tensors_from_buft": [c_void_p] * 2,
        "ggml_backend_alloc_ctx_tensors": [c_void_p] * 2,
        "ggml_backend_supports_op": [c_void_p] * 2,
        "ggml_backend_tensor_set": [c_void_p, c_void_p, c_size_t, c_size_t],
        "ggml_backend_tensor_get": [c_void_p, c_void_p, c_size_t, c_size_t],
        "ggml_backend_graph_compute": [c_void_p] * 2,
    }
    for name, types in given.items():
        if hasattr(found, name):
            getattr(found, name).argtypes = types
    if hasattr(found, "ggml_backend_supports_op"):
        found.ggml_backend_supports_op.restype = c_bool
    return found
