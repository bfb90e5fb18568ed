"""Metal Shading Language 2.4 and later. Metal has no doubles.

The library is to be compiled without fast maths, which assumes that there is no nan; contraction is
off in the source.
"""

from __future__ import annotations

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import c_like

__all__ = ["METAL"]

_EXTREME = """\
static inline float rlx_{name}(float a, float b) {{
    if (a == b) {{ return as_type<float>(as_type<int>(a) {equal} as_type<int>(b)); }}
    return (a != a || a {order} b) ? a : b;
}}"""

METAL = Language(
    name="Metal",
    header="#include <metal_stdlib>\nusing namespace metal;\n#pragma clang fp contract(off)",
    types={
        "i1": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "index": "int",
        "f16": "half", "f32": "float",
    },
    unsigned_types={
        "i8": "uchar", "i16": "ushort", "i32": "uint", "i64": "ulong", "index": "uint",
    },
    unsigned={
        "i1": "uint({e})", "i8": "uint(uchar({e}))", "i16": "uint(ushort({e}))",
        "i32": "uint({e})", "i64": "ulong({e})", "index": "uint({e})",
    },
    signed={
        "i8": "char({e})", "i16": "short({e})", "i32": "int({e})", "i64": "long({e})",
        "index": "int({e})",
    },
    literals={
        **c_like.LITERALS,
        **c_like.long_literals("L"),
    },
    bits={"f16": "as_type<half>(ushort({v}))", "f32": "as_type<float>({v}u)"},
    rows={
        **c_like.rows(lambda t, e: f"{t}({e})"),
        "arith.bitcast i32>f32": "as_type<float>({a})",
        "arith.bitcast f32>i32": "as_type<int>({a})",
        "arith.bitcast i16>f16": "as_type<half>({a})",
        "arith.bitcast f16>i16": "as_type<short>({a})",
        "math.sqrt": "precise::sqrt({a})",
        "gpu.thread_id.x": "int(thread_number.x)",
        "gpu.block_id.x": "int(group_number.x)",
        "gpu.block_id.y": "int(group_number.y)",
        "gpu.barrier": "threadgroup_barrier(mem_flags::mem_threadgroup);",
        "shared.inside": "threadgroup {t} {n}[{count}];",
        "shared.outside": "",
        "buffer": "b{k}",
        "binding.read": "device const {t}* {n} [[buffer({k})]]",
        "binding.read_write": "device {t}* {n} [[buffer({k})]]",
        "between": ", ",
        "kernel": "[[max_total_threads_per_threadgroup({x})]]\nkernel void {name}({bindings},\n"
        "    uint3 thread_number [[thread_position_in_threadgroup]],\n"
        "    uint3 group_number [[threadgroup_position_in_grid]]) {{",
    },
    helpers=c_like.extremes(_EXTREME),
)  # fmt: skip
