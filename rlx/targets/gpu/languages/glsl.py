"""GLSL 4.5 for Vulkan, a kernel a file. ``precise`` keeps sums and products as they round."""

from __future__ import annotations

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import words

__all__ = ["GLSL"]

GLSL = Language(
    name="GLSL",
    suffix=".comp",
    header="#version 450",
    types=words.TYPES,
    memory={"i8": "uint", "i16": "uint", "f16": "uint"},
    unsigned_types=words.UNSIGNED_TYPES,
    unsigned=words.UNSIGNED,
    signed=words.SIGNED,
    literals=words.LITERALS,
    bits={"f32": "uintBitsToFloat({v}u)", "f16": "rlx_from_half({v}u)"},
    rows={
        **words.rows("floatBitsToInt", "intBitsToFloat", "atomicAnd", "atomicOr"),
        "math.roundeven": "roundEven({a})",
        "let": "precise {t} {n} = {e};",
        "gpu.thread_id.x": "int(gl_LocalInvocationID.x)",
        "gpu.block_id.x": "int(gl_WorkGroupID.x)",
        "gpu.block_id.y": "int(gl_WorkGroupID.y)",
        "gpu.barrier": "barrier();",
        "shared.outside": "shared {t} {n}[{count}];",
        "shared.inside": "",
        "buffer": "b{k}",
        "binding.read": "layout(std430, set = 0, binding = {k})"
        " readonly buffer B{k} {{ {t} {n}[]; }};",
        "binding.read_write": "layout(std430, set = 0, binding = {k})"
        " buffer B{k} {{ {t} {n}[]; }};",
        "between": "\n",
        "kernel": "layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;\n"
        "{bindings}\n\nvoid main() {{",
    },
    helpers=words.helpers("uintBitsToFloat", "floatBitsToUint"),
    one_kernel=True,
)
