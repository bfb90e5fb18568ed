"""From kernel text to SPIR-V for Vulkan.

Each kernel becomes a GLCompute entry point of its own name. Its storage buffers are of descriptor
set 0, at the bindings from 0 on: those of ``rlx.targets.gpu.emit``, the numbers last.

Indices have 32 bits, since 64-bit ones are optional in Vulkan.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx import _mlir
from rlx._mlir import ir
from rlx.codegen.builder import KernelText
from rlx.errors import ToolchainError
from rlx.targets.base import check_kernels
from rlx.targets.vulkan.features import Features
from rlx.targets.vulkan.spirv import MAGIC

__all__ = ["MAGIC", "to_spirv"]

PIPELINE = (
    "builtin.module(canonicalize,cse,convert-math-to-spirv,"
    "convert-gpu-to-spirv{use-64bit-index=false},any(spirv-lower-abi-attrs,canonicalize,cse))"
)

# From 1.4 on an entry point lists all its variables. The passes decide by the environment's version
# whether it does, and then write the lowest version that the code needs.
_VERSION = "v1.3"

# Of all arithmetic, these are what a driver may join into one operation that rounds once.
_CONTRACTED = frozenset(["spirv.FAdd", "spirv.FSub", "spirv.FMul"])


def to_spirv(kernels: Sequence[KernelText], features: Features) -> bytes:
    """The SPIR-V file of the kernels, as the module docstring says.

    Raises IRError or PassError for text that MLIR refuses, and ToolchainError for what it cannot
    serialise.
    """
    check_kernels(kernels, "gpu")
    bodies = "\n".join(k.text for k in kernels)
    environment = _environment(features)
    text = (
        f"module attributes {{gpu.container_module, spirv.target_env = {environment}}} {{\n"
        f"gpu.module @kernels {{\n{bodies}\n}}\n}}"
    )
    module = _mlir.parse_module(text, _mlir.context())
    _set_group_sizes(module)
    _take_remainders_by_quotients(module)
    _mlir.run_pipeline(module, PIPELINE)
    found = _only(module, "spirv.module")
    _keep_roundings(found)
    _keep_nans(found, features)
    _mlir.run_pipeline(module, "builtin.module(any(spirv-update-vce))")
    return _serialized(found, environment)


def _environment(features: Features) -> str:
    capabilities, extensions = (", ".join(x) for x in (features.capabilities, features.extensions))
    code = f"#spirv.vce<{_VERSION}, [{capabilities}], [{extensions}]>"
    return f"#spirv.target_env<{code}, #spirv.resource_limits<>>"


def _only(module: ir.Module, name: str) -> ir.Operation:
    """The one op of a name in a module."""
    found = [view.operation for view in module.body.operations if view.operation.name == name]
    if len(found) != 1:
        raise ToolchainError(f"MLIR's passes gave {len(found)} {name} ops, where one was expected")
    return found[0]


def _set_group_sizes(module: ir.Module) -> None:
    """Say how many invocations a group has, in the way that the conversion to SPIR-V reads it."""
    for view in _only(module, "gpu.module").regions[0].blocks[0].operations:
        op = view.operation
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["known_block_size"]))
        text = f"#spirv.entry_point_abi<workgroup_size = {sizes}>"
        op.attributes["spirv.entry_point_abi"] = ir.Attribute.parse(text, module.context)


def _take_remainders_by_quotients(module: ir.Module) -> None:
    """Vulkan leaves the remainder of a negative number undefined, and what MLIR writes instead
    loses the sign of that of the least integer."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "arith.remsi":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        a, b = op.operands
        with ir.InsertionPoint(op), op.location:
            kind = [a.type]
            quotient = ir.Operation.create("arith.divsi", kind, [a, b]).result
            product = ir.Operation.create("arith.muli", kind, [quotient, b]).result
            rest = ir.Operation.create("arith.subi", kind, [a, product]).result
        op.results[0].replace_all_uses_with(rest)
        op.erase()


def _keep_roundings(module: ir.Operation) -> None:
    """Forbid drivers to fuse a product and a sum, which sums of exact terms do not survive."""
    mark = ir.UnitAttr.get(module.context)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _CONTRACTED:
            op.attributes["no_contraction"] = mark
        return ir.WalkResult.ADVANCE

    module.walk(visit)


def _keep_nans(module: ir.Operation, features: Features) -> None:
    """Have every kernel say that nan, infinities and signed zeros count, in all its floats."""
    if "nans" not in features.has:
        return
    widths = [32, *(n for n in (16, 64) if f"float{n}" in features.has)]
    block = module.regions[0].blocks[0]
    for view in list(block.operations):
        if view.operation.name != "spirv.EntryPoint":
            continue
        name = ir.FlatSymbolRefAttr(view.operation.attributes["fn"]).value
        for width in widths:
            text = f'spirv.ExecutionMode @{name} "SignedZeroInfNanPreserve", {width}'
            made = ir.Operation.parse(text, context=module.context)
            block.append(made)


def _serialized(spirv: ir.Operation, environment: str) -> bytes:
    """The bytes of a ``spirv.module``.

    MLIR's serializer has no binding, but the pass that makes binaries of GPU modules uses it for
    one whose target is SPIR-V.
    """
    text = (
        f"module attributes {{gpu.container_module}} {{\n"
        f"gpu.module @kernels [{environment}] {{\n{spirv.get_asm()}\n}}\n}}"
    )
    module = _mlir.parse_module(text, spirv.context)
    _mlir.run_pipeline(module, "builtin.module(gpu-module-to-binary)")
    code = _mlir.object_bytes(_only(module, "gpu.binary"))
    if int.from_bytes(code[:4], "little") != MAGIC:
        raise ToolchainError("MLIR's SPIR-V does not begin with its magic number")
    return code
