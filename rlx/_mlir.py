"""The MLIR bindings: the only module that imports ``torch_mlir``.

Another provider of the same upstream bindings is a change of this file alone. Importing it costs
about 0.1 s, so only compiling imports it; building a graph and running an artifact do not.

``ir``, ``passmanager``, ``rewrite`` and ``func`` are the upstream modules. The functions below wrap
what upstream leaves raw: the errors, which become ``rlx.errors``, and the translation to LLVM IR,
which has no Python binding and is called through MLIR's C API.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlx.base.threads import on_large_stack
from rlx.errors import IRError, PassError, RlxError, ToolchainError

if TYPE_CHECKING:
    # The package has no stubs for these. A type checker is shown where they live, which it cannot
    # read, so that it takes them for unknown and not for empty.
    from torch_mlir._mlir_libs._mlir import (  # pyright: ignore[reportMissingImports]
        func,  # pyright: ignore[reportAttributeAccessIssue]
        ir,  # pyright: ignore[reportAttributeAccessIssue]
        passmanager,  # pyright: ignore[reportAttributeAccessIssue]
        rewrite,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from torch_mlir._mlir_libs._mlir import (
        irdl as _mlirDialectsIRDL,  # pyright: ignore[reportAttributeAccessIssue]
    )
else:

    @contextmanager
    def _of_its_own() -> Generator[None]:
        """Libraries loaded here take their own symbols before those of others, where the system can
        do that: drivers of software devices bring LLVMs, and MLIR's would register its options with
        one of those, which ends the process."""
        flags = sys.getdlopenflags() if hasattr(os, "RTLD_DEEPBIND") else None
        if flags is not None:
            sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
        try:
            yield
        finally:
            if flags is not None:
                sys.setdlopenflags(flags)

    def _import() -> None:
        from torch_mlir import ir, passmanager, rewrite  # noqa: F401
        from torch_mlir._mlir_libs import _mlirDialectsIRDL  # noqa: F401
        from torch_mlir.dialects import func  # noqa: F401

    try:
        with _of_its_own():
            on_large_stack(_import)
        from torch_mlir import ir, passmanager, rewrite
        from torch_mlir._mlir_libs import _mlirDialectsIRDL
        from torch_mlir.dialects import func
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            raise ToolchainError(
                f"compiling needs MLIR, and the package torch-mlir cannot be loaded: {error}; free"
                " memory, raise a limit on it (ulimit -v), or install it anew"
            ) from error
        raise ToolchainError(
            "compiling needs MLIR, and the package torch-mlir is not installed: RLX without extras"
            " only runs artifacts; install it with: pip install 'rlx[compile]'"
        ) from error

__all__ = [
    "Pipeline",
    "context",
    "dialect_names",
    "elements_of",
    "func",
    "ir",
    "load_irdl",
    "mlir_errors",
    "object_bytes",
    "parse_module",
    "passmanager",
    "portable_stablehlo",
    "raw_elements",
    "rewrite",
    "run_pipeline",
    "stablehlo",
    "stablehlo_module",
    "text_to_llvm_ir",
    "translate_to_llvm_ir",
]

# For every op that reaches Python the bindings look for a module of its dialect's name, and where
# there is none they search the whole import path again, 20 us an op. Ours get an empty module.
for _dialect in ("hir", "mir", "lir"):
    _name = f"{func.__package__}.{_dialect}"
    sys.modules.setdefault(_name, ModuleType(_name))


def context() -> ir.Context:
    """A new context with multithreading off.

    A verifier written in Python and called from MLIR's thread pool waits for the GIL that the
    thread which started the pass is holding.
    """
    ctx = ir.Context()
    ctx.enable_multithreading(False)
    return ctx


def dialect_names(ctx: ir.Context) -> list[str]:
    """The dialects that a context can load. The bindings do not list them: asked about are those
    that are loaded by RLX, and those of which the package has a module."""
    folder = Path(str(ir.__file__)).parent / "dialects"
    stems = {p.name.split(".")[0] for p in folder.iterdir()}
    names = {re.sub(r"^_|_ops_gen$", "", s) for s in stems} | {"hir", "mir", "lir"}
    found: list[str] = []
    for name in sorted(names):
        try:
            ctx.get_dialect_descriptor(name)
        except ValueError:
            continue
        found.append(name)
    return found


def parse_module(text: str | bytes, ctx: ir.Context) -> ir.Module:
    """Parse MLIR text, or bytecode; IRError says where it is wrong."""
    with mlir_errors("cannot parse the MLIR text", IRError):
        return ir.Module.parse(text, ctx)


@lru_cache(maxsize=1)
def stablehlo() -> Any:
    """The bindings of StableHLO, which come with the MLIR package; ToolchainError without them."""
    try:
        return importlib.import_module("torch_mlir._mlir_libs._stablehlo")
    except ImportError as error:
        raise ToolchainError(
            f"this MLIR package has no StableHLO ({error}); install the torch-mlir that"
            " 'rlx[compile]' asks for"
        ) from None


def stablehlo_module(source: str | bytes, ctx: ir.Context) -> ir.Module:
    """A module of StableHLO, from text, bytecode or a portable artifact. The context is changed;
    IRError says where the source is wrong."""
    stablehlo().register_dialect(ctx)
    ctx.allow_unregistered_dialects = True
    if isinstance(source, bytes):
        with suppress(ValueError, ir.MLIRError), _diagnosed(ctx, "", IRError):
            return stablehlo().deserialize_portable_artifact(ctx, source)
    return parse_module(source, ctx)


def portable_stablehlo(text: str) -> bytes:
    """A module of StableHLO in the form that XLA of the last twelve weeks reads, and a later one;
    IRError says where the text is wrong."""
    hlo, ctx = stablehlo(), context()
    module = stablehlo_module(text, ctx)
    version = hlo.get_version_from_compatibility_requirement(
        hlo.StablehloCompatibilityRequirement.WEEK_12
    )
    with mlir_errors("StableHLO has no portable form", IRError), ctx:
        return hlo.serialize_portable_artifact(module, version)


def load_irdl(module: ir.Module) -> None:
    """Declare the dialects that a module of the ``irdl`` dialect describes in its context; IRError
    says which one it cannot."""
    with mlir_errors("cannot declare the dialect", IRError):
        _mlirDialectsIRDL.load_dialects(module)


class Pipeline:
    """A textual pass pipeline for the modules of one context, parsed once.

    Passes collect their rewrite patterns when a pipeline first runs, which takes longer than
    running them on a small module: keep a pipeline that is used often.
    """

    def __init__(self, text: str, ctx: ir.Context, *, verify: bool = False) -> None:
        """``verify`` turns MLIR's verifier on after every pass; it costs more than most passes do.

        Raises PassError for an unknown pass.
        """
        with mlir_errors(f"no such pass pipeline: {text}", PassError):
            self._manager = passmanager.PassManager.parse(text, ctx)
        self._manager.enable_verifier(verify)

    def __str__(self) -> str:
        """The pipeline with every option of every pass."""
        return str(self._manager)

    @property
    def pointer(self) -> int:
        """The pass manager in MLIR's C API."""
        return _pointer(self._manager)

    def run(self, module: ir.Module | ir.OpView) -> None:
        """Run on a module, or on another op that the pipeline is for, in place; PassError if a
        pass fails."""
        with mlir_errors("a compiler pass failed", PassError):
            self._manager.run(module.operation)


