"""Kernels for the tests of the native runtime, compiled from C by the system's compiler."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx.runtime import _native as native
from support.cpp import native_tests

ARGUMENTS = "int64_t begin, int64_t end, void *const *buffers, const int64_t *sizes, void *scratch"

KERNELS = """
// z = x + y
KERNEL(add) {
  const float *x = buffers[0], *y = buffers[1]; float *z = buffers[2];
  for (int64_t i = begin; i < end; i++) z[i] = x[i] + y[i];
}
// Sums sizes[0] terms in scratch, in an order that does not depend on the chunk.
KERNEL(harmonic) {
  const float *x = buffers[0]; float *out = buffers[1], *terms = scratch;
  for (int64_t i = begin; i < end; i++) {
    for (int64_t k = 0; k < sizes[0]; k++) terms[k] = x[i] / (float)(k + 1 + i);
    float sum = 0;
    for (int64_t k = 0; k < sizes[0]; k++) sum += terms[k];
    out[i] = sum;
  }
}
// packed = 2 * param; counts its runs in int64 buffer 2.
KERNEL(pack) {
  const float *param = buffers[0]; float *packed = buffers[1]; int64_t *runs = buffers[2];
  for (int64_t i = begin; i < end; i++) packed[i] = 2 * param[i];
  if (begin == 0) *runs += 1;
}
// Copies bytes.
KERNEL(copy) {
  const volatile char *x = buffers[0]; char *y = buffers[1];
  for (int64_t i = begin; i < end; i++) y[i] = x[i];
}
// int64: *buffers[0] += sizes[0]
KERNEL(add_constant) { *(int64_t *)buffers[0] += sizes[0]; }
// int64: *buffers[0] += *buffers[1]
KERNEL(add_int) { *(int64_t *)buffers[0] += *(const int64_t *)buffers[1]; }
// bool: buffers[1] = int64 buffers[0] < sizes[0]
KERNEL(less) { *(char *)buffers[1] = *(const int64_t *)buffers[0] < sizes[0]; }
// Writes the error record.
KERNEL(fail) { int64_t *record = buffers[0]; record[0] = sizes[0]; record[1] = sizes[1]; }
"""

PRELUDE = f"#include <stdint.h>\n#define KERNEL(name) void name({ARGUMENTS})\n"

CompileC = Callable[..., bytes]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> CompileC:
    """A function from C text (with `KERNEL(name) { ... }`) and flags to the bytes of an object."""

    def compile_text(text: str, *flags: str) -> bytes:
        directory: Path = tmp_path_factory.mktemp("kernels")
        source, target = directory / "k.c", directory / "k.o"
        source.write_text(PRELUDE + text)
        default = ("-fPIC", "-O2", "-ffreestanding", "-fno-stack-protector")
        subprocess.run(["cc", "-c", *default, *flags, source, "-o", target], check=True)
        return target.read_bytes()

    return compile_text


@pytest.fixture(scope="session")
def kernel_bytes(compile_c: CompileC) -> bytes:
    return compile_c(KERNELS)


@pytest.fixture(scope="session")
def kernels(kernel_bytes: bytes) -> native.Object:
    """The object of KERNELS."""
    return native.Object(kernel_bytes)


@pytest.fixture(scope="session")
def native_build() -> Path:
    """The directory where the runtime without Python is built, with its tests."""
    return native_tests()


@pytest.fixture(autouse=True)
def two_threads() -> None:
    """Every test starts with two threads, whatever the machine and the test before."""
    native.set_threads(2)
