"""Two kernels written by hand in each language that a driver takes, and drivers to run them on."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.targets.cuda.launch import CudaDriver
from rlx.targets.gpu import drivers
from rlx.targets.gpu.driver import Binding, Buffer, DeviceLaunch, Driver, Handle, Kernel
from rlx.targets.gpu.streams import StreamDriver
from rlx.targets.metal.launch import MetalDriver
from rlx.targets.rocm.launch import RocmDriver
from support.metal import COMPILER, StandIn
from support.shaders import COMPILER as GLSLANG
from support.shaders import ShaderDriver

__all__ = [
    "MOCKED", "SOFTWARE", "STAND_INS", "Pair", "available", "counter", "kernels", "mocked", "pair",
    "stand_in", "why_no_stand_in",
]  # fmt: skip

SOFTWARE = ("vulkan", "opencl", "gpu", "opengl")
"""The drivers for which there are software devices."""

MOCKED = ("cuda", "rocm")
"""Those whose library has a stand-in that runs no kernels but two."""

STAND_INS = ("metal", "directx")
"""The targets whose kernels run here by other ways than their own: MSL as C++, HLSL on Vulkan."""

MOCK_SOURCE = Path(__file__).parent.parent / "targets" / "fixtures" / "mock_gpu.c"
SPIRV = Path(__file__).parent.parent / "targets" / "fixtures" / "driver_kernels.spv"

OPENCL = b"""
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void scale_add(__global const float *x, __global float *y, __global const int *p) {
  int i = get_global_id(0);
  if (i < p[0]) y[i] += p[1] * x[i];
}

__kernel __attribute__((reqd_work_group_size(4, 2, 1)))
void sum_groups(__global const int *x, __global int *y) {
  __local int s[8];
  int t = get_local_id(1) * 4 + get_local_id(0);
  s[t] = x[get_group_id(0) * 8 + t];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (t == 0) {
    int sum = 0;
    for (int j = 0; j < 8; ++j) sum += s[j];
    y[get_group_id(0)] = sum;
  }
}
"""

WGSL = b"""
@group(0) @binding(0) var<storage, read_write> ax: array<f32>;
@group(0) @binding(1) var<storage, read_write> ay: array<f32>;
@group(0) @binding(2) var<storage, read> ap: array<i32>;
@compute @workgroup_size(64, 1, 1)
fn scale_add(@builtin(global_invocation_id) at: vec3<u32>) {
  let i = i32(at.x);
  if (i < ap[0]) { ay[i] = ay[i] + f32(ap[1]) * ax[i]; }
}

@group(0) @binding(0) var<storage, read_write> bx: array<i32>;
@group(0) @binding(1) var<storage, read_write> by: array<i32>;
var<workgroup> s: array<i32, 8>;
@compute @workgroup_size(4, 2, 1)
fn sum_groups(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  s[t] = bx[g.x * 8u + t];
  workgroupBarrier();
  if (t == 0u) {
    var sum = 0;
    for (var j = 0u; j < 8u; j++) { sum += s[j]; }
    by[g.x] = sum;
  }
}
"""

GLSL = b"""#version 430
#ifdef KERNEL_scale_add
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
layout(std430, binding = 2) readonly buffer P { int p[]; };
void main() {
  int i = int(gl_GlobalInvocationID.x);
  if (i < p[0]) y[i] += float(p[1]) * x[i];
}
#endif
#ifdef KERNEL_sum_groups
layout(local_size_x = 4, local_size_y = 2) in;
layout(std430, binding = 0) readonly buffer X { int x[]; };
layout(std430, binding = 1) buffer Y { int y[]; };
shared int s[8];
void main() {
  uint t = gl_LocalInvocationIndex;
  s[t] = x[gl_WorkGroupID.x * 8 + t];
  barrier();
  if (t == 0) {
    int sum = 0;
    for (int j = 0; j < 8; ++j) sum += s[j];
    y[gl_WorkGroupID.x] = sum;
  }
}
#endif
"""

MSL = b"""
#include <metal_stdlib>
using namespace metal;

