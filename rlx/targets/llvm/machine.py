"""Objects and assembly from LLVM IR text, by llvmlite.

There is no middle end: kernels arrive vectorised and scheduled by their families, and LLVM's
passes double the compile time for the same speed. The code generator runs with its optimisations
on; at level 0 it is several times slower code.

Several threads may emit at once: each has a target machine, and each module an LLVM context of its
own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rlx.errors import ToolchainError
from rlx.targets.llvm.elf import MAGIC, Object

if TYPE_CHECKING:
    import llvmlite.binding as llvm

__all__ = ["Machine", "emit_assembly", "emit_object", "undefined_symbols"]


class Machine(NamedTuple):
    """What LLVM is told of a target.

    ``arch`` names the allow-list; ``attributes`` is LLVM's ``+feature,-feature`` string, where
    ``-prefer-256-bit`` keeps LLVM from choosing half of a 512-bit register; ``abi`` is how floats
    are passed, on machines that have several ways; ``reloc`` is "static" where code stays where it
    is linked to; and ``model`` says in LLVM's words how far data may be.
    """

    arch: str
    triple: str
    cpu: str
    attributes: str = ""
    abi: str = ""
    reloc: str = "pic"
    model: str = "small"


def emit_object(
    text: str, machine: Machine, *, opt: int = 2, linked: Callable[[str], bool] | None = None
) -> bytes:
    """A relocatable object from LLVM 22 text: position-independent, all of it within 2 GiB.

    ``opt`` is the level of the code generator, 0 to 3. Raises ToolchainError for text that the
    allow-list or LLVM refuses, and if the object would need a symbol from outside, but for those
    that ``linked`` says a linker adds.
    """
    obj = _emit(text, machine, opt, as_object=True, linked=linked)
    missing = undefined_symbols(obj) if obj.startswith(MAGIC) else []
    missing = [name for name in missing if linked is None or not linked(name)]
    if missing:
        raise ToolchainError(
            f"LLVM made calls of {', '.join(missing)} for {machine.triple}, and an object of RLX "
            "stands alone; write the kernel without the operation that becomes this call"
        )
    return obj


def emit_assembly(text: str, machine: Machine, *, opt: int = 2) -> str:
    """Assembly (PTX for nvptx64) from LLVM 22 text; as ``emit_object``."""
    return _emit(text, machine, opt, as_object=False).decode()


def _emit(
    text: str,
    machine: Machine,
    opt: int,
    *,
    as_object: bool,
    linked: Callable[[str], bool] | None = None,
) -> bytes:
    from rlx.targets.llvm.allow import check

    check(text, machine.arch, linked)
    binding, target = _binding(), _target_machine(machine, opt)
    # Closed here, the module first: where an error keeps both alive in a cycle, Python's collector
    # takes them in any order, and a module whose context is gone ends the process.
    with binding.create_context() as context:
        try:
            parsed = binding.parse_assembly(text, context)
        except RuntimeError as error:
            raise _refused(error) from None
        with parsed as module:
            module.triple, module.data_layout = machine.triple, str(target.target_data)
            try:
                module.verify()
            except RuntimeError as error:
                raise _refused(error) from None
            return _generate(target, module, as_object)


def _refused(error: RuntimeError) -> ToolchainError:
    reason = " ".join(str(error).split())[:400]
    return ToolchainError(f"LLVM refused the code of a kernel: {reason}")


def _generate(target: llvm.TargetMachine, module: llvm.ModuleRef, as_object: bool) -> bytes:
    """What ``target.emit_object`` and ``emit_assembly`` do, without llvmlite's lock.

    That lock is one for the process and held during the whole call, so that a second thread would
    wait for the first. Neither the module's context nor the target machine is another thread's.
    """
    from llvmlite.binding import ffi

    api = _c_api()
    with ffi.OutputString() as reason:
        out = api.LLVMPY_TargetMachineEmitToMemory(target, module, int(as_object), reason)
        if not out:
            raise ToolchainError(f"LLVM cannot emit the code of a kernel: {reason}")
    try:
        return ctypes.string_at(api.LLVMPY_GetBufferStart(out), api.LLVMPY_GetBufferSize(out))
    finally:
        api.LLVMPY_DisposeMemoryBuffer(out)


_FUNCTIONS = (
    "LLVMPY_TargetMachineEmitToMemory",
    "LLVMPY_GetBufferStart",
    "LLVMPY_GetBufferSize",
    "LLVMPY_DisposeMemoryBuffer",
)


@cache
def _c_api() -> ctypes.CDLL:
    """llvmlite's library once more, its functions declared as llvmlite declares them."""
    from llvmlite.binding import ffi

    api = ctypes.CDLL(ffi.lib._name)
    for name in _FUNCTIONS:
        declared, function = getattr(ffi.lib, name), getattr(api, name)
        function.restype, function.argtypes = declared.restype, declared.argtypes
    return api


_binding_lock = threading.Lock()


def _binding() -> Any:
    with _binding_lock:  # LLVM ends the process where an option is set a second time
        return _load()


@cache
def _load() -> Any:
    try:
        from llvmlite import binding
    except ImportError as error:
        raise ToolchainError(
            "compiling needs LLVM, and the package llvmlite is not installed: RLX without extras"
            " only runs artifacts; install it with: pip install 'rlx[compile]'"
        ) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Loop strength reduction takes a third of the code generator's time or more. Kernels count
    # their addresses by hand, and run as fast without it.
    binding.set_option("rlx", "-disable-lsr")
    return binding


@cache
def _load_every_target() -> None:
    """Make known what is not the host's: the tables of all targets take 10 MB."""
    _binding().initialize_all_targets()
    _binding().initialize_all_asmprinters()


_machines = threading.local()


def _target_machine(machine: Machine, opt: int) -> llvm.TargetMachine:
    """This thread's target machine: emitting changes its state."""
    made: dict[tuple[Machine, int], llvm.TargetMachine]
    made = _machines.__dict__.setdefault("made", {})
    if (machine, opt) not in made:
        made[machine, opt] = _new_target_machine(machine, opt)
    return made[machine, opt]


def _new_target_machine(machine: Machine, opt: int) -> llvm.TargetMachine:
    binding = _binding()
    if machine.triple.partition("-")[0] != binding.get_process_triple().partition("-")[0]:
        _load_every_target()
    try:
        target = binding.Target.from_triple(machine.triple)
    except RuntimeError as error:
        raise ToolchainError(f"this LLVM has no target {machine.triple}: {error}") from None
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.attributes, opt=opt, reloc=machine.reloc,
        codemodel=machine.model, abiname=machine.abi,
    )  # fmt: skip


def undefined_symbols(obj: bytes) -> list[str]:
    """Names that an ELF object uses and does not define."""
    return [s.name for s in Object.read(obj).symbols[1:] if not s.defined]
