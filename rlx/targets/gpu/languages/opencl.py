"""OpenCL C 1.2, with 64-bit integers, and doubles where kernels use them.

Half floats are a memory format: as bits, which every device converts by vload_half. Sums and
products are never contracted, since the math functions stand on their roundings.
"""

from __future__ import annotations

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import c_like

__all__ = ["OPENCL"]

_EXTREME = """\
{t} rlx_{name}({t} a, {t} b) {{
    if (a == b) {{ return as_{t}(as_{i}(a) {equal} as_{i}(b)); }}
    return (a != a || a {order} b) ? a : b;
}}"""

OPENCL = Language(
    name="OpenCL C",
    header="#pragma OPENCL FP_CONTRACT OFF",
    types={
        "i1": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "index": "int",
        "f16": "ushort", "f32": "float", "f64": "double",
    },
    unsigned_types={
        "i8": "uchar", "i16": "ushort", "i32": "uint", "i64": "ulong", "index": "uint",
    },
    unsigned={
        "i1": "(uint){e}", "i8": "(uint)(uchar){e}", "i16": "(uint)(ushort){e}",
        "i32": "(uint){e}", "i64": "(ulong){e}", "index": "(uint){e}",
    },
    signed={
        "i8": "(char)({e})", "i16": "(short)({e})", "i32": "(int)({e})", "i64": "(long)({e})",
        "index": "(int)({e})",
    },
    literals={
        **c_like.LITERALS,
        **c_like.long_literals("L"),
        "f64": "{v}",
    },
    bits={"f16": "{v}", "f32": "as_float({v})", "f64": "as_double({v}L)"},
    rows={
        **c_like.rows(lambda t, e: f"({t}){e}"),
        "arith.bitcast i32>f32": "as_float({a})",
        "arith.bitcast f32>i32": "as_int({a})",
        "arith.bitcast i64>f64": "as_double({a})",
        "arith.bitcast f64>i64": "as_long({a})",
        "arith.bitcast i16>f16": "(ushort){a}",
        "arith.bitcast f16>i16": "(short){a}",
        "arith.extf f16": "rlx_from_half({a})",
        "arith.truncf f32>f16": "rlx_to_half({a})",
        "arith.maximumf f64": "rlx_maximum_double({a}, {b})",
        "arith.minimumf f64": "rlx_minimum_double({a}, {b})",
        "gpu.thread_id.x": "(int)get_local_id(0)",
        "gpu.block_id.x": "(int)get_group_id(0)",
        "gpu.block_id.y": "(int)get_group_id(1)",
        "gpu.barrier": "barrier(CLK_LOCAL_MEM_FENCE);",
        "shared.inside": "__local {t} {n}[{count}];",
        "shared.outside": "",
        "buffer": "b{k}",
        "binding.read": "__global const {t}* {n}",
        "binding.read_write": "__global {t}* {n}",
        "between": ", ",
        "kernel": "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\n"
        "void {name}({bindings}) {{",
    },
    helpers={
        "rlx_from_half": "float rlx_from_half(ushort x) {\n"
        "    return vload_half(0, (const __private half*)&x);\n}",
        "rlx_to_half": "ushort rlx_to_half(float x) {\n"
        "    ushort y;\n    vstore_half_rte(x, 0, (__private half*)&y);\n    return y;\n}",
        **c_like.extremes(_EXTREME, t="float", i="int"),
        **c_like.extremes(_EXTREME, "_double", t="double", i="long"),
    },
)  # fmt: skip
