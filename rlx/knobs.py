"""Every environment variable that RLX reads: typed, grouped, documented.

A knob is read when it is used, so that a changed environment counts at once. Code may override one,
for good by ``knobs.cpu.set("x86-64-v3")`` or within ``with knobs.cpu.scoped("x86-64-v3"):``.
``docs/knobs.md`` is made from this file (``tools/make_docs.py``).
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from functools import cache as once
from typing import Any, Generic, TypeVar

from rlx.errors import DeviceError, KnobError, KnobWarning, did_you_mean

__all__ = [
    "KNOBS", "Knob", "benchmark_pick", "cache", "cache_dir", "cache_size", "check_names", "cpu",
    "deny_devices", "device", "device_chain", "devices", "dispatch_report", "fusion_report", "gpu",
    "ir_dump", "kernel_dispatch", "log", "mlx_mode", "num_threads", "packed_size", "pjrt",
    "prefer_devices", "sizes", "trace", "triton",
]  # fmt: skip

T = TypeVar("T")

_UNSET: Any = object()


class Knob(Generic[T]):
    """One environment variable.

    ``variable`` is its name, ``default`` what holds where it is unset or empty, ``group`` and
    ``text`` its place and line in the documentation, ``form`` what a value looks like. ``parse``
    turns the text of the environment into a value, and raises ValueError for what is none.
    """

    def __init__(
        self, variable: str, default: T, parse: Callable[[str], T], group: str, form: str, text: str
    ) -> None:
        self.variable, self.default, self.parse = variable, default, parse
        self.group, self.form, self.text = group, form, text
        self._override: T = _UNSET
        if variable in KNOBS:
            raise ValueError(f"two knobs are called {variable}")
        KNOBS[variable] = self

    def get(self) -> T:
        """The value that holds now; KnobError if the environment's text is none."""
        if self._override is not _UNSET:
            return self._override
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as e:
            why = f" ({e})" if str(e) else ""
            raise KnobError(
                f"environment variable {self.variable} is {text!r}{why}; expected {self.form}"
            ) from None

    def under(self, prefix: str) -> Knob[T]:
        """The variable of another program's that has ``prefix`` in place of RLX."""
        other = copy(self)
        other.variable = f"{prefix}{self.variable.removeprefix('RLX')}"
        other._override = self._override if prefix == "RLX" else _UNSET
        return other

    def set(self, value: T) -> None:
        """Override the environment in this process."""
        self._override = value

    def unset(self) -> None:
        """Let the environment count again."""
        self._override = _UNSET

    @contextmanager
    def blamed(self) -> Generator[None]:
        """Adds the variable to a DeviceError of a name that it gave."""
        try:
            yield
        except DeviceError as e:
            raise DeviceError(f"{e.message} (in the variable {self.variable})") from None

    @contextmanager
    def scoped(self, value: T) -> Generator[None]:
        """Override the environment within a ``with`` statement, in every thread of the process."""
        before, self._override = self._override, value
        try:
            yield
        finally:
            self._override = before


DISPATCH = ("native", "common")
"""How ops may be dispatched: to kernel families, or every op by its own loop nest."""

KNOBS: dict[str, Knob[Any]] = {}
"""All knobs by their variables, in the order of this file."""


_FORMER = {
    "RLX_TRACE_PERFETTO": "RLX_TRACE",
    "RLX_VERBOSE": "RLX_LOG",
    "RLX_WORKERS": "RLX_NUM_THREADS",
}
"""What some variables of the original system are called here."""

_FOREIGN = ("RLX_TEST_", "RLX_BUILD_", "RLX_SANITIZE")
"""Beginnings of names that the test-suite and the build read."""


@once
def check_names() -> None:
    """Warn of variables that are set, begin with RLX_ and are no knobs: once a process, when its
    first session is made or its command begins."""
    for name in sorted(os.environ):
        if not name.startswith("RLX_") or name in KNOBS or name.startswith(_FOREIGN):
            continue
        former = _FORMER.get(name, "")
        hint = f"; did you mean {former!r}?" if former else did_you_mean(name, KNOBS)
        listed = "" if hint else "; docs/knobs.md lists those that are"
        message = f"environment variable {name} is not read by RLX{hint}{listed}"
        warnings.warn(message, KnobWarning, stacklevel=3)


