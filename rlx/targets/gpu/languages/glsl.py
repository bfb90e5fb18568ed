"""GLSL 4.3, for OpenGL and for Vulkan. ``precise`` keeps sums and products as they round.

A file has any number of kernels, and a shader is compiled for one: that for which ``KERNEL_<name>``
is defined.
"""

from __future__ import annotations

from rlx.targets.gpu.languages import words

__all__ = ["GLSL", "defined"]

GLSL = words.language(
    name="GLSL",
    header="#version 430",
    f="uintBitsToFloat",
    rows={
        **words.rows("floatBitsToInt", "intBitsToFloat", "atomicAnd", "atomicOr"),
        "math.roundeven": "roundEven({a})",
        "opaque": "uintBitsToFloat(floatBitsToUint({e}) | gl_WorkGroupID.z)",
        "let": "precise {t} {n} = {e};",
        "gpu.thread_id.x": "int(gl_LocalInvocationID.x)",
        "gpu.block_id.x": "int(gl_WorkGroupID.x)",
        "gpu.block_id.y": "int(gl_WorkGroupID.y)",
        "gpu.barrier": "barrier();",
        "shared.outside": "shared {t} {n}[{count}];",
        "shared.inside": "",
        "buffer": "b{k}",
        "binding.read": "layout(std430, binding = {k}) readonly buffer B{k} {{ {t} {n}[]; }};",
        "binding.read_write": "layout(std430, binding = {k}) buffer B{k} {{ {t} {n}[]; }};",
        "between": "\n",
        "before": "#ifdef KERNEL_{name}",
        "kernel": "layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;\n"
        "{bindings}\n\nvoid main() {{",
        "after": "#endif",
    },
    helpers=words.helpers("uintBitsToFloat", "floatBitsToUint"),
)


def defined(source: str, kernel: str) -> str:
    """The source with the definition that chooses a kernel, after the version."""
    version, _, rest = source.partition("\n")
    return f"{version}\n#define KERNEL_{kernel}\n{rest}"