@lru_cache(maxsize=4)
def kept_pipeline(text: str, ctx: ir.Context) -> Pipeline:
    """A pipeline of a context in which many modules are compiled. It keeps the context alive until
    another takes its place, or ``cache_clear``."""
    return Pipeline(text, ctx)


def run_pipeline(module: ir.Module, text: str, *, verify: bool = False) -> None:
    """Run a textual pass pipeline once; as ``Pipeline``."""
    Pipeline(text, module.context, verify=verify).run(module)


def translate_to_llvm_ir(operation: ir.Operation) -> str:
    """LLVM IR text of a ``builtin.module`` or ``gpu.module`` whose ops are all in llvm dialects.

    The caller keeps the ``ir.Module`` that owns the operation alive. Raises IRError if an op has
    no translation.
    """
    with _diagnosed(operation.context, "MLIR cannot translate to LLVM IR", IRError) as failed:
        return _translated(_pointer(operation), failed)


def text_to_llvm_ir(text: str, pipelines: Sequence[Pipeline], ctx: ir.Context) -> str:
    """LLVM IR text of a module's MLIR text, after pipelines of the context ``ctx``.

    All of it runs without the GIL, which the bindings' own functions hold: no dialect or pass of
    ``ctx`` may be of Python. Raises IRError for text that MLIR refuses, PassError if a pass fails.
    """
    api, data = _c_api(), text.encode()
    with _diagnosed(ctx, "cannot parse the MLIR text", IRError) as failed:
        module = api.mlirModuleCreateParse(_Handle(_pointer(ctx)), _Text(data, len(data)))
        if not module:
            raise failed()
    try:
        operation = api.mlirModuleGetOperation(_Handle(module))
        with _diagnosed(ctx, "a compiler pass failed", PassError) as failed:
            for pipeline in pipelines:
                if not api.mlirPassManagerRunOnOp(_Handle(pipeline.pointer), _Handle(operation)):
                    raise failed()
        with _diagnosed(ctx, "MLIR cannot translate to LLVM IR", IRError) as failed:
            return _translated(operation, failed)
    finally:
        api.mlirModuleDestroy(_Handle(module))