def _choice(*names: str) -> Callable[[str], str]:
    """Parses one of some names, in either case of letters."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError
        return text.lower()

    return parse


def _count(text: str) -> int:
    if int(text) < 0:
        raise ValueError("it is negative")
    return int(text)


MAX_THREADS = 4096


def _threads(text: str) -> int:
    if not 1 <= int(text) <= MAX_THREADS:
        raise ValueError("it is out of range")
    return int(text)


_SWITCH = {
    "on": True, "1": True, "true": True, "yes": True,
    "off": False, "0": False, "false": False, "no": False,
}  # fmt: skip


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError
    return _SWITCH[text.lower()]


# -- machine ----------------------------------------------------------------------------------

cpu = Knob(
    "RLX_CPU", "", str, "machine", "a CPU such as x86-64-v3 or x86-64-v4+avx512vnni",
    "The CPU that code is compiled for; by default this machine's, with all of its features.",
)  # fmt: skip

c_compiler = Knob(
    "RLX_CC", "", str, "machine", "a command such as gcc",
    "The C compiler for kernels that users write in C; by default cc.",
)  # fmt: skip

num_threads = Knob(
    "RLX_NUM_THREADS", 0, _threads, "machine", f"a number of threads in 1..{MAX_THREADS}",
    "Threads of the process; by default what affinity and the cgroup's quota allow. The native"
    " runtime reads it once, at its first use.",
)  # fmt: skip


def _seconds(text: str) -> float:
    if not 0 < float(text) <= 1e8:
        raise ValueError("it is out of range")
    return float(text)


comm_timeout = Knob(
    "RLX_COMM_TIMEOUT", 60.0, _seconds, "machine", "seconds, such as 60",
    "How long a rank waits for others in a collective before the call is a FaultError that names"
    " one that has not come. The native runtime reads it before each call.",
)  # fmt: skip

comm_beside: Knob[bool | None] = Knob(
    "RLX_COMM_BESIDE", None, _switch, "machine", "on or off",
    "Whether collectives whose results are not needed at once run on a thread beside the launches"
    " behind them; by default where MPI connects several machines. Ranks of one machine move the"
    " bytes themselves. `rlx.distributed.connect` reads it.",
)  # fmt: skip

mpi = Knob(
    "RLX_MPI", "", str, "machine", "the path of a library",
    "The library of MPI that `rlx.distributed.connect` loads, which has MPI's standard ABI; by"
    " default libmpi_abi.so.1 beside this Python, or where the system finds it.",
)  # fmt: skip

nccl = Knob(
    "RLX_NCCL", "", str, "machine", "the path of a library, or `host`",
    "The library by which ranks on CUDA and ROCm GPUs exchange tensors; by default NCCL's"
    " libnccl.so.2 or RCCL's librccl.so.1, beside this Python's packages or where the system finds"
    " it. `host`: none, tensors go by way of the host.",
)  # fmt: skip

rank = Knob(
    "RLX_RANK", -1, _count, "machine", "a number from 0 on",
    "Which rank this process is: `rlx launch` sets it, and `rlx.distributed.connect` reads it.",
)  # fmt: skip

ranks = Knob(
    "RLX_RANKS", 0, _count, "machine", "a number from 1 on",
    "How many ranks there are: `rlx launch` sets it.",
)  # fmt: skip

rendezvous = Knob(
    "RLX_RENDEZVOUS", "", str, "machine", "a folder",
    "Where the ranks of a machine share memory: `rlx launch` makes it, in memory.",
)  # fmt: skip

status = Knob(
    "RLX_STATUS", "", str, "machine", "the path of a file",
    "Where a rank notes its training step: `rlx launch` sets it, to say in which one it failed.",
)  # fmt: skip

gpu = Knob(
    "RLX_GPU", "", str, "machine", "a number from 0 on, or a part of a name",
    "The GPU to use, if an API has several; by default the one that is expected to be fastest."
    " `rlx devices` lists them.",
)  # fmt: skip

mlx_mode = Knob(
    "RLX_MLX_MODE", "lazy", _choice("lazy", "compiled"), "machine", "lazy or compiled",
    "How the device mlx runs a graph: lazy, op by op as results are asked for; compiled, fused by"
    " mlx.core.compile, which on a processor needs a C++ compiler.",
)  # fmt: skip


pjrt = Knob(
    "RLX_PJRT", "", str, "machine", "the path of a library",
    "The PJRT plugin that runs graphs of the device tpu; by default LIBTPU_PATH, else that in the"
    " package libtpu.",
)  # fmt: skip


triton = Knob(
    "RLX_TRITON", "auto", _choice("auto", "on", "off"), "machine", "auto, on or off",
    "Whether the package triton compiles products and attention for cuda and rocm, if it is"
    " installed: auto, where it uses matrix units; on, for all element types that it takes; off.",
)  # fmt: skip

# -- devices ----------------------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.lower() for word in re.split(r"[,;\s]+", text) if word))


_DEVICES = "names of devices, with commas between"

devices = Knob(
    "RLX_DEVICES", (), _names, "devices", _DEVICES,
    "The devices that a policy from the environment may use; by default all.",
)  # fmt: skip

deny_devices = Knob(
    "RLX_DENY_DEVICES", (), _names, "devices", _DEVICES,
    "The devices that a policy from the environment must not use.",
)  # fmt: skip

prefer_devices = Knob(
    "RLX_PREFER_DEVICES", (), _names, "devices", _DEVICES,
    "The devices that a policy from the environment tries first, in this order.",
)  # fmt: skip

device = Knob(
    "RLX_DEVICE", "", str.lower, "devices", "the name of a device",
    "The default device of Session(), compile_artifact, Embed and the commands run, bench, compile,"
    " embed, view and reduce. A device that a call names wins over it, and so does the device that"
    " an artifact was made for. GraphDevices uses it if it can run the graph. Any name of a device"
    " will do (vk, Vulkan); an unknown name is a DeviceError, here and in the lists.",
)  # fmt: skip

device_chain = Knob(
    "RLX_DEVICE_CHAIN", (), _names, "devices", _DEVICES,
    "The devices that GraphDevices tries in turn, if a call names no others.",
)  # fmt: skip

benchmark_pick = Knob(
    "RLX_BENCHMARK_PICK", 0, _count, "devices", "a number of runs",
    "How often a policy from the environment runs the graph on each device to find the fastest;"
    " with 0 it asks a cost model instead.",
)  # fmt: skip


kernel_dispatch = Knob(
    "RLX_KERNEL_DISPATCH", "native", _choice(*DISPATCH), "devices", "native or common",
    "The default way in which a compile runs ops: native, by kernel families where one claims the"
    " op; common, each op by its own loop nest.",
)  # fmt: skip


sizes = Knob(
    "RLX_SIZES", "symbolic", _choice("symbolic", "bound"), "devices", "symbolic or bound",
    "How a graph with symbolic dims is compiled for the CPU: symbolic, once for all sizes that take"
    " the same decisions; bound, anew at every size.",
)  # fmt: skip

# -- inspection -------------------------------------------------------------------------------

ir_dump = Knob(
    "RLX_IR_DUMP", "", str, "inspection",
    "levels such as mir,lir (or all), or a path with a / in it",
    "Shows what every compile makes of its graph: the levels are printed on standard error. A path"
    " that is a directory or ends in / gets a file a level, which rlx-opt reads, and one with the"
    " reports; another path is a file, to which all compiles of the process are written.",
)  # fmt: skip

fusion_report = Knob(
    "RLX_FUSION_REPORT", False, _switch, "inspection", "on or off",
    "Whether every compile prints what it fused and what it did not, and why, on standard error.",
)  # fmt: skip

dispatch_report = Knob(
    "RLX_DISPATCH_REPORT", False, _switch, "inspection", "on or off",
    "Whether every compile prints which kernels run what on standard error.",
)  # fmt: skip

# -- compile cache ----------------------------------------------------------------------------

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?)(?:ib)?", text.lower())
    if found is None:
        raise ValueError
    return int(found[1]) * _UNITS[found[2]]


cache = Knob(
    "RLX_CACHE", True, _switch, "compile cache", "on or off",
    "Whether compiled graphs are kept for other processes.",
)  # fmt: skip

cache_dir = Knob(
    "RLX_CACHE_DIR", "", str, "compile cache", "a directory",
    "The folder of compiled graphs; by default rlx in XDG_CACHE_HOME or ~/.cache. Nobody else may"
    " have write access to it.",
)  # fmt: skip

cache_size = Knob(
    "RLX_CACHE_SIZE", 512 << 20, _size, "compile cache", "a number of bytes such as 512MiB",
    "How many bytes of them are kept; those that were used longest ago go first.",
)  # fmt: skip

packed_size = Knob(
    "RLX_PACKED_SIZE", 4 << 30, _size, "compile cache", "a number of bytes such as 4GiB",
    "How many bytes of weights, as kernels read them, are kept beside compiled graphs for processes"
    " that load the same files; those that were used longest ago go first. 0 keeps none.",
)  # fmt: skip


# -- reports ----------------------------------------------------------------------------------

TOPICS = ("cache", "compile")
"""What can be reported."""


def _topics(text: str) -> frozenset[str]:
    found = frozenset(word.strip() for word in text.split(","))
    if not found <= set(TOPICS):
        raise ValueError
    return found


log = Knob(
    "RLX_LOG", frozenset[str](), _topics, "reports", f"one or more of {', '.join(TOPICS)}",
    "What is reported on standard error as it happens: cache, every look-up in the compile cache;"
    " compile, every compile of a graph with symbolic dims, why, and for which sizes.",
)  # fmt: skip

# -- measuring --------------------------------------------------------------------------------

trace = Knob(
    "RLX_TRACE", "", str, "measuring", "the path of a file to write",
    "Write a trace of compiles and runs to this file when the process ends, for Perfetto or"
    " chrome://tracing; `%p` stands for the process's number.",
)  # fmt: skip
