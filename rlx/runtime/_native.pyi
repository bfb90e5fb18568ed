"""The native runtime: thread pool, object loader and the execution of compiled schedules.

Kernel ABI, version 2 (`ABI_VERSION`)::

    void kernel(int64_t begin, int64_t end, void *const *buffers, const int64_t *sizes,
                void *scratch);

A kernel computes the indices `[begin, end)` of its parallel range; the result of an index does
not depend on how the range is cut. `scratch` is 64-byte aligned, private to the thread for the
call, holds `scratch_bytes` of the launch, and starts with undefined contents.

A buffer is named by `(base, byte offset)`. Bases, in order:

=====================================  ====================================================
0 `BASE_ARENA`                         scratch: `arena_bytes`, one checkout a call, undefined
1 `BASE_PACKED`                        `packed_bytes` of the weights, zero until the prologue writes
2 `BASE_ERROR`                         the call's record `int64[2]` = (code, site), zero at start,
                                       and behind it the address of a function
3 .. 3+P-1 (`BASE_FIRST_PARAM` = 3)    params, in place
then C bases                           constants
then I bases                           inputs
then O bases                           outputs
=====================================  ====================================================

`BASE_ARENA` is 64-byte aligned, `BASE_PACKED` page aligned; params, constants, inputs and outputs
are aligned to their item only. A kernel whose loops may run for long calls the function,
`int64_t f(void *record)`, after as many rounds as it gave the last time; 0 says that the call is to
end: the kernel returns, whatever its results. The constants are those of the entry: weights and the
programs on them number their own.

Steps are words: 64-bit integers as `rlx.schedule.codec` writes them, by the table of
`rlx/schedule/steps.py`, after the number of that format. `kernels` are addresses, and a launch
names one by its index: of `Object.symbol` of one of the program's objects, or one of `functions`,
which are functions of this process that the caller keeps alive.

What steps mean is said in `rlx/schedule/steps.py`. On a CPU the grid of a launch is its range, its
grain, and the bytes of scratch that a worker needs. A place inside a `For` may move with its round;
it must lie inside its memory in every one. The flag of an `If` or a `While` is a bool of one byte,
read when the step runs. Where the body of a `While` would run more often than its limit, the call
stops with the error record `(FAULT_LOOP_LIMIT, site)`; it stops too as soon as a kernel has written
an error record. Steps nest at most 64 deep.

A prologue step follows params: it runs before the first call, and again before the next call once
one of the params with these indices (0 is the first param) was set anew. Prologue steps name
packed memory, the error record, params and constants.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

ABI_VERSION: Literal[2]
ARTIFACT_FORMAT: Literal[9]
STEPS_VERSION: int
"""The number of the steps' format that is read: `rlx.schedule.steps.VERSION`."""
BASE_ARENA: Literal[0]
BASE_PACKED: Literal[1]
BASE_ERROR: Literal[2]
BASE_FIRST_PARAM: Literal[3]
FAULT_LOOP_LIMIT: Literal[1]
"""The only error code that the runtime itself writes; kernels may write any other nonzero one."""

class Error(ValueError):
    """A refused argument, object or schedule. `str()` is "where: found ..., expected ...; hint"."""

    where: str
    found: str
    expected: str
    hint: str
    partly_run: bool
    """Whether launches may have run before: what the call writes in place may be half new."""

class Fault(RuntimeError):
    """A kernel, or a loop limit, wrote the call's error record; outputs are unspecified."""

    code: int
    site: int
    detail: str
    """What there is to say beside what the site does, such as which rank was late."""

Buffer: TypeAlias = Any
"""Whatever has the buffer protocol; before Python 3.12, types cannot tell."""
Signature: TypeAlias = tuple[str, str, Sequence[int]]
"""`(name, dtype, shape)`; dtype is one of f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool."""

def set_threads(n: int) -> None:
    """Use `n` threads, the caller included, from the next launch on; waits for one in flight.

    Raises Error unless `n` is in 1..4096.
    """

def num_threads() -> int:
    """The threads in use, the caller included: `set_threads`, or else `default_threads`."""

def default_threads() -> int:
    """RLX_NUM_THREADS, or else the smaller of the CPU affinity and the cgroup CPU quota rounded up.

    Raises Error when RLX_NUM_THREADS is no integer in 1..4096.
    """

def check_artifact(data: Buffer) -> None:
    """Raise Error unless `data` is a whole artifact of which all parts are sound.

    Every number in it is held against what it counts or names. The code in its objects is not
    looked at.
    """

def check_device_steps(
    main: bytes, kernels: Sequence[tuple[int, int]], memories: Sequence[int]
) -> None:
    """``Error`` unless the words of a device's steps are well-formed and stay inside memories of
    these bytes. ``kernels`` are the number of buffers and of params of each."""

def checksum(data: Buffer) -> int:
    """XXH64 (seed 0) of a C-contiguous buffer: the checksum of an artifact's parts."""

def cpu_features() -> frozenset[str]:
    """The features of this CPU that the system has enabled, spelt as LLVM spells them."""