kernel void scale_add(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    device const int* p [[buffer(2)]],
    uint3 t [[thread_position_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) {
  int i = int(g.x * 64 + t.x);
  if (i < p[0]) y[i] += p[1] * x[i];
}

kernel void sum_groups(device const int* x [[buffer(0)]], device int* y [[buffer(1)]],
    uint3 t [[thread_position_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) {
  threadgroup int s[8];
  uint at = t.y * 4 + t.x;
  s[at] = x[g.x * 8 + at];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at == 0) {
    int sum = 0;
    for (int j = 0; j < 8; ++j) sum += s[j];
    y[g.x] = sum;
  }
}
"""

MOCK = b"scale_add sum_groups"
"""What the stand-ins for CUDA and HIP take for code: the names of functions that they have."""


def kernels(api: str) -> tuple[Kernel, Kernel]:
    """``y[i] += k * x[i]`` for i < n, with params n and k; and sums of 8 integers a group, by way
    of shared memory."""
    codes = {
        "vulkan": SPIRV.read_bytes(),
        "opencl": OPENCL,
        "gpu": WGSL,
        "opengl": GLSL,
        "metal": MSL,
    }
    code = codes.get(api, MOCK)
    floats = (Binding("f32"), Binding("f32"))
    ints = (Binding("i32"), Binding("i32"))
    return (
        Kernel("scale_add", code, (64, 1, 1), floats, 2),
        Kernel("sum_groups", code, (4, 2, 1), ints),
    )


def available(api: str) -> Driver:
    """A new driver of an API; skips where there is no device, and no stand-in for its library."""
    if api in MOCKED:
        return mocked(api)()
    if api in STAND_INS:
        return stand_in(api)()
    found = drivers.probe(api)
    if not found.found:
        pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    return drivers.open_driver(api)


@cache
def mocked(api: str) -> type[StreamDriver]:
    """The driver of an API, with a stand-in for its library."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the stand-in of a driver's library")
    folder = tempfile.mkdtemp(prefix="rlx-mock-")
    atexit.register(shutil.rmtree, folder)
    library = Path(folder) / f"lib{api}.so"
    option = ["-DHIP"] if api == "rocm" else []
    command = ["cc", "-O1", "-shared", "-fPIC", *option, "-o", str(library), str(MOCK_SOURCE)]
    subprocess.run(command, check=True)
    base: Any = {"cuda": CudaDriver, "rocm": RocmDriver}[api]
    return type(base.__name__, (base,), {"libraries": (str(library),)})


def why_no_stand_in(api: str) -> str:
    """Why a target of ``STAND_INS`` cannot run here; "" if it can."""
    compiler = COMPILER[0] if api == "metal" else GLSLANG
    if shutil.which(compiler) is None:
        return f"{compiler} is not on PATH, which compiles its kernels for tests"
    return "" if api == "metal" else drivers.probe("vulkan").why


@cache
def stand_in(api: str) -> type[Driver]:
    """A driver for the kernels of a target that needs a system which this one is not."""
    if why := why_no_stand_in(api):
        pytest.skip(f"{api}: {why} (or run `make drivers`)")
    if api == "directx":
        return type("HlslOnVulkan", (ShaderDriver,), {"language": api})
    folder = tempfile.mkdtemp(prefix="rlx-metal-")
    atexit.register(shutil.rmtree, folder)
    package = StandIn(Path(folder))
    return type(
        "MetalOnCpu",
        (MetalDriver,),
        {"_packages": lambda self: package.packages(), "package": package},
    )


def counter(driver: Driver, name: str) -> ctypes.c_int:
    """A variable of a stand-in."""
    assert isinstance(driver, StreamDriver)
    return ctypes.c_int.in_dll(driver.library.library, name)


class Pair:
    """Two arrays of floats on a device, and a launch that adds a multiple of one to the other."""

    def __init__(self, driver: Driver, n: int, seed: int = 0) -> None:
        self.driver, self.n = driver, n
        rng = np.random.default_rng(seed)
        self.x, self.y = (rng.integers(-9, 9, n).astype(np.float32) for _ in range(2))
        self.buffers: list[Buffer] = [driver.allocate(4 * n) for _ in range(2)]
        self.reset()
        self.handle: Handle = driver.load(kernels(driver.api)[0])

    def reset(self) -> None:
        """Write both arrays."""
        for buffer, values in zip(self.buffers, (self.x, self.y), strict=True):
            self.driver.write(buffer, 0, values)

    def launch(self, k: int = 1) -> DeviceLaunch:
        """``y += k * x``."""
        x, y = self.buffers
        ranges = ((x, 0, 4 * self.n), (y, 0, 4 * self.n))
        return DeviceLaunch(
            self.handle, (-(-self.n // 64), 1, 1), ranges, struct.pack("<2i", self.n, k)
        )

    def result(self) -> np.ndarray:
        """What ``y`` is on the device."""
        return np.frombuffer(self.driver.read(self.buffers[1], 0, 4 * self.n), np.float32)


def pair(driver: Driver, n: int = 1000) -> Pair:
    """Arrays of a length that is no multiple of a group."""
    return Pair(driver, n)