def _translated(operation: int, failed: Callable[[], RlxError]) -> str:
    api = _c_api()
    llvm = api.LLVMContextCreate()
    try:
        module = api.mlirTranslateModuleToLLVMIR(_Handle(operation), llvm)
        if not module:
            raise failed()
        chars = api.LLVMPrintModuleToString(module)
        text = ctypes.string_at(chars).decode()
        api.LLVMDisposeMessage(chars)
        api.LLVMDisposeModule(module)
        return text
    finally:
        api.LLVMContextDispose(llvm)


@contextmanager
def _diagnosed(
    ctx: ir.Context, doing: str, kind: type[RlxError]
) -> Generator[Callable[[], RlxError]]:
    """Around calls of the C API: gives what makes the error of one that failed, by its first
    diagnostic."""
    found: list[tuple[str, str]] = []

    def note(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            found.append((_first_line(diagnostic.message), str(diagnostic.location)))
        return True

    def failed() -> RlxError:
        message, location = found[0] if found else ("no reason given", "")
        return kind(f"{doing}: {message}", _place(location))

    handler = ctx.attach_diagnostic_handler(note)
    try:
        yield failed
    finally:
        handler.detach()


def object_bytes(binary: ir.Operation) -> bytes:
    """The code in a ``gpu.binary`` with a single object."""
    # Imported here: GPU targets alone need the dialect's attributes, and it takes 30 ms.
    gpu: Any = importlib.import_module("torch_mlir.dialects.gpu")
    return bytes(gpu.ObjectAttr(ir.ArrayAttr(binary.attributes["objects"])[0]).object)


def raw_elements(dense: ir.Attribute, nbytes: int) -> bytes:
    """The first ``nbytes`` of what a DenseElementsAttr holds: its elements in order, or the one
    element of a splat. The bindings read no bf16 element."""
    data = _c_api().mlirDenseElementsAttrGetRawData(_Handle(_pointer(dense)))
    return ctypes.string_at(data, nbytes)


def elements_of(operation: ir.Operation, name: str, nbytes: int, size: int) -> bytes:
    """The elements of an op's DenseElementsAttr, of ``size`` bytes each and ``nbytes`` in all, or
    the one element of a splat. The bindings hand out no attribute of complex numbers."""
    api, word = _c_api(), name.encode()
    found = api.mlirOperationGetAttributeByName(
        _Handle(_pointer(operation)), _Text(word, len(word))
    )
    assert found, f"{operation.name} has no attribute {name}"
    splat = api.mlirDenseElementsAttrIsSplat(_Handle(found))
    data = api.mlirDenseElementsAttrGetRawData(_Handle(found))
    return ctypes.string_at(data, size if splat else nbytes)


@contextmanager
def mlir_errors(doing: str, kind: type[RlxError]) -> Generator[None]:
    """Turn MLIR's own exceptions into ``kind``: located, and without the dump of whole ops."""
    try:
        yield
    except RlxError:
        raise  # ours already, though some are a ValueError too
    except ir.MLIRError as error:
        first = error.error_diagnostics[0] if error.error_diagnostics else None
        message = _first_line(first.message if first else str(error))
        raise kind(f"{doing}: {message}", _place(str(first.location)) if first else None) from None
    except ValueError as error:
        raise kind(f"{doing}: {_first_line(str(error))}") from None


def _first_line(message: str) -> str:
    """The message without its tail "see current operation: ..." and what follows."""
    text = message.split("see current operation", 1)[0].strip().rstrip(";:,")
    return text.splitlines()[0][:300] if text else "no reason given"


def _place(location: str) -> tuple[str, int] | None:
    found = re.search(r'"([^"]+)":(\d+)', location)
    return (found[1], int(found[2])) if found else None


# -- MLIR's C API, for what has no Python binding --------------------------------------------------


class _Handle(ctypes.Structure):
    """``MlirOperation``, ``MlirModule``, ... of mlir-c/IR.h, passed by value."""

    _fields_ = (("ptr", ctypes.c_void_p),)


class _Text(ctypes.Structure):
    """``MlirStringRef`` of mlir-c/Support.h, passed by value."""

    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))