def dlpack_capsule(managed: int) -> Any:
    """A capsule with the DLManagedTensor at an address, which it releases unless somebody takes
    it."""

def pjrt_api(
    *,
    compile: Callable[[bytes, str], Any],
    version: str,
    current: Sequence[int],
    minimum: Sequence[int],
) -> Any:
    """The functions of PJRT (PJRT_Api) in a capsule called `pjrt_c_api`; the first call decides.

    `compile` takes a module's bytes and the word for its format, and gives an object with the
    fields of `rlx.frontends.pjrt.programs.Program`, or an error's number of PJRT and its message.
    `version` is RLX's, `current` and `minimum` are versions of StableHLO."""

def trim_heap() -> None:
    """Give the free pages of the C heap back to the system, where the C library keeps them."""

def machine() -> str:
    """ "x86_64" or "aarch64": what `Object` accepts here."""

def trace_start(capacity: int) -> None:
    """Record what runs from now on, at most about `capacity` events of 40 bytes; memory is taken
    as it is used. What was recorded before is let go."""

def trace_stop() -> None:
    """Record no more. What was recorded can still be read."""

def trace_events() -> tuple[list[tuple[int, int, bytes]], int]:
    """What was recorded since `trace_start`, and the number of events that had no room.

    An item is `(thread, worker, events)`: the system's number of a thread, which of the pool's
    workers it is (from 1, or 0), and events of `struct` format "<qqIIqq": begin and end in
    nanoseconds of `time.perf_counter_ns`, the number of a launch, the kind, and two indices.
    Kinds: 0 a run (of the program whose first launch this is), 1 a run of the prologue, 2 a
    launch, 3 the indices of a launch that the thread computed, the end excluded.
    """

class Communicator:
    """A rank of a group of ranks."""

    @property
    def rank(self) -> int: ...
    @property
    def ranks(self) -> int: ...
    beside: bool
    """Whether collectives that are apart run on a thread beside launches, or else when they must
    end. By default they do where MPI connects several machines. Error where MPI was started for one
    thread alone."""
    @property
    def engine(self) -> str:
        """What carries it: "threads", "processes", "MPI"."""

    def split(self, color: int, key: int) -> Communicator:
        """Of MPI: the ranks with the same color, in the order of their keys; all ranks call it."""

    def leave(self) -> None:
        """Let those that wait for this rank end: it comes no more."""

def team_of_threads(ranks: int) -> list[Communicator]:
    """The ranks of a group in this process: one for each thread to be. Raises Error unless there
    are from 1 to 1024."""

def team_of_processes(path: str, ranks: int, rank: int) -> Communicator:
    """A rank of a group of processes of this machine, which meet in a file that the first makes."""

def mpi_world(libraries: Sequence[str]) -> Communicator:
    """All ranks that MPI has started, by the first of some libraries that there is. Starts MPI if
    nobody has. Raises Error if there is none, or it lacks what the standard ABI has."""

def mpi_end() -> None:
    """End MPI, if `mpi_world` has started it and no collective failed."""

def bind_communicators(
    axes: Sequence[str], communicators: Sequence[Communicator], process: bool
) -> None:
    """Bind a communicator to each axis, by name, for what this thread runs, or for all of the
    process that is bound to none of its own. No axes: no longer."""

class DeviceMeetings:
    """The collectives among the steps of a device's program, by their numbers in the order in which
    a reader meets them. Its runs take turns."""

    def __init__(self, main: bytes, kernels: int) -> None: ...
    def use(
        self,
        engine: str,
        libraries: Sequence[str],
        hint: str,
        stream: int,
        query: int,
        copy_in: int,
        copy_out: int,
    ) -> None:
        """Connect the ranks by a library with NCCL's interface, called `engine`: memory is that of
        a GPU, whose driver has a stream, and functions that ask whether all is done there and that
        copy into its memory and out of it, by their addresses. `hint` says what to do without a
        library."""

    def begin(self, asked: Callable[[], object]) -> None:
        """Begin a run: find the groups and have them agree. Raises Error if a group is missing, or
        other ranks have another program, and what `asked` raises, which the main thread calls every
        100 ms."""

    def end(self) -> None:
        """Let go of the groups."""

    def run(self, number: int, source: int, target: int, asked: Callable[[], object]) -> str:
        """Carry out a collective from one address to another; why it failed, if it did."""

class Object:
    """A relocatable ELF object, mapped and relocated; executable pages are never writable.

    Raises Error when the bytes are malformed, for another machine, or need an outer symbol.
    """

    def __init__(self, data: Buffer) -> None: ...
    def symbol(self, name: str) -> int:
        """The address of a global symbol; valid while this object or a Program made of it lives."""

    def symbols(self) -> tuple[str, ...]:
        """The names of all global symbols, sorted."""

