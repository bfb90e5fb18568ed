"""Kernels by way of WebGPU: WGSL to pipelines, through the wgpu package (Vulkan, Metal, D3D12)."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError, ToolchainError
from rlx.targets.gpu.driver import DeviceLaunch, Driver, Kernel, Limits
from rlx.targets.gpu.library import choose
from rlx.targets.gpu.profiles import buffer_words

__all__ = ["WebGpuDriver"]

_BACKENDS = ("Vulkan", "Metal", "DX12")

_RANKS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
_EXTRAS = {
    "shader-f16": "float16",
    "shader-f64": "float64",
    "shader-i16": "int16",
    "shader-int64": "int64",
}

_LIMITS = {
    "buffer": "max-buffer-size",
    "binding": "max-storage-buffer-binding-size",
    "bindings": "max-storage-buffers-per-shader-stage",
    "invocations": "max-compute-invocations-per-workgroup",
    "shared": "max-compute-workgroup-storage-size",
    "groups": "max-compute-workgroups-per-dimension",
    "x": "max-compute-workgroup-size-x",
    "y": "max-compute-workgroup-size-y",
    "z": "max-compute-workgroup-size-z",
    "alignment": "min-storage-buffer-offset-alignment",
}


class WebGpuDriver(Driver):
    """An adapter of the wgpu package. DeviceError if there is no package, or no adapter."""

    api = "gpu"

    def __init__(self) -> None:
        super().__init__()
        try:
            self.wgpu: Any = importlib.import_module("wgpu")
            extras: Any = importlib.import_module("wgpu.backends.wgpu_native.extras")
        except ImportError as e:
            raise DeviceError(f"no package wgpu ({e}); pip install 'rlx[gpu]'") from None
        # Not OpenGL: its loader makes the symbols of its own LLVM global, where others that are
        # loaded after it find them. The package has one instance a process, which may be there.
        with suppress(RuntimeError):
            extras.set_instance_extras(backends=_BACKENDS)
        adapters = [
            a for a in self.wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"
        ]
        names = [str(a.info["device"]) for a in adapters]
        kinds = [a.info["adapter_type"] for a in adapters]
        at = choose(self.api, names, [_RANKS.get(kind, 2) for kind in kinds])
        self.name, self.software = names[at], kinds[at] == "CPU"
        adapter = adapters[at]
        has = {name: adapter.limits[limit] for name, limit in _LIMITS.items()}
        self.limits = Limits(
            groups=(has["groups"],) * 3,
            workgroup=(has["x"], has["y"], has["z"]),
            alignment=max(16, has["alignment"]),
            **{k: has[k] for k in ("buffer", "binding", "bindings", "invocations", "shared")},
        )
        extras = [e for e in _EXTRAS if e in adapter.features]
        self.features = buffer_words(has["bindings"]) | {_EXTRAS[e] for e in extras}
        with self._failures():
            self.device = adapter.request_device_sync(
                required_features=extras,
                required_limits={limit: has[name] for name, limit in _LIMITS.items()},
            )
        self.queue = self.device.queue
        self.scratch = self._allocate(16)

    @contextmanager
    def _failures(self) -> Generator[None]:
        """Errors of the package as ours."""
        try:
            yield
        except self.wgpu.GPUOutOfMemoryError as e:
            raise OutOfMemoryError(f"{self}: {e}") from None
        except (self.wgpu.GPUError, RuntimeError) as e:
            lost = "lost" in str(e).lower()
            raise (DeviceLostError if lost else DeviceError)(f"{self}: {e}") from None

    # -- memory ----------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> Any:
        usage = self.wgpu.BufferUsage
        flags = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        with self._failures():
            return self.device.create_buffer(size=nbytes, usage=flags)

    def _free(self, raw: Any) -> None:
        raw.destroy()

    def _write(self, raw: Any, offset: int, data: memoryview) -> None:
        first, last = offset // 4 * 4, -(-(offset + len(data)) // 4) * 4
        with self._failures():
            if last - first != len(data):  # words are written whole
                words = bytearray(self.queue.read_buffer(raw, first, last - first))
                words[offset - first : offset - first + len(data)] = data
                data = memoryview(words)
            self.queue.write_buffer(raw, first, data)

    def _read(self, raw: Any, offset: int, out: memoryview) -> None:
        # It is read from a multiple of 8 on.
        first, last = offset // 8 * 8, -(-(offset + len(out)) // 4) * 4
        with self._failures():
            words = self.queue.read_buffer(raw, first, last - first)
        out[:] = words[offset - first : offset - first + len(out)]

    # -- kernels ---------------------------------------------------------------------------

    def _load_module(self, kernel: Kernel) -> Any:
        try:
            return self.device.create_shader_module(code=kernel.code.decode())
        except (self.wgpu.GPUError, UnicodeDecodeError) as e:
            raise ToolchainError(f"{self}: {e}") from None

    def _free_module(self, module: Any) -> None:
        """Nothing: it is freed with its last reference."""

    def _load(self, module: Any, kernel: Kernel) -> tuple[Any, Any]:
        kinds = {"read": "read-only-storage", "read_write": "storage"}
        found = [kinds[b.access] for b in kernel.bindings]
        found += [kinds["read"]] * (kernel.params > 0)
        entries = [
            {"binding": i, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for i, kind in enumerate(found)
        ]
        try:
            bindings = self.device.create_bind_group_layout(entries=entries)
            layout = self.device.create_pipeline_layout(bind_group_layouts=[bindings])
            stage = {"module": module, "entry_point": kernel.name}
            return self.device.create_compute_pipeline(layout=layout, compute=stage), bindings
        except self.wgpu.GPUError as e:
            raise ToolchainError(f"{self}: kernel {kernel.name!r}: {e}") from None

    def _unload(self, raw: Any) -> None:
        """Nothing: it is freed with its last reference."""

    # -- runs ------------------------------------------------------------------------------

    def _record(self, launches: tuple[DeviceLaunch, ...]) -> list[tuple[Any, Any, Any]]:
        steps: list[tuple[Any, Any, Any]] = []
        for launch in launches:
            pipeline, layout = launch.handle.raw[0]
            ranges = [
                (b.raw[0], first if n else 0, max(4, -(-n // 4) * 4))
                for b, first, n in launch.buffers
            ]
            with self._failures():
                if launch.params:
                    params = self.device.create_buffer_with_data(
                        data=launch.params, usage=self.wgpu.BufferUsage.STORAGE
                    )
                    ranges.append((params, 0, len(launch.params)))
                entries = [
                    {"binding": i, "resource": {"buffer": b, "offset": first, "size": n}}
                    for i, (b, first, n) in enumerate(ranges)
                ]
                group = self.device.create_bind_group(layout=layout, entries=entries)
            steps.append((pipeline, group, launch.groups))
        return steps

    def _forget(self, raw: Any) -> None:
        """Nothing: all of it is freed with its last reference."""

    def _run(self, raw: list[tuple[Any, Any, Any]]) -> None:
        # A command buffer of WebGPU runs once: the commands are made anew for each run.
        with self._failures():
            encoder = self.device.create_command_encoder()
            work = encoder.begin_compute_pass()
            for pipeline, group, groups in raw:
                work.set_pipeline(pipeline)
                work.set_bind_group(0, group)
                work.dispatch_workgroups(*groups)
            work.end()
            self.queue.submit([encoder.finish()])

    def _sync(self) -> None:
        # A read waits for all before it. (The package's on_submitted_work_done does not work.)
        with self._failures():
            self.queue.read_buffer(self.scratch, 0, 4)

    def _close(self) -> None:
        self.device.destroy()
