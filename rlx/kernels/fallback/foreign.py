"""Kernels that an op's class brings itself (``rlx.ir.foreign_kernel``)."""

from __future__ import annotations

from rlx.base.digest import digest
from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.memory import FLAT
from rlx.codegen.reg import mlir_element
from rlx.errors import GraphError, ToolchainError, a_type
from rlx.ir.foreign_kernel import CKernel, CustomKernel, MlirKernel, PythonKernel
from rlx.ir.op import Op
from rlx.kernels.fallback.config import CommonConfig
from rlx.types import DType, i64

__all__ = ["CustomConfig", "emit", "faults", "kernel_of", "launch"]

name = "custom"

_LANGUAGES: dict[type, str] = {CKernel: "c", MlirKernel: "mlir", PythonKernel: "python"}


@frozen
class CustomConfig:
    """A kernel of an op on operands of static shape, in a language; ``digest`` is that of its
    source."""

    on: CommonConfig
    language: str
    digest: str

    @staticmethod
    def of(op: Op) -> CustomConfig:
        """The config of a node."""
        kernel = kernel_of(op)
        source = "" if isinstance(kernel, PythonKernel) else kernel.source
        return CustomConfig(CommonConfig.of(op), _LANGUAGES[type(kernel)], digest(source.encode()))

    def kernel(self) -> CustomKernel:
        """The kernel. GraphError if the class gives another one than it gave before."""
        node = self.on.node()
        if CustomConfig.of(node) != self:
            raise GraphError(f"{node.name}: its kernel changed; equal nodes must have equal ones")
        return kernel_of(node)


def kernel_of(op: Op) -> CustomKernel:
    """What the class gives as the kernel of a node; GraphError if that is none."""
    kernel = op.kernel()
    if type(kernel) not in _LANGUAGES:
        raise GraphError(
            f"{op.name}: its kernel() gives {a_type(kernel)}, expected a CKernel, an"
            " MlirKernel or a PythonKernel",
            op.location,
        )
    return kernel


def faults(config: CustomConfig) -> tuple[str, ...]:
    """The messages of the kernel's faults."""
    kernel = config.kernel()
    if isinstance(kernel, PythonKernel):
        return (f"{config.on.node().short}: its Python kernel failed",)
    return kernel.faults


def launch(config: CustomConfig, site: int = 0) -> Launch:
    """The kernel's arguments; ``site`` is what a fault's record says of where it happened."""
    kernel = config.kernel()
    if isinstance(kernel, PythonKernel):
        return Launch(1, 1, (site,))
    sites = (site,) if kernel.faults else ()
    return Launch(kernel.range, kernel.grain, (*kernel.sizes, *sites))


def emit(name: str, config: CustomConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel: that of a C file, where that is its language."""
    kernel, op = config.kernel(), config.on.node()
    if isinstance(kernel, PythonKernel):
        raise ToolchainError(f"{op.name}: its kernel is a Python function, which has no text")
    if target.binds:
        raise ToolchainError(f"{op.name}: its kernel is for CPUs, and {target.name} is none")
    buffers = [v.dtype for v in (*op.present, *op.results)]
    sizes = [f"size{n}" for n in range(len(kernel.sizes))]
    if kernel.faults:
        buffers.append(i64)
        sizes.append("site")
    if isinstance(kernel, CKernel):
        text, frame = _c_file(name, op, kernel), "c"
    else:
        text, frame = _mlir_function(name, op, kernel, buffers, len(sizes)), "cpu"
    return KernelText(name, text, tuple(buffers), tuple(sizes), False, frame)


# -- MLIR -------------------------------------------------------------------------------------


def _mlir_function(name: str, op: Op, kernel: MlirKernel, buffers: list[DType], sizes: int) -> str:
    from rlx import _mlir  # a kernel in another language needs none of it
    from rlx._mlir import ir

    memrefs = [f"memref<?x{mlir_element(dt, memory=True)}>" for dt in buffers]
    expected = ["index", "index", *memrefs, *["index"] * sizes]
    context = _mlir.context()
    module = _mlir.parse_module(kernel.source, context)
    found = [view.operation for view in module.body.operations]
    names = [ir.StringAttr(f.attributes["sym_name"]).value for f in found if f.name == "func.func"]
    if names != ["kernel"] or len(found) != 1:
        raise GraphError(
            f"{op.name}: its MLIR kernel has the functions {names}, expected one, called @kernel"
        )
    kind = ir.FunctionType(ir.TypeAttr(found[0].attributes["function_type"]).value)
    types = [str(t) for t in kind.inputs]
    if types != expected or kind.results:
        raise GraphError(
            f"{op.name}: its MLIR kernel takes ({', '.join(types)}), expected"
            f" ({', '.join(expected)}) and no results"
        )
    found[0].attributes["sym_name"] = ir.StringAttr.get(name, context)
    text = str(found[0])
    if "memref.dim" in text:
        raise GraphError(
            f"{op.name}: its MLIR kernel asks for a memref.dim; give it a size instead"
        )
    # Arguments are bare pointers, which memrefs of unknown size cannot be.
    return text.replace("memref<?x", f"memref<{FLAT}x")


# -- C ----------------------------------------------------------------------------------------

_HEAD = """\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint16_t rlx_f16;
typedef uint16_t rlx_bf16;
typedef uint8_t rlx_f8e4m3fn;
typedef uint8_t rlx_f8e5m2;
typedef struct { float re, im; } rlx_c64;
typedef struct { double re, im; } rlx_c128;
typedef struct { int64_t *record; int64_t site; } rlx_faults;
static inline void rlx_fault(const rlx_faults *faults, int64_t code) {
  if (faults->record[0] != 0) return;
  faults->record[1] = faults->site;
  faults->record[0] = code;
}
"""

_C_TYPES = {
    "f32": "float", "f64": "double", "bool": "bool", "f16": "rlx_f16", "bf16": "rlx_bf16",
    "c64": "rlx_c64", "c128": "rlx_c128", "f8e4m3fn": "rlx_f8e4m3fn", "f8e5m2": "rlx_f8e5m2",
}  # fmt: skip


def _c_file(name: str, op: Op, kernel: CKernel) -> str:
    arguments = ["begin", "end"]
    for n, v in enumerate((*op.present, *op.results)):
        const = "const " if n < len(op.present) else ""
        arguments.append(f"({const}{_c_type(v.dtype)} *)buffers[{n}]")
    arguments += [f"sizes[{n}]" for n in range(len(kernel.sizes))]
    faults = ""
    if kernel.faults:
        record = len(op.present) + len(op.results)
        faults = (
            f"  const rlx_faults faults = {{(int64_t *)buffers[{record}],"
            f" sizes[{len(kernel.sizes)}]}};\n"
        )
        arguments.append("&faults")
    return (
        f'{_HEAD}#line 1 "the kernel of {op.name}"\n{kernel.source}\n'
        f'#line 1 "the call of the kernel of {op.name}"\n'
        '__attribute__((visibility("default")))\n'
        f"void {name}(int64_t begin, int64_t end, void *const *buffers, const int64_t *sizes,\n"
        "  void *scratch) {\n"
        f"  (void)buffers, (void)sizes, (void)scratch;\n{faults}"
        f"  kernel({', '.join(arguments)});\n}}\n"
    )


def _c_type(dt: DType) -> str:
    if dt.name in _C_TYPES:
        return _C_TYPES[dt.name]
    assert dt.is_int
    return f"{'u' if dt.kind == 'uint' else ''}int{dt.bits}_t"