class Weights:
    """Params, and the packed memory that a prologue makes of them; several programs may share one.

    Safe to use from many threads at once. Buffers are any objects with the buffer protocol:
    C-contiguous, of the declared item type and shape; `constants` are C-contiguous buffers of
    whatever type, used in place. numpy offers none for bfloat16: pass `array.view(numpy.uint16)`.
    """

    def __init__(
        self,
        *,
        objects: Sequence[Object] = (),
        params: Sequence[Signature] = (),
        constants: Sequence[Buffer] = (),
        packed_bytes: int = 0,
        prologue: Buffer = b"",
        kernels: Sequence[int] = (),
        functions: Sequence[int] = (),
        packed_params: Sequence[bool] = (),
    ) -> None:
        """`packed_params` says of each param whether only the prologue reads it: it needs no value
        after `use_packed`."""

    def use_packed(self, packed: Buffer) -> None:
        """Use what the prologue made once, as it lies in a buffer that `packed` gave, and run no
        step until a param is set. Params that are set before it are taken for what is in there."""

    def packed(self) -> np.ndarray[Any, Any]:
        """The packed memory and the room behind it, after the prologue has run: u8, and a view. It
        holds what it held until a param is set."""

    def set_param(self, index: int, value: Buffer) -> None:
        """Use `value` in place as param `index` (and keep it alive). Waits for the calls in flight.

        Call it again, with the same buffer too, after the contents of a param were changed.
        """

    def release_when_packed(self, file: Buffer) -> None:
        """Give the memory of a mapped file's pages back once the prologue has run.

        Params that were packed are not read again; other pages are read from the file again.
        `file` must be a map of a file (`mmap.mmap`): other memory would lose its contents.
        """

    @property
    def params(self) -> tuple[Signature, ...]: ...
    @property
    def first_launch(self) -> int:
        """The number of the first launch of the prologue; the others follow it."""

class ResultMemory:
    """The memory of a result of 64 KiB or more, the `base` of its array; a writable buffer.

    It is 64-byte aligned, and used for another result once the last array, view or export of it is
    gone. At most 128 MiB wait for that; what has waited longest is freed first.
    """

class SizeProgram:
    """A schedule of symbolic sizes, bound to the sizes of calls (`rlx.schedule.size_program`)."""

    def __init__(
        self,
        *,
        sizes: int,
        instructions: bytes,
        guards: bytes,
        buffers: bytes,
        words: bytes,
        patches: bytes,
        results: bytes,
    ) -> None: ...
    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether sizes meet the guards."""

    def bind(self, sizes: Sequence[int]) -> tuple[bytes, tuple[int, ...]] | None:
        """The words of the steps and the results; None where sizes do not meet the guards."""

class SizedSchedule:
    """A schedule of symbolic sizes on weights, read and checked once: for the sizes of a call it is
    copied, and the numbers that follow from them are put in.

    `main` has the words of `sizes`, and `inputs` and `outputs` any size for each dim; the rest is
    as for `Program`.
    """

    def __init__(
        self,
        *,
        sizes: SizeProgram,
        weights: Weights,
        objects: Sequence[Object],
        constants: Sequence[Buffer],
        inputs: Sequence[Signature],
        outputs: Sequence[Signature],
        main: Buffer,
        kernels: Sequence[int],
        functions: Sequence[int],
    ) -> None: ...
    def bind(self, sizes: Sequence[int]) -> Program | None:
        """The program for sizes; None where they do not meet the guards."""

class Program:
    """An immutable schedule over compiled objects; safe to call from many threads at once.

    `weights` None stands for weights without params. Buffers are as for `Weights`; a bf16 result
    comes back as uint16, to be viewed as bfloat16.
    """

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        objects: Sequence[Object],
        constants: Sequence[Buffer] = (),
        inputs: Sequence[Signature] = (),
        outputs: Sequence[Signature] = (),
        arena_bytes: int = 0,
        main: Buffer = b"",
        kernels: Sequence[int] = (),
        functions: Sequence[int] = (),
    ) -> None: ...
    def run_slots(self, *inputs: Buffer) -> tuple[np.ndarray[Any, Any], ...]:
        """Run on `inputs` in declared order; the results are new arrays of the declared shapes."""

    def run_into(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> None:
        """Run on `inputs` into writable `outputs`; an output may be the same buffer as an input.

        Allocates nothing once as many calls were in flight together as are now (up to 16).
        """

    def run_named(self, inputs: object) -> list[np.ndarray[Any, Any]] | None:
        """Run on a dict of `inputs` by name; the results are new arrays of the declared shapes.

        None, and nothing is run, for anything but a dict with an array (of no subclass) exactly as
        declared for each input.
        """

    def run_named_into(self, inputs: object, outputs: object) -> bool:
        """As `run_named`, into a list or tuple of `outputs`.

        False, and nothing is run, for anything else, and where an output is no writable array as
        declared or shares memory with an input or another output.
        """

    def set_profiling(self, on: bool) -> None:
        """Switch the timing of launches on, from zero, or off."""

    def launch_times(self) -> list[tuple[int, int]]:
        """Nanoseconds and calls of each launch since `set_profiling(True)`, over all runs.

        Launches are in the order in which a reader of `main` meets them.
        """

    @property
    def first_launch(self) -> int:
        """The number of the first launch; the others follow it. See `trace_events`."""

    @property
    def inputs(self) -> tuple[Signature, ...]: ...
    @property
    def outputs(self) -> tuple[Signature, ...]: ...