_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "mlirModuleCreateParse": (ctypes.c_void_p, (_Handle, _Text)),
    "mlirModuleDestroy": (None, (_Handle,)),
    "mlirModuleGetOperation": (ctypes.c_void_p, (_Handle,)),
    "mlirPassManagerRunOnOp": (ctypes.c_int8, (_Handle, _Handle)),
    "mlirTranslateModuleToLLVMIR": (ctypes.c_void_p, (_Handle, ctypes.c_void_p)),
    "mlirOperationGetAttributeByName": (ctypes.c_void_p, (_Handle, _Text)),
    "mlirDenseElementsAttrIsSplat": (ctypes.c_bool, (_Handle,)),
    "mlirDenseElementsAttrGetRawData": (ctypes.c_void_p, (_Handle,)),
    "LLVMContextCreate": (ctypes.c_void_p, ()),
    "LLVMContextDispose": (None, (ctypes.c_void_p,)),
    "LLVMPrintModuleToString": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "LLVMDisposeMessage": (None, (ctypes.c_void_p,)),
    "LLVMDisposeModule": (None, (ctypes.c_void_p,)),
}
_loaded: list[ctypes.CDLL] = []


def _c_api() -> ctypes.CDLL:
    if not _loaded:
        folder = Path(str(ir.__file__)).parent / "_mlir_libs"
        found = sorted(folder.glob("*AggregateCAPI*"))
        if not found:
            raise ToolchainError(f"the MLIR package has no C API library in {folder.name}")
        api = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(api, name)
            function.restype, function.argtypes = result, arguments
        _loaded.append(api)
    return _loaded[0]


def _pointer(owner: ir.Operation | ir.Attribute | ir.Context | passmanager.PassManager) -> int:
    """The address inside the capsule by which the bindings hand out what they wrap."""
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype = ctypes.c_char_p
    python.PyCapsule_GetName.argtypes = [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule = owner._CAPIPtr
    return python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
